"""The data-threshold study: known curves, known exponents, and a design that ends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering import threshold as threshold_study
from recombine.papers.forced_rendering import threshold_design
from recombine.papers.forced_rendering.threshold import (
    LOCAL,
    ThresholdStudy,
    estimated_exponent,
    slopes,
    tolerance_scores,
    training_scores,
)
from recombine.papers.forced_rendering.threshold import measured as measured_cell
from recombine.papers.forced_rendering.threshold_curves import fitted, threshold
from recombine.papers.forced_rendering.threshold_design import (
    EPOCHS,
    KEPT,
    PRIMARY,
    SPREAD,
    Settings,
    bumps_of,
    network_spec,
)
from recombine.reproduction.study import Trials
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.sweep import train
from recombine.tasks import BumpTask

STUDY = ThresholdStudy()
SIZES = (20, 28, 36)
SMALL = Settings(name="small", first_seed=0, threshold_sizes=SIZES, threshold_protocols=1)
FEWER = SMALL.replace(threshold_protocols=5, threshold_first=5, threshold_rest=8)
CPU = torch.device("cpu")
LEARNT = {"training_over_blank": 0.01, "training_accuracy": 1.0}
NOT_LEARNT = {"training_over_blank": 0.9, "training_accuracy": 0.0}


def logistic(examples, top, slope, mid):
    return top / (1 + np.exp(-slope * (np.log(examples) - mid)))


# -- curves --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("top", "slope", "mid"), [(1.0, 2.0, 5.0), (0.95, 1.1, 6.0), (0.97, 8.0, 4.0)])
def test_points_on_a_curve_give_it_back(top, slope, mid):
    examples = np.geomspace(10, 5000, 24)
    curve = fitted(examples, logistic(examples, top, slope, mid))
    assert [curve.top[0], curve.slope[0], curve.mid[0]] == pytest.approx([top, slope, mid], rel=3e-3)
    known = np.exp(mid + np.log(0.9 / (top - 0.9)) / slope)
    assert curve.crossing(0.9)[0] == pytest.approx(known, rel=2e-3)


def test_the_search_finds_what_a_descent_finds():
    from scipy.optimize import least_squares

    generator = np.random.default_rng(0)
    for _ in range(5):
        examples = np.exp(generator.uniform(3, 8, 32))
        accuracy = logistic(examples, 0.97, generator.uniform(0.8, 4), generator.uniform(4, 6))
        accuracy = np.clip(accuracy + 0.03 * generator.standard_normal(32), 0, 1)

        def misfit(p, examples=examples, accuracy=accuracy):
            return logistic(examples, p[0], p[1], p[2]) - accuracy

        bounds = ([1e-6, 0.3, 0.0], [1.0, 100.0, 11.0])
        descents = [least_squares(misfit, [0.95, slope, mid], bounds=bounds) for slope in (1, 3) for mid in (4, 6)]
        best = min(2 * descent.cost for descent in descents)
        curve = fitted(examples, accuracy)
        found = (misfit([curve.top[0], curve.slope[0], curve.mid[0]]) ** 2).sum()
        assert found <= best + 1e-6


def test_a_flat_curve_never_reaches_the_target():
    examples = np.geomspace(10, 1000, 16)
    found = threshold(examples, np.full(16, 0.5), 0.9, np.random.default_rng(0), largest=1000, resamples=50)
    assert found.outcome == "not reached"
    assert np.isnan([found.value, found.low, found.high]).all()
    assert np.isinf(fitted(examples, np.full(16, 0.5)).crossing(0.9)).all()


def test_an_interval_is_open_where_resamples_never_get_there():
    """Four in a hundred resamples level off below the target: they are more than a tail of 2.5 %."""
    examples, generator = np.geomspace(10, 1000, 16), np.random.default_rng(0)
    accuracy = logistic(examples, 0.94, 3.0, 3.0) + 0.06 * (-1.0) ** np.arange(16)
    found = threshold(examples, accuracy, 0.9, generator, largest=1000, resamples=1000)
    assert found.outcome == "fitted"
    assert 0.025 < found.unreached < 0.05
    assert found.high == np.inf
    assert 10 < found.low < found.value


def test_intervals_cover():
    generator, covered = np.random.default_rng(1), 0
    known = np.exp(5 + np.log(0.9 / (0.98 - 0.9)) / 2)
    for _ in range(10):
        examples = np.exp(generator.uniform(np.log(known) - 1.5, np.log(known) + 1.0, 32))
        accuracy = np.clip(logistic(examples, 0.98, 2.0, 5.0) + 0.02 * generator.standard_normal(32), 0, 1)
        found = threshold(examples, accuracy, 0.9, generator, largest=1e5, resamples=200)
        covered += found.low <= known <= found.high
    assert covered >= 8


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_exponent_of_a_power(power):
    sizes = np.array([20, 28, 36, 44, 52])
    assert slopes(sizes, np.stack([sizes**power, 7.0 * sizes**power]))["exponent"] == pytest.approx([power, power])


def test_a_parabola_tells_curved_growth_from_a_power():
    sizes = np.array([20, 28, 36, 44, 52])
    _, local, curvature = slopes(sizes, 0.1 * sizes**3.0).values()
    assert (local, curvature) == (pytest.approx(3), pytest.approx(0, abs=1e-9))
    _, local, curvature = slopes(sizes, np.exp(np.log(sizes) ** 2)).values()
    assert (local, curvature) == (pytest.approx(2 * np.log(52)), pytest.approx(2))


@pytest.mark.parametrize(
    ("thresholds", "slope"),
    [
        ((1, 2, np.inf), np.inf), ((np.inf, 2, 3), -np.inf), ((0, 2, 3), np.inf), ((1, 2, 0), -np.inf),
        ((1, np.inf, 3), np.inf), ((np.inf, 2, np.inf), np.nan),  # 28 lies above the middle of the logarithms
    ],
)  # fmt: skip
def test_thresholds_out_of_reach_make_slopes_infinite(thresholds, slope):
    assert slopes(SIZES, thresholds)["exponent"] == pytest.approx(slope, nan_ok=True)


def ends(cells, name="exponent", confidence=0.95):
    interval = estimated_exponent(cells, name).interval(confidence)
    return interval.low, interval.high


def test_undefined_slopes_widen_both_ends():
    cells = xarray.Dataset(
        {"exponent": 2.0, "exponent_draws": ("resample", [2.0] * 96 + [np.nan] * 4), "networks": ("size", [30, 20])}
    )
    assert ends(cells, confidence=0.95) == (-np.inf, np.inf)
    assert ends(cells, confidence=0.90) == (2, 2)
    assert estimated_exponent(cells).networks == 20
    assert ends(cells.assign(exponent=np.nan)) == (-np.inf, np.inf)


def test_coverage_of_the_grid_has_exponent_two():
    """Points of another family, 1 − exp(−2n / N²), laid out as the study does: a little off, and so at every N."""
    sizes = np.array([20, 28, 36, 44, 52])
    known = np.log(10) / 2 * sizes**2
    crossings = []
    for size, middle in zip(sizes, known, strict=True):
        around = np.geomspace(middle / SPREAD, middle * SPREAD, 24)
        examples = np.concatenate([np.geomspace(size / 2, 4 * size**2, 8), around])
        crossings.append(fitted(examples, 1 - np.exp(-2 * examples / size**2)).crossing(0.9)[0])
    assert slopes(sizes, crossings)["exponent"] == pytest.approx(2.0, abs=0.02)
    np.testing.assert_allclose(crossings, known, rtol=0.1)


# -- the design, with imagined networks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imagined(Run):
    """A run whose accuracies are given."""

    given: RunSpec
    whole: float
    held: float
    status: str = "done"  # type: ignore[misc]

    @property
    def spec(self) -> RunSpec:  # type: ignore[override]
        return self.given

    @property
    def scores(self) -> dict[str, float]:
        return {"ood_accuracy": self.held}

    def arrays(self) -> dict[str, np.ndarray]:
        """Half of the grid is held out, and the mean of both halves is the accuracy over the whole."""
        hit, error = np.array([2 * self.whole - self.held, self.held]), np.array([0.02, 0.5])
        return {"hit": hit, "held_out": np.array([False, True]), "error": error, "blank": np.ones(2)}


World = Callable[[RunSpec], tuple[float, float]]


def world(power: float = 3.0, *, stripes: float = 0.99, kept: float = 0.3, noise: float = 0.01) -> World:
    """Accuracies with bumps that cross 90 % at 0.05 N^power; with stripes alone; and in the box with kept bumps."""

    def accuracies(spec: RunSpec) -> tuple[float, float]:
        task, bumps = spec.task, bumps_of(spec)
        size = task.image_shape[0]
        wobble = noise * np.random.default_rng([spec.seed, bumps, size]).standard_normal()
        if task.isolated:
            reached = 1 - (1 - stripes) * np.exp(-bumps / size)
        else:
            middle = np.log(0.05 * size**power) - np.log(0.9 / 0.1) / 2
            reached = float(logistic(bumps, 1.0, 2.0, middle))
        held = reached if task.isolated or task.region == "whole" else kept * reached
        return float(np.clip(reached + wobble, 0, 1)), float(np.clip(held + wobble, 0, 1))

    return accuracies


def carried_out(preset: Settings, accuracies: World) -> tuple[dict[str, Run], list[list[RunSpec]]]:
    """All runs of the design, and its rounds."""
    runs: dict[str, Run] = {}
    rounds: list[list[RunSpec]] = []
    while more := STUDY.more(preset, runs):
        assert len(rounds) < 3
        assert not {spec.digest for spec in more} & set(runs)
        assert len({spec.digest for spec in more}) == len(more)
        rounds.append(more)
        runs |= {spec.digest: Imagined(spec.digest, Path("nowhere"), spec, *accuracies(spec)) for spec in more}
    return runs, rounds


def measured(preset: Settings, accuracies: World) -> xarray.Dataset:
    runs, _ = carried_out(preset, accuracies)
    return STUDY.measure(STUDY.trials(preset, torch.device("cpu"), runs))


@pytest.fixture
def few_resamples(monkeypatch):
    """Imagined networks have learnt what they were trained on, but for those that diverged."""
    monkeypatch.setattr(threshold_design, "RESAMPLES", 150)
    monkeypatch.setattr(threshold_study, "training_scores", lambda run, device: LEARNT)
    scores = {"exact_accuracy": 0.5, "error_score": 0.95}
    monkeypatch.setattr(threshold_study, "tolerance_scores", lambda cell, run, device: scores)


def test_the_design_ends_and_is_the_same_every_time():
    few = FEWER.replace(threshold_protocols=1)
    runs, rounds = carried_out(few, world(stripes=0.7))
    assert len(rounds) == 3
    assert rounds == carried_out(few, world(stripes=0.7))[1]
    assert STUDY.more(few, dict(reversed(runs.items()))) == []
    assert rounds[0] == STUDY.specs(few)
    assert {arm.spec for arm in STUDY.arms(few)} == set(rounds[0])


def test_a_threshold_rests_on_as_many_seeds_as_networks():
    runs, rounds = carried_out(SMALL, world())
    for size in SIZES:
        bumps = [run.spec for run in runs.values() if not run.spec.task.isolated and run.spec.task.size == size]
        assert sorted(spec.seed for spec in bumps) == list(range(32))
        counts = {spec.seed: bumps_of(spec) for spec in bumps}
        assert counts[0] == size // 2
        assert counts[7] == 4 * size**2
        assert len(set(counts.values())) > 28
        near = [counts[seed] / (0.05 * size**3) for seed in range(8, 32)]
        assert 0.9 / SPREAD < min(near) < 0.6
        assert 1.5 < max(near) < 1.1 * SPREAD
    assert len(rounds) == 2


def test_a_target_that_is_never_reached_gets_no_more_networks():
    runs, _ = carried_out(SMALL, lambda spec: (0.5, 0.5))
    bumps = [run.spec for run in runs.values() if not run.spec.task.isolated]
    assert len(bumps) == SMALL.threshold_first * len(SIZES)


def test_bumps_outside_the_hold_out_are_scored_there_and_stripes_inside_it():
    cells = {cell.labels: cell for cell in STUDY.cells(FEWER.replace(threshold_sizes=(20,)))}
    run = Imagined("", Path(), RunSpec(), whole=0.7, held=0.4)
    found = {labels[:2]: cell.accuracy(run) for labels, cell in cells.items() if labels[0] in (PRIMARY, KEPT)}
    known = {(PRIMARY, "bumps"): 0.7, (PRIMARY, "stripes"): 0.7, (KEPT, "bumps"): 1.0, (KEPT, "stripes"): 0.4}
    assert found == pytest.approx(known)


def test_with_fixed_epochs_the_papers_network_sees_bumps_alone_and_half_as_many_are_trained():
    runs, _ = carried_out(FEWER, world(2.0))
    trained = {cell.labels[:2]: len(cell.planned(runs)) for cell in STUDY.cells(FEWER) if cell.size == SIZES[0]}
    for protocol in EPOCHS:
        assert trained[protocol, "stripes"] == 0
        assert trained[protocol, "bumps"] == 5 + 4 < trained[PRIMARY, "bumps"] == 5 + 8


def test_networks_that_diverged_are_no_points(few_resamples):
    cell = STUDY.cells(SMALL)[0]
    specs = [network_spec(cell, 50, seed) for seed in range(4)]
    ends = [("done", 0.5), ("diverged", 0.0), ("done", 0.7), ("diverged", 0.0)]
    runs = [Imagined(spec.digest, Path(), spec, a, a, how) for spec, (how, a) in zip(specs, ends, strict=True)]
    points = cell.points(runs)
    assert points.accuracy.tolist() == [0.5, 0.7]
    assert cell.threshold(points, np.random.default_rng(0), CPU).outcome == "too few networks"
    scores = {run.key: LEARNT for run in runs if run.status == "done"}
    trials = Trials(SMALL, CPU, {cell.labels: runs, ("a larger cell",): [*runs, *runs[:2]]})
    row = measured_cell(cell, trials, scores, np.random.default_rng(0))
    assert (row["networks"], row["trained"]) == (2, 4)
    np.testing.assert_array_equal(row["learnt"], [1, 0, 1, 0, np.nan, np.nan])


def test_networks_that_did_not_learn_are_no_points(few_resamples, monkeypatch):
    """One network in four is made to draw nothing of what it was trained on, and to be right nowhere."""
    spoilt = lambda spec: spec.seed % 4 == 0 and not spec.task.isolated  # noqa: E731
    honest = world(3.0)
    scores = lambda run, device: NOT_LEARNT if spoilt(run.spec) else LEARNT  # noqa: E731
    monkeypatch.setattr(threshold_study, "training_scores", scores)
    result = measured(SMALL, lambda spec: (0.0, 0.0) if spoilt(spec) else honest(spec))
    bumps = result.isel(protocol=0).sel(family="bumps")
    assert set(bumps["networks"].values.tolist()) == {24}
    assert set(bumps["trained"].values.tolist()) == {32}
    np.testing.assert_allclose(bumps["threshold"], 0.05 * np.array(SIZES) ** 3, rtol=0.05)


# -- thresholds, exponents, verdict ----------------------------------------------------------------------------------


def test_cubic_bumps_and_linear_stripes_give_exponents(few_resamples):
    result = measured(SMALL, world(3.0))
    here = result.isel(protocol=0)
    known = 0.05 * np.array(SIZES) ** 3
    np.testing.assert_allclose(here["threshold"].sel(family="bumps"), known, rtol=0.03)
    np.testing.assert_array_equal(here["threshold"].sel(family="stripes"), 2 * np.array(SIZES))
    assert (here["outcome"].sel(family="stripes") == "exact").all()
    low, high = ends(here.sel(family="bumps"))
    assert low < 3 < high
    assert ends(here.sel(family="stripes")) == (1, 1)
    local_low, local_high = ends(here.sel(family="bumps"), LOCAL)
    assert local_low < 3 < local_high
    assert local_high - local_low > high - low


def test_a_threshold_out_of_reach_leaves_no_exponent(few_resamples):
    result = measured(SMALL, world(4.0)).isel(protocol=0).sel(family="bumps")
    assert np.isnan(result["exponent"])
    assert "not reached at N = 36" in result["reason"].item()
    assert np.isnan(result["exponent_draws"]).all()


def test_each_tolerance_has_a_threshold_and_an_exponent_of_its_own(few_resamples, monkeypatch):
    """By exact position, networks need as many bumps as combinations; by error, N times a constant."""
    powers = {"exact_accuracy": 2.0, "error_score": 1.0}

    def scores(cell, run, device):
        bumps, size = bumps_of(run.spec), run.spec.task.size
        return {name: float(logistic(bumps, 1.0, 2.0, np.log(9 * size**power) - np.log(9) / 2))
                for name, power in powers.items()}  # fmt: skip

    monkeypatch.setattr(threshold_study, "tolerance_scores", scores)
    sizes = (20, 36, 52)
    result = measured(SMALL.replace(threshold_sizes=sizes, threshold_first=32), world(1.5)).isel(protocol=0)
    # 9 N² is more than the largest training set
    assert result["tolerance_outcome"].sel(measure="exact").values.tolist() == ["not reached"] * 3
    assert "not reached at N = 20" in result["tolerance_reason"].sel(measure="exact").item()
    assert result["tolerance_exponent"].values == pytest.approx([np.nan, 1.5, 1.0], abs=0.1, nan_ok=True)
    np.testing.assert_allclose(result["tolerance_threshold"].sel(measure="MSE"), 9 * np.array(sizes), rtol=0.1)
    assert ends(result.sel(family="bumps", measure="MSE"), "tolerance_exponent") == pytest.approx((1, 1), abs=0.01)
    assert result["tolerance_threshold"].sel(measure="1 px").values == pytest.approx(
        result["threshold"].sel(family="bumps").values
    )


@pytest.mark.parametrize("protocol", [PRIMARY, KEPT])
def test_tolerance_scores_of_a_planted_network(protocol):
    """Half of all bumps are a pixel off; errors are five times as large inside the hold-out."""
    cell = next(cell for cell in STUDY.cells(FEWER) if cell.protocol == protocol)
    task = BumpTask(size=4, region="whole")
    held_out = task.held_out.numpy()

    class Shifted(torch.nn.Module):
        def forward(self, inputs):
            codes = task.codes(task.grid.points).float()
            rows = [int((codes - code).abs().sum(dim=1).argmin()) for code in inputs]
            images = task.render(task.grid.points[rows]).float()
            return torch.stack([image.roll(row % 2, 0) for row, image in zip(rows, images, strict=True)])

    class Planted(Imagined):
        def module(self):
            return Shifted()

        def arrays(self):
            return {"held_out": held_out, "error": np.where(held_out, 0.5, 0.1), "blank": np.ones(16)}

    scored = [k for k in range(16) if protocol == PRIMARY or not held_out[k]]
    known = {
        "exact_accuracy": sum(k % 2 == 0 for k in scored) / len(scored),
        "error_score": 1 - sum(0.5 if held_out[k] else 0.1 for k in scored) / len(scored),
    }
    assert tolerance_scores(cell, Planted("", Path(), RunSpec(task=task), 0.0, 0.0), CPU) == pytest.approx(known)


# -- whether networks learnt -----------------------------------------------------------------------------------------


class Drawing(torch.nn.Module):
    """Draws bumps and stripes a number of times as bright as they are, from a code that is their coordinates."""

    def __init__(self, task, bumps, stripes):
        super().__init__()
        self.task, self.bumps, self.stripes = task, bumps, stripes

    def forward(self, inputs):
        rows = list(self.task.training_values(0))
        codes = self.task.codes(torch.stack(rows)).float()
        values = torch.stack([rows[int((codes - row).abs().sum(dim=1).argmin())] for row in inputs])
        factor = torch.where(values.isnan().any(dim=1), self.stripes, self.bumps)
        return (self.task.render(values) * factor[:, None, None]).float()


@pytest.mark.parametrize(
    ("isolated", "bumps", "stripes", "known"),
    [
        (False, 1.0, 1.0, (0.0, 1.0)),
        (False, 0.5, 1.0, (0.25, 1.0)),  # half as bright, and in place
        (True, 0.5, 1.0, (0.25, 1.0)),  # bumps count by themselves
        (True, 1.0, 0.5, (0.25, 1.0)),
        (False, -1.0, 1.0, (4.0, 0.0)),
    ],
)
def test_training_scores_of_planted_networks(isolated, bumps, stripes, known):
    task = BumpTask(size=9, training="draws:6", isolated=isolated, region="whole")
    spec = RunSpec(task=task, seed=0)

    class Planted(Imagined):
        def module(self):
            return Drawing(task, bumps, stripes)

    scores = training_scores(Planted(spec.digest, Path(), spec, 0.0, 0.0), CPU)
    assert list(scores.values()) == pytest.approx(known, abs=1e-6)


# -- with networks ----------------------------------------------------------------------------------------------------


def test_trained_networks_are_measured(monkeypatch, store_path):
    monkeypatch.setattr(threshold_design, "RESAMPLES", 10)
    preset = Settings(
        name="tiny", precision="float32", lr=1e-2, threshold_sizes=(5, 6, 7), threshold_width=4, threshold_depth=1,
        threshold_steps=8, threshold_protocols=1, threshold_first=3, threshold_rest=2, threshold_alone=3,
    )  # fmt: skip
    runs: dict[str, Run] = {}
    while more := STUDY.more(preset, runs):
        runs |= {run.key: run for run in train(more, store_path, device="cpu")}
    trials = STUDY.trials(preset, torch.device("cpu"), runs)
    result = STUDY.measure(trials)
    assert {run.key for _, found in trials.items() for run in found} == set(runs)
    assert result["accuracy"].isel(network=slice(3)).notnull().all()
    assert dict(result.sizes)["network"] == trials.seeds
    assert result["training_over_blank"].isel(network=slice(3)).notnull().all()
