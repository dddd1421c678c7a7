"""Rotated digits: known answers, the blend, and the study from training to figure."""

import math
import sys
import types

import matplotlib
import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.rotation import gap_of
from recombine.papers.forced_rendering.rotation_figure import embeddings
from recombine.papers.forced_rendering.rotation_gap import gap_edges, linear_blend, principal_scores
from recombine.sweep import train
from recombine.tasks.rotation import RotationTask
from recombine.training import evaluate, scores

matplotlib.use("Agg")
CPU = torch.device("cpu")
SMALL = RotationTask(size=14, angles=72)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


# -- the task --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [28, 9])
def test_quarter_turns_are_counter_clockwise_as_seen(size):
    task = RotationTask(size=size, angles=36)
    for quarters in range(4):
        image = task.render(rows([90.0 * quarters]))[0]
        assert torch.allclose(image, torch.rot90(task.upright[0], quarters), atol=1e-12)


def test_code_is_cosine_and_sine_and_comes_back_after_a_turn():
    code = SMALL.codes(rows([0.0], [90.0], [30.0], [390.0]))
    assert torch.allclose(code[:3], rows([1, 0], [0, 1], [math.sqrt(3) / 2, 0.5]))
    assert torch.allclose(code[2], code[3])
    first, second, last = SMALL.codes(SMALL.grid.points)[[0, 1, -1]]
    assert torch.dist(first, second).item() == pytest.approx(torch.dist(first, last).item())


@pytest.mark.parametrize("angles", [8, 50, 360])
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


@pytest.mark.parametrize(("angles", "digits"), [(1000, 1), (100, 10)])
def test_gaps_of_other_widths_have_the_same_middle(angles, digits):
    for width in (10, 40, 90):
        task = RotationTask(size=14, angles=angles, digits=digits, holdout=gap_of(width, angles, digits))
        held = [k for k in range(angles) if abs(360 * k / angles - 180) < width / 2]
        assert torch.nonzero(task.held_out).flatten().tolist() == held
    assert gap_of(40, angles, digits) == RotationTask.gap(angles, digits)


def test_of_several_digits_the_first_alone_has_the_gap():
    task = RotationTask(size=14, angles=36, digits=3, allow_unseen=False)
    assert task.grid.names == ("digit", "angle")
    assert task.shown_digits == (4, 0, 1)
    assert RotationTask(digit=0, digits=10).shown_digits == tuple(range(10))
    held = task.held_out.reshape(3, 36)
    assert torch.nonzero(held).tolist() == [[0, 17], [0, 18], [0, 19]]
    assert torch.allclose(task.render(rows([2.0, 0.0]))[0], RotationTask(size=14, digit=1).upright[0], atol=1e-12)
    assert task.codes(rows([1.0, 90.0]))[0].round(decimals=9).tolist() == [0, 1, 0, 0, 1]


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


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Two seeds of each arm, a few steps long, measured and read back from a file."""
    study, folder = DEFAULT.studies["rotation"], tmp_path_factory.mktemp("rotation")
    small = "rotation_seeds=2 extra_seeds=1 angles=40 digits=2 depth=2 rotation_width=8 rotation_steps=20"
    preset = DEFAULT.preset_named("quick").changed(small.split())
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
    gaps = result["gaps_edges_less_truth"]
    assert (gaps["digits"].values.tolist(), gaps["width"].values.tolist()) == (
        ["one digit", "many digits"],
        [20, 40, 80],
    )
    assert np.array_equal(gaps.sel(digits="one digit", width=40), result["edges_less_truth"])
    assert gaps.notnull().sum("seed").values.tolist() == [[1, 2, 1], [1, 1, 1]]
    own = result.isel(stage=slice(1, None))
    for name in ("stage_roughness", "roughness_held", "roughness_kept"):
        assert (own[name] > 0).all()
