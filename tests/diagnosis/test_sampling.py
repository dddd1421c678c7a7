"""A diagnosis of a grid that is too large to visit: sampled, with intervals, and refused where that cannot be."""

import numpy as np
import pytest
import torch
from torch import nn

from recombine.decoders import MLP, build_seeded
from recombine.decoders.base import Interface
from recombine.diagnosis import diagnose
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.metrics.plans import Scope, plan_of
from recombine.metrics.registry import STAGE_METRICS, Column, Need, stage_metric
from recombine.metrics.sampling import PARTS, SUFFIX, draw_sub_grids, quantile, repeated_estimate
from tests.coloured import ALL, ColouredBumps

GRID = FactorGrid(tuple(Factor(name, 0, 7, 8) for name in ("a", "b", "c")))


def small_module(**task):
    chosen = ColouredBumps(**{"factors": ALL[:3], "levels": 8, "thin": True, "holdout": "corner:5", **task})
    decoder = build_seeded(MLP(width=12, depth=1), Interface(chosen.code_sizes, chosen.image_shape), 0)
    return chosen, decoder


def measured(task, module, **settings):
    fields = {"encode": task.encoding, "holdout": task.held_out, "targets": task.render, **settings}
    return diagnose(module, task.grid, **fields)


@pytest.fixture(scope="module")
def results():
    task, module = small_module()
    return task, measured(task, module), measured(task, module, points=200, seed=1)


def test_a_grid_within_the_limit_is_measured_whole(results):
    task, whole, _ = results
    assert whole["held_out"].shape == task.grid.shape
    assert not any(str(name).endswith(SUFFIX) for name in whole)
    assert "±" not in whole.summary()


def test_a_sampled_grid_has_intervals_and_says_so(results):
    _, whole, sampled = results
    assert sampled["held_out"].shape == (4, 3, 3)
    assert sampled.attrs["points"] == 200
    assert sampled.notes[0].startswith("200 of 512 points: errors are means over random points")
    for name in ("factorization_mean", "id_error", "ood_error", "id_over_mean", "superposition", "kernel_agreement"):
        assert name in whole
        assert f"{name}{SUFFIX}" in sampled
    assert "±" in sampled.summary()
    assert not {"log_volume_roughness", "hole_openness"} & set(sampled.data_vars)
    assert sampled.left_out["roughness"] == "the whole grid"
    assert {"log_volume_roughness", "hole_openness"} <= set(whole.data_vars)


def test_maps_are_those_of_the_whole_grid_at_the_values_drawn(results):
    _, whole, sampled = results
    same = whole["volume"].sel({name: sampled[name] for name in ALL[:3]})
    np.testing.assert_allclose(sampled["volume"], same, rtol=1e-5)


def test_differences_are_to_the_whole_grids_neighbours():
    task, module = small_module(encoding="onehot")
    whole, sampled = measured(task, module), measured(task, module, points=200)
    assert sampled.attrs["metric"] == "finite differences"
    same = whole["volume"].sel({name: sampled[name] for name in ALL[:3]})
    np.testing.assert_allclose(sampled["volume"], same, rtol=1e-3)


def test_sub_grids_for_means_do_not_look_for_the_hold_out():
    held_out = (GRID.indices >= 5).all(dim=1)
    shares, groups = [], set()
    for seed in range(100):
        parts = plan_of(GRID, held_out, 250, seed).parts
        groups |= {part.scope for part in parts}
        shares += [part.held_out.double().mean().item() for part in parts if part.scope is not Scope.NEEDING_HOLDOUT]
        assert all(part.held_out.sum() >= 2 for part in parts if part.scope is Scope.NEEDING_HOLDOUT)
    assert groups == {*Scope}
    assert np.mean(shares) == pytest.approx(held_out.double().mean().item(), abs=4 * np.std(shares) / 500**0.5)


def test_means_over_sub_grids_are_within_their_stated_error():
    points = GRID.points
    values = torch.sin(points[:, 0]) + torch.cos(0.7 * points[:, 1]) * points[:, 2] / 3
    inside = 0
    for seed in range(200):
        parts = draw_sub_grids(GRID, 40, PARTS, seed)
        estimate = repeated_estimate(torch.stack([values[part.indices].mean() for part in parts]))
        inside += int((estimate.value - values.mean()).abs() <= quantile(PARTS - 1) * estimate.standard_error)
    assert 0.9 * 200 <= inside < 200


@pytest.mark.slow
def test_a_diagnosis_is_within_its_stated_error(results):
    task, whole, _ = results
    _, module = small_module()
    names, draws = ("id_error", "ood_error", "id_over_mean", "log_volume_mean", "factorization_mean"), 30
    inside = dict.fromkeys(names, 0)
    for seed in range(draws):
        sampled = measured(task, module, points=250, seed=seed)
        for name in names:
            errors = sampled[f"{name}{SUFFIX}"]
            off = np.abs(np.atleast_1d(sampled[name] - whole[name]))[-1]
            inside[name] += off <= np.atleast_1d(errors)[-1] * errors.attrs["quantile"] + 1e-5  # rounding
    assert min(inside.values()) >= 0.85 * draws, inside  # 1 in 300 such tests would have fewer by chance


def test_a_million_points_take_little_memory():
    grid = FactorGrid(tuple(Factor(name, 0, 9, 10) for name in "abcdef"))
    asked = []

    def targets(values):
        asked.append(len(values))
        return torch.zeros(len(values), 3, 4, 4)

    module = nn.Sequential(nn.Linear(6, 48), nn.Unflatten(1, (3, 4, 4)))
    result = diagnose(module, grid, targets=targets, points=700)
    assert sum(asked) < 5 * 700
    assert 0 < result["id_error_se"].item() < result["id_error"].item()
    assert np.prod([len(result[name]) for name in "abcdef"]) <= 700 / PARTS


def test_a_hold_out_that_no_sub_grid_meets_is_scored_all_the_same():
    task, module = small_module()
    mask = torch.zeros(task.grid.size, dtype=torch.bool)
    mask[3] = True
    result = measured(task, module, points=200, holdout=mask)
    assert "no sub-grid has held-out points" in result.notes[1]
    assert "ood_error" in result
    assert "superposition" not in result
    assert result.left_out["probe_held_out"] == "hold-out"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"points": 20}, "points"),
        ({"targets": lambda values: values[:2]}, "targets"),
        ({"targets": lambda values: values / 0}, "targets"),
    ],
)
def test_refusals(settings, expected):
    task, module = small_module()
    with pytest.raises(InvalidValue) as refused:
        measured(task, module, **{"points": 200, **settings})
    assert refused.value.field == expected


def test_a_module_that_drops_the_dimension_of_a_single_row_is_sampled():
    class Squeezing(nn.Module):
        def forward(self, rows):
            return (rows @ torch.ones(3, 2)).tanh().squeeze(0)

    mask = torch.arange(GRID.size) == 77
    for geometry in ("auto", "differences"):
        targets = torch.zeros(GRID.size, 2)
        result = diagnose(Squeezing(), GRID, points=193, targets=targets, geometry=geometry, holdout=mask)
        assert np.isfinite(result["ood_error"])


@pytest.mark.parametrize("held_out", [1, 65])
def test_a_remainder_of_one_row_is_run_with_others(held_out):
    class Squeezing(nn.Module):
        def forward(self, rows):
            return rows.tanh().squeeze(0)

    mask = torch.arange(130) < held_out
    result = diagnose(Squeezing(), "x=0:129", encode="bump", holdout=mask, metrics=["superposition"])
    assert "averaged" in result["prediction"].values


ONE_VALUED = FactorGrid((Factor("only", 3, 3, 1), *GRID.factors))


def test_a_factor_with_one_value_has_no_differences():
    with pytest.raises(InvalidValue, match=r"^grid must be at least 2 values per factor"):
        diagnose(nn.Linear(3, 2), "only=3:3,x=0:5,y=0:5", geometry="differences")
    sampled = diagnose(nn.Linear(4, 2), ONE_VALUED, points=200)
    assert sampled.left_out["roughness"] == "the whole grid"


@pytest.fixture
def held_map():
    name = "held_map"
    register = stage_metric(name, Column(name, "zeros", dims=("point",)), needs=(Need.HOLDOUT,))
    register(lambda stage: {name: torch.zeros(len(stage.points))})
    yield name
    STAGE_METRICS.unregister(name)


def test_a_map_of_other_points_is_left_out(held_map):
    task, module = small_module()
    mask = (GRID.indices >= 6).all(dim=1)
    result = measured(task, module, points=200, holdout=mask, metrics=[held_map, "kernel_p", "partial_factorization"])
    assert any("redrawn" in note for note in result.notes)
    assert held_map not in result
    assert set(result.left_out) == {held_map}
    assert any(note.startswith("kernel_p is that of the first sub-grid") for note in result.notes)


def test_only_selected_metrics_are_left_out():
    task, module = small_module()
    mask = torch.arange(task.grid.size) == 3
    names = ["probe_held_out", "partial_factorization"]
    assert set(measured(task, module, points=200, holdout=mask, metrics=names).left_out) == {"probe_held_out"}


def test_neighbours_are_run_only_for_metrics_that_need_them(monkeypatch):
    from recombine.diagnosis import diagnosing

    monkeypatch.setattr(diagnosing, "neighbour_metric", None)
    task, module = small_module()
    assert "factorization_mean" in measured(task, module, points=200, metrics=["factorization_mean"])


def test_derivatives_are_checked_once_for_all_sub_grids(monkeypatch):
    from recombine.diagnosis import geometry

    calls, check = [], geometry._wrong_derivative
    monkeypatch.setattr(geometry, "_wrong_derivative", lambda *given: calls.append(given) or check(*given))
    task, module = small_module()
    measured(task, module, points=200, metrics=["volume"])
    assert len(calls) == 1


def test_rows_that_meet_cannot_be_sampled():
    class Meeting(nn.Module):
        def forward(self, rows):
            if len(rows) < 2:
                raise ValueError("two rows at least")
            return rows - rows.mean(dim=0)

    with pytest.raises(InvalidValue, match=r"^points"):
        diagnose(Meeting(), GRID, points=100)
