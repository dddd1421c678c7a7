"""Rotated digits: known answers, the blend, and the study from training to figure."""

import json
import math
import sys
import types

import matplotlib
import numpy as np
import pytest
import torch
import xarray

from recombine.errors import InvalidValue
from recombine.papers import DEFAULT
from recombine.papers.forced_rendering.rotation import MANY, ONE
from recombine.papers.forced_rendering.rotation_figure import embeddings, rotation_caption, rotation_figure
from recombine.papers.forced_rendering.rotation_measures import (
    chosen_angles,
    gap_angles,
    gap_edges,
    linear_blend,
    principal_scores,
)
from recombine.specs import RunSpec
from recombine.sweep import train
from recombine.tasks.rotation import RotationTask, upright_digits
from recombine.training import evaluate, scores

matplotlib.use("Agg")
CPU = torch.device("cpu")
SMALL = RotationTask(size=14, angles=72)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


# -- the task --------------------------------------------------------------------------------------------------


def test_digits_are_ten_different_bright_images():
    digits = upright_digits()
    assert digits.shape == (10, 28, 28)
    assert digits.amin() == 0
    assert digits.amax(dim=(1, 2)).eq(1).all()
    assert (torch.cdist(digits.flatten(1), digits.flatten(1)) + 99 * torch.eye(10)).min() > 3


@pytest.mark.parametrize("size", [28, 14, 9])
def test_no_angle_is_upright_and_a_full_turn_is_none(size):
    task = RotationTask(size=size, angles=36)
    none, full, backwards = task.render(rows([0.0], [360.0], [-360.0]))
    assert torch.allclose(none, task.upright[0], atol=1e-12)
    assert torch.allclose(none, full, atol=1e-12)
    assert torch.allclose(none, backwards, atol=1e-12)


@pytest.mark.parametrize("size", [28, 9])
def test_quarter_turns_are_counter_clockwise_as_seen(size):
    task = RotationTask(size=size, angles=36)
    for quarters in range(4):
        image = task.render(rows([90.0 * quarters]))[0]
        assert torch.allclose(image, torch.rot90(task.upright[0], quarters), atol=1e-12)


def test_right_of_the_centre_goes_to_the_top():
    task = RotationTask(size=28, angles=36)
    dot = torch.zeros(1, 28, 28, dtype=torch.float64)
    dot[0, 13:15, 22:24] = 1
    object.__setattr__(task, "upright", dot)
    for angle in (30.0, 90.0, 200.0):
        image = task.render(rows([angle]))[0]
        y, x = (torch.arange(28, dtype=torch.float64) - 13.5 for _ in "yx")
        right, up = (image.sum(dim=0) * x).sum() / image.sum(), -(image.sum(dim=1) * y).sum() / image.sum()
        assert right.item() == pytest.approx(9 * math.cos(math.radians(angle)), abs=0.1)
        assert up.item() == pytest.approx(9 * math.sin(math.radians(angle)), abs=0.1)


def test_smaller_digits_are_means_of_areas():
    halves = upright_digits()[4].reshape(14, 2, 14, 2).mean(dim=(1, 3))
    assert torch.allclose(SMALL.upright[0], halves)


def test_code_is_cosine_and_sine_and_comes_back_after_a_turn():
    code = SMALL.codes(rows([0.0], [90.0], [30.0], [390.0]))
    assert torch.allclose(code[:3], rows([1, 0], [0, 1], [math.sqrt(3) / 2, 0.5]))
    assert torch.allclose(code[2], code[3])
    first, second, last = SMALL.codes(SMALL.grid.points)[[0, 1, -1]]
    assert torch.dist(first, second).item() == pytest.approx(torch.dist(first, last).item())


@pytest.mark.parametrize("angles", [8, 36, 50, 360, 1000])
def test_the_gap_is_open_at_both_ends(angles):
    task = RotationTask(angles=angles)
    held = [k for k in range(angles) if 160 * angles < 360 * k < 200 * angles]
    assert torch.nonzero(task.held_out).flatten().tolist() == held
    assert task.grid.points[:, 0].max() < 360
    low, high = gap_edges(task)
    assert low <= 160
    assert high >= 200
    assert not task.held_out[task.grid.nearest(rows([low], [high]))].any()
    values = RotationTask(angles=angles, training="each").training_values(0)
    assert len(values) == angles - len(held)


def test_known_count_of_the_gap():
    assert gap_angles(RotationTask(angles=36)).tolist() == pytest.approx([170, 180, 190])
    assert len(gap_angles(RotationTask())) == 111


def test_of_several_digits_the_first_alone_has_the_gap():
    task = RotationTask(size=14, angles=36, digits=3, allow_unseen=False)
    assert task.grid.names == ("digit", "angle")
    assert task.shown_digits == (4, 0, 1)
    assert RotationTask(digit=0, digits=10).shown_digits == tuple(range(10))
    held = task.held_out.reshape(3, 36)
    assert torch.nonzero(held).tolist() == [[0, 17], [0, 18], [0, 19]]
    assert torch.allclose(task.render(rows([2.0, 0.0]))[0], RotationTask(size=14, digit=1).upright[0], atol=1e-12)
    assert task.codes(rows([1.0, 90.0]))[0].round(decimals=9).tolist() == [0, 1, 0, 0, 1]


def test_spec_goes_through_json():
    for task in (SMALL, RotationTask(angles=36, digits=3)):
        spec = RunSpec(task=task)
        assert RunSpec.from_json(spec.to_json()) == spec
        assert json.loads(spec.to_json())["task"]["holdout"]["low"] is not None
    assert str(RotationTask(holdout="center:20:30", angles=36).holdout) == "center:low=20:high=30"


@pytest.mark.parametrize(
    "fields",
    [
        {"isolated": True}, {"allow_unseen": False}, {"angles": 7}, {"angles": 1}, {"digit": 10}, {"digits": 11},
        {"digits": 0}, {"digits": 2, "centers": "real"}, {"size": 1}, {"holdout": "center:0:999"}, {"sigma": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_one_line(fields):
    with pytest.raises(InvalidValue) as caught:
        RotationTask(**fields)
    assert "\n" not in str(caught.value)
    assert "allowed:" in str(caught.value)


def test_absent_factors_are_refused():
    with pytest.raises(InvalidValue, match="never seen without an angle"):
        SMALL.render(rows([math.nan]))


def test_real_angles_stay_out_of_the_gap():
    values = RotationTask(centers="real", angles=360, training="draws:500").training_values(0)
    assert not ((values > 160.5) & (values < 199.5)).any()


@pytest.mark.parametrize("direction", ["decode", "encode"])
def test_a_digit_has_no_place_so_accuracy_is_not_a_number(direction):
    task = RotationTask(size=14, angles=36, direction=direction)
    targets = iter(task.examples(task.grid.points).targets.split(32))
    evaluation = evaluate(task, lambda inputs: next(targets), CPU)
    assert evaluation["hit"].isnan().all()
    found = scores(evaluation)
    assert found["id_mse"] == found["ood_mse"] == 0
    assert math.isnan(found["id_accuracy"])
    assert math.isnan(found["ood_accuracy"])


# -- the blend -------------------------------------------------------------------------------------------------


def test_blend_is_the_edges_at_the_edges_and_their_mean_between():
    low, high = gap_edges(SMALL)
    edges = SMALL.render(rows([low], [high]))
    blends = linear_blend(SMALL, rows(low, high, (low + high) / 2, low + (high - low) / 4))
    assert torch.allclose(blends[:2], edges)
    assert torch.allclose(blends[2], edges.mean(dim=0))
    assert torch.allclose(blends[3], 0.75 * edges[0] + 0.25 * edges[1])


# -- the study -------------------------------------------------------------------------------------------------


def test_umap_is_used_where_it_is_installed(monkeypatch):
    class Mapper:
        def __init__(self, *, n_neighbors, n_components, random_state, n_jobs):
            assert (n_components, random_state, n_jobs) == (2, 0, 1)
            self.neighbours = n_neighbors

        def fit_transform(self, scores):
            return np.full((len(scores), 2), self.neighbours)

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=Mapper))
    methods = embeddings()
    assert list(methods) == ["UMAP", "PC"]
    assert [methods["UMAP"](np.zeros((count, 3)))[0, 0] for count in (8, 100, 1000)] == [7, 15, 50]
    monkeypatch.setitem(sys.modules, "umap", None)
    assert list(embeddings()) == ["PC"]
    scores = np.arange(12.0).reshape(4, 3)
    assert np.array_equal(embeddings()["PC"](scores), scores[:, :2])


def test_scores_keep_all_distances():
    turn = torch.linspace(0, 2 * math.pi, 41)[:-1]
    waves = torch.stack([(k * turn + k).cos() / k**2 for k in range(1, 8)], dim=1)
    activations = 5 + waves @ torch.randn(7, 300, generator=torch.Generator().manual_seed(0))
    scores = torch.from_numpy(principal_scores(activations))
    assert scores.shape[1] < 40
    ratio = torch.pdist(activations) / torch.pdist(scores)
    assert torch.allclose(ratio, ratio.mean().expand_as(ratio), rtol=0.02)
    assert scores.abs().max() == 1
    plane = torch.stack([3 * turn.cos(), turn.sin()], dim=1) @ torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    lengths = np.linalg.norm(principal_scores(plane + 5), axis=0)
    assert lengths.shape == (2,)
    assert lengths[0] / lengths[1] == pytest.approx(3, rel=1e-2)


def test_some_angles_are_chosen_evenly():
    assert len(chosen_angles(1000)) == 250
    assert chosen_angles(40).tolist() == list(range(40))
    assert set(chosen_angles(600).diff().tolist()) == {3}


def test_arms_share_the_recipe_and_many_digits_can_be_left_out():
    study, preset = DEFAULT.studies["rotation"], DEFAULT.preset_named("paper")
    one, many = study.arms(preset)
    assert (one.labels, many.labels) == ((ONE,), (MANY,))
    assert (one.seeds, many.extra) == (64, True)
    assert len(study.specs(preset)) == 64 + preset.extra_seeds
    assert min(spec.seed for spec in study.specs(preset)) == preset.first_seed
    assert one.spec.recipe == many.spec.recipe
    assert (one.spec.recipe.absolute, one.spec.recipe.weight_decay) == (0.1, 1e-4)
    assert many.spec.task.grid.shape == (10, 100)
    assert len(study.arms(preset.changed(["digits=1"]))) == 1


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Two seeds of each arm, a hundred steps long, measured and read back from a file."""
    study, folder = DEFAULT.studies["rotation"], tmp_path_factory.mktemp("rotation")
    small = [
        "rotation_seeds=2",
        "extra_seeds=1",
        "angles=40",
        "digits=2",
        "depth=2",
        "rotation_width=8",
        "rotation_steps=100",
    ]
    preset = DEFAULT.preset_named("quick").changed(small)
    runs = {run.key: run for run in train(study.specs(preset), folder / "store", device="cpu")}
    measured = study.measure(study.trials(preset, CPU, runs))
    measured.to_netcdf(folder / "rotation.nc", engine="h5netcdf")
    return xarray.load_dataset(folder / "rotation.nc", engine="h5netcdf")


def test_study_measures_what_it_says(result):
    assert result.sizes["seed"] == 2
    assert result["gap"].values.sum() == 5
    error, gap = result["error"], result["gap"]
    assert np.allclose(error.where(gap).mean("angle"), result["ood_over_blank"], rtol=1e-5)
    assert np.allclose(error.where(~gap).mean("angle"), result["id_over_blank"], rtol=0.05)
    assert list(result["stage"].values) == ["input", "layer0", "layer1", "layer2", "output"]
    assert np.allclose(result["stage_speed"].sel(stage="input"), 1)
    assert result["components"].sizes["some_angle"] == 40
    assert np.isfinite(result["components"]).all()
    middle = result["error"].sel(angle=180)
    assert np.array_equal(result["mid_gap_error"], middle)
    assert int(result["many_edges_less_truth"].notnull().sum()) == 1
    assert result["many_error_others"].isel(seed=0).notnull().all()
    weights = result["edges_weight"] - result["truth_weight"]
    assert np.allclose(result["edges_less_truth"], weights, atol=1e-5)
    own = result.isel(stage=slice(1, None))
    for name in ("stage_roughness", "roughness_held", "roughness_kept"):
        assert (own[name] > 0).all()


def test_pictures_run_from_edge_to_edge(result):
    assert result["shown"].values[[0, -1]].tolist() == pytest.approx([153, 207], abs=9)
    for edge in (0, -1):
        assert np.array_equal(result["blend_image"][edge], result["truth_image"][edge])
    assert not np.array_equal(result["blend_image"][4], result["truth_image"][4])
    assert result["output_image"].dtype == np.uint8


def test_figure_and_caption_are_drawn_from_the_data_alone(result, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    figure = rotation_figure(result)
    figure.savefig(tmp_path / "rotation.png")
    assert (tmp_path / "rotation.png").stat().st_size > 20_000
    titles = [ax.get_title() for part in figure.subfigs for ax in part.axes]
    assert {"(a) one digit", "(e) 2 digits, a gap for one"} <= set(titles)
    assert "layer0\ngap" in "|".join(titles)
    text = rotation_caption(result)
    assert "UMAP is not installed" in text
    assert f"{float(result['ood_over_blank'].mean()):.2g} in the gap" in text
    without = result.drop_vars([name for name in result.variables if str(name).startswith("many")])
    assert "(e)" not in rotation_caption(without)
    assert len(rotation_figure(without).subfigs[0].axes) == 1
    matplotlib.pyplot.close("all")
