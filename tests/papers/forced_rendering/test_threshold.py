"""The data-threshold study: known curves, known exponents, and a design that ends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray

from recombine.errors import InvalidValue
from recombine.papers import DEFAULT
from recombine.papers.forced_rendering.threshold import design
from recombine.papers.forced_rendering.threshold.design import MOST_STEPS, SPREAD, Settings, bumps_of
from recombine.papers.forced_rendering.threshold.figure import threshold_caption, threshold_figure, threshold_panel
from recombine.papers.forced_rendering.threshold.labels import PROTOCOLS, TARGET
from recombine.papers.forced_rendering.threshold.psychometric import (
    exact_threshold,
    exponent,
    fitted,
    resampled,
    threshold,
)
from recombine.papers.forced_rendering.threshold.study import ThresholdStudy
from recombine.papers.forced_rendering.threshold.study import measured as measured_cell
from recombine.specs import RunSpec
from recombine.store import Run

STUDY = ThresholdStudy()
SIZES = (20, 28, 36)
SMALL = Settings(name="small", threshold_sizes=SIZES, threshold_protocols=1)
FEWER = SMALL.replace(threshold_protocols=5, threshold_first=5, threshold_rest=8)


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
    np.testing.assert_allclose(curve.accuracy(examples)[0], logistic(examples, top, slope, mid), atol=5e-4)


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
        found = ((fitted(examples, accuracy).accuracy(examples)[0] - accuracy) ** 2).sum()
        assert found <= best + 1e-6


def test_a_flat_curve_never_reaches_the_target():
    examples = np.geomspace(10, 1000, 16)
    found = threshold(examples, np.full(16, 0.5), 0.9, np.random.default_rng(0), largest=1000, resamples=50)
    assert found.outcome == "not reached"
    assert np.isnan([found.value, found.low, found.high]).all()
    assert np.isinf(fitted(examples, np.full(16, 0.5)).crossing(0.9)).all()


def test_a_target_that_every_network_reaches_has_no_threshold():
    found = threshold(np.geomspace(10, 1000, 16), np.ones(16), 0.9, np.random.default_rng(0), largest=1000)
    assert found.outcome == "always reached"
    assert np.isnan(found.value)


def test_a_target_at_the_edge_is_unsure():
    examples, generator = np.geomspace(10, 1000, 16), np.random.default_rng(0)
    accuracy = logistic(examples, 0.91, 3.0, 3.0) + 0.07 * (-1.0) ** np.arange(16)
    found = threshold(examples, accuracy, 0.9, generator, largest=1000, resamples=200)
    assert found.outcome == "unsure"
    assert found.unreached > 0.05
    assert np.isnan(found.value)


def test_an_interval_is_open_where_resamples_never_get_there():
    """Four in a hundred resamples level off below the target: they are more than a tail of 2.5 %."""
    examples, generator = np.geomspace(10, 1000, 16), np.random.default_rng(0)
    accuracy = logistic(examples, 0.94, 3.0, 3.0) + 0.06 * (-1.0) ** np.arange(16)
    found = threshold(examples, accuracy, 0.9, generator, largest=1000, resamples=1000)
    assert found.outcome == "fitted"
    assert 0.025 < found.unreached < 0.05
    assert found.high == np.inf
    assert 10 < found.low < found.value


def test_a_threshold_is_not_below_its_floor():
    examples = np.geomspace(56, 400, 16)
    found = threshold(
        examples, logistic(examples, 1.0, 3.0, 3.2), 0.9, np.random.default_rng(0), largest=400, floor=56, resamples=50
    )
    assert (found.outcome, found.value, found.low, found.high) == ("fitted", 56, 56, 56)
    assert (exact_threshold(56.0, 5).draws == 56).all()


def test_intervals_cover():
    generator, covered = np.random.default_rng(1), 0
    known = np.exp(5 + np.log(0.9 / (0.98 - 0.9)) / 2)
    for _ in range(15):
        examples = np.exp(generator.uniform(np.log(known) - 1.5, np.log(known) + 1.0, 32))
        accuracy = np.clip(logistic(examples, 0.98, 2.0, 5.0) + 0.02 * generator.standard_normal(32), 0, 1)
        found = threshold(examples, accuracy, 0.9, generator, largest=1e5, resamples=200)
        covered += found.low <= known <= found.high
    assert covered >= 12


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_exponent_of_a_power(power):
    sizes = np.array([20, 28, 36, 44, 52])
    assert exponent(sizes, 0.1 * sizes**power) == pytest.approx(power)
    assert exponent(sizes, np.stack([sizes**power, 7.0 * sizes**power])) == pytest.approx([power, power])


def test_coverage_of_the_grid_has_exponent_two():
    """Points of another family, 1 − exp(−2n / N²), laid out as the study does: a little off, and so at every N."""
    sizes = np.array([20, 28, 36, 44, 52])
    known = np.log(10) / 2 * sizes**2
    crossings = []
    for size, middle in zip(sizes, known, strict=True):
        around = np.geomspace(middle / SPREAD, middle * SPREAD, 24)
        examples = np.concatenate([np.geomspace(size / 2, 4 * size**2, 8), around])
        crossings.append(fitted(examples, 1 - np.exp(-2 * examples / size**2)).crossing(0.9)[0])
    assert exponent(sizes, crossings) == pytest.approx(2.0, abs=0.02)
    np.testing.assert_allclose(crossings, known, rtol=0.1)


def test_resampling_is_the_same_every_time():
    examples = np.geomspace(10, 1000, 12)
    accuracy = logistic(examples, 1.0, 1.5, 4.0)
    first, second = (resampled(examples, accuracy, 300, np.random.default_rng(3)).crossing(0.9) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(first) == 300


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
        return {"hit": np.array([self.whole])}


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
    monkeypatch.setattr(design, "RESAMPLES", 300)


def test_the_first_protocol_is_the_plainest():
    assert len(set(PROTOCOLS)) == 8
    assert str(PROTOCOLS[0]) == "whole/integer/steps"


def test_the_design_ends_and_is_the_same_every_time():
    runs, rounds = carried_out(SMALL, world(stripes=0.7))
    assert len(rounds) == 3
    assert rounds == carried_out(SMALL, world(stripes=0.7))[1]
    assert STUDY.more(SMALL, dict(reversed(runs.items()))) == []
    assert rounds[0] == STUDY.specs(SMALL)
    assert {arm.spec for arm in STUDY.arms(SMALL)} == set(rounds[0])


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


def test_networks_without_bumps_are_shared_by_protocols():
    first = STUDY.specs(SMALL.replace(threshold_protocols=8))
    alone = [spec for spec in first if spec.task.isolated]
    assert len(alone) == 2 * SMALL.threshold_alone * len(SIZES)  # two budgets
    assert {(spec.task.region, spec.task.centers) for spec in alone} == {("kept", "integer")}


def test_fixed_epochs_are_affordable():
    paper = DEFAULT.presets["paper"]
    _, rounds = carried_out(paper.replace(threshold_protocols=2, threshold_sizes=(44, 52)), world(2.0, stripes=0.7))
    epochs = [spec for part in rounds for spec in part if spec.recipe.epochs]
    steps = [-(-len(spec.task.training_values(0)) // spec.recipe.batch) * spec.recipe.epochs for spec in epochs]
    assert 0.9 * MOST_STEPS < max(steps) <= MOST_STEPS


def test_a_box_that_is_never_reached_gets_no_more_networks():
    runs, _ = carried_out(FEWER, world(2.5))
    kept = [run.spec for run in runs.values() if not run.spec.task.isolated and run.spec.task.region == "kept"]
    assert len(kept) == 5 * len(SIZES)


def test_one_network_with_stripes_below_the_target_asks_for_bumps():
    """Mean 0.915, but the interval reaches below 0.9."""
    values = {0: 0.97, 1: 0.97, 2: 0.97, 3: 0.75}
    few = SMALL.replace(threshold_alone=4)
    runs, rounds = carried_out(few, lambda spec: (values.get(spec.seed, 0.97),) * 2 if spec.task.isolated else (0, 0))
    bumps = [run.spec for run in runs.values() if run.spec.task.isolated and bumps_of(run.spec)]
    assert len(bumps) == len(SIZES) * (4 + 12)
    assert len(rounds) == 3


@pytest.mark.parametrize(
    "change",
    [{"threshold_protocols": 0}, {"threshold_sizes": ()}, {"threshold_protocols": 2, "threshold_epochs": 9000}],
)
def test_mistakes_name_the_field(change):
    with pytest.raises(InvalidValue, match=list(change)[-1]):
        STUDY.specs(SMALL.replace(**change))


def test_networks_that_diverged_are_no_points(few_resamples):
    cell = STUDY.cells(SMALL)[0]
    specs = [cell.spec(50, seed) for seed in range(4)]
    ends = [("done", 0.5), ("diverged", 0.0), ("done", 0.7), ("diverged", 0.0)]
    runs = [Imagined(spec.digest, Path(), spec, a, a, how) for spec, (how, a) in zip(specs, ends, strict=True)]
    points = cell.points(runs)
    assert points.accuracy.tolist() == [0.5, 0.7]
    assert cell.threshold(points, np.random.default_rng(0)).outcome == "unsure"  # too few for a curve
    assert measured_cell(cell, runs, 6, np.random.default_rng(0))["networks"] == 2


# -- thresholds, exponents, verdict ----------------------------------------------------------------------------------


def test_cubic_bumps_and_linear_stripes_support_the_claim(few_resamples):
    result = measured(SMALL, world(3.0))
    here = result.isel(protocol=0)
    known = 0.05 * np.array(SIZES) ** 3
    np.testing.assert_allclose(here["threshold"].sel(family="bumps"), known, rtol=0.03)
    np.testing.assert_array_equal(here["threshold"].sel(family="stripes"), 2 * np.array(SIZES))
    assert (here["outcome"].sel(family="stripes") == "exact").all()
    assert float(here["exponent_low"].sel(family="bumps")) < 3 < float(here["exponent_high"].sel(family="bumps"))
    (judgement,) = STUDY.judge(result)
    (case,) = judgement.cases
    assert judgement.verdict == "supported"
    assert case.absent == {}
    assert case.evidence["exponent_bumps"].seeds == 32
    stripes = case.evidence["exponent_stripes"]
    assert (stripes.mean, stripes.low, stripes.high, stripes.seeds) == (1, 1, 1, SMALL.threshold_alone)


def test_square_bumps_do_not(few_resamples):
    (judgement,) = STUDY.judge(measured(SMALL, world(2.0)))
    assert judgement.verdict == "not supported"


def test_stripes_that_need_bumps_have_a_fitted_threshold(few_resamples):
    stripes = measured(SMALL, world(stripes=0.7)).isel(protocol=0).sel(family="stripes")
    assert (stripes["outcome"] == "fitted").all()
    known = np.array(SIZES) * (2 + np.log(3))
    np.testing.assert_allclose(stripes["threshold"], known, rtol=0.1)
    assert float(stripes["exponent"]) == pytest.approx(1.0, abs=0.1)
    assert int(stripes["networks"].min()) == SMALL.threshold_alone + 4 + 12


def test_intervals_are_widened_for_the_number_of_protocols(few_resamples):
    result = measured(FEWER, world(2.5))
    (judgement,) = STUDY.judge(result)
    assert judgement.confidence == pytest.approx(1 - 0.05 / 5)
    first = judgement.cases[0].evidence["exponent_bumps"]
    here = result.isel(protocol=0).sel(family="bumps")
    assert first.low < float(here["exponent_low"])
    assert first.high > float(here["exponent_high"])
    last = judgement.cases[-1]
    assert (last.name, last.outcome) == ("kept/integer/steps", "open")
    assert last.outcomes["exponent_stripes > 0.75"] == "holds"
    assert "90 % not reached with the largest set at any N" in last.absent["exponent_bumps"]


def test_two_sizes_decide_nothing(few_resamples):
    (judgement,) = STUDY.judge(measured(SMALL.replace(threshold_sizes=SIZES[:2]), world()))
    assert judgement.verdict == "undecided"
    assert judgement.cases[0].absent["exponent_bumps"] == "fewer than 3 sizes"


def test_a_threshold_out_of_reach_leaves_no_exponent(few_resamples):
    result = measured(SMALL, world(4.0))
    (judgement,) = STUDY.judge(result)
    assert result["exponent"].isel(protocol=0).isnull().sel(family="bumps")
    assert "not reached" in judgement.cases[0].absent["exponent_bumps"]
    assert np.isnan(result["exponent_draws"].isel(protocol=0).sel(family="bumps")).all()


def test_resamples_without_a_threshold_do_not_decide_the_exponent(few_resamples):
    result = measured(SMALL, world(3.0))
    unreached = result["unreached"].copy()
    unreached.loc[{"family": "bumps", "size": 36}] = 0.03
    (judgement,) = STUDY.judge(result.drop_vars("undercut").assign(unreached=unreached))
    (case,) = judgement.cases
    assert case.evidence["exponent_bumps"].high == np.inf
    assert np.isfinite(case.evidence["exponent_bumps"].low)
    assert (case.outcome, judgement.verdict) == ("open", "undecided")


# -- figures ---------------------------------------------------------------------------------------------------------


def test_figures_from_a_stored_dataset(few_resamples, tmp_path):
    from matplotlib import pyplot

    measured(FEWER, world(2.5, stripes=0.7)).to_netcdf(tmp_path / "threshold.nc", engine="h5netcdf")
    result = xarray.load_dataset(tmp_path / "threshold.nc", engine="h5netcdf")
    assert len(STUDY.judge(result)[0].cases) == 5
    figure = threshold_figure(result)
    figure.savefig(tmp_path / "threshold.png")
    assert len(figure.axes) == 3
    lone, ax = pyplot.subplots()
    threshold_panel(ax, result)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    lone.savefig(tmp_path / "panel.png")
    caption = threshold_caption(result)
    assert f"{float(result['exponent'][0, 0]):.2f}" in caption
    assert "no exponent under 1 of 5 protocols" in caption
    assert f"{100 * TARGET:.0f} %" in caption
    pyplot.close("all")


def test_figures_without_any_threshold(few_resamples, tmp_path):
    from matplotlib import pyplot

    result = measured(SMALL, lambda spec: (0.1, 0.1))
    threshold_figure(result).savefig(tmp_path / "threshold.png")
    assert "no exponent under 1 of 1 protocols" in threshold_caption(result)
    (judgement,) = STUDY.judge(result)
    assert judgement.verdict == "undecided"
    pyplot.close("all")


def test_from_training_to_figure(few_resamples, store_path, tmp_path):
    from matplotlib import pyplot

    from recombine.sweep import train

    preset = Settings(
        name="tiny", precision="float32", lr=1e-2, threshold_sizes=(5, 6, 7), threshold_width=4, threshold_depth=1,
        threshold_steps=40, threshold_protocols=1, threshold_first=3, threshold_rest=2, threshold_alone=3,
    )  # fmt: skip
    runs: dict[str, Run] = {}
    while more := STUDY.more(preset, runs):
        runs |= {run.key: run for run in train(more, store_path, device="cpu")}
    trials = STUDY.trials(preset, torch.device("cpu"), runs)
    result = STUDY.measure(trials)
    assert {run.key for _, found in trials.items() for run in found} == set(runs)
    assert result["accuracy"].isel(network=slice(3)).notnull().all()
    assert dict(result.sizes)["network"] == trials.seeds
    assert STUDY.judge(result)[0].claim == "C11"
    threshold_figure(result).savefig(tmp_path / "threshold.png")
    assert threshold_caption(result)
    pyplot.close("all")
