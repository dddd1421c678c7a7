"""Are the paper's explanations of failure specific to networks that fail?

The quantities used by the paper to explain failure (probes, factorization, volume, cross-terms, superposition) are
also measured in networks of the same architecture that compose, were trained on the whole grid, or are untrained.
CNNs use the bump code and the default depth. The low-rank decoder uses one-hot codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.panels import group_dots, seed_count, styled
from recombine.papers.forced_rendering import samples, superposition
from recombine.papers.forced_rendering.depth import deviation_excess, factorization_fall, late_cross_terms, probe_fall
from recombine.papers.forced_rendering.palette import ARCHITECTURES, architecture
from recombine.papers.forced_rendering.penalties import BOTH, NONE, PenaltySettings, penalised_spec
from recombine.papers.forced_rendering.presets import kept_combinations, whole_grid
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, stage_dims, stage_profile, tabulate
from recombine.reproduction.study import Arm, Labels, Study, Trials, initial_runs
from recombine.store import Run


class Settings(StripeSettings, PenaltySettings):
    """Combined settings of the two studies whose networks are measured here."""


class ControlStudy(Study[Settings]):
    name: ClassVar[str] = "controls"
    question: ClassVar[str] = "Are the paper's explanations of failure specific to networks that fail?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "squared_error", "stage_profile", *superposition.SUPERPOSITION_METRICS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        failing, unpenalised = preset.spec(), penalised_spec(preset, NONE)
        specs = {
            samples.FAILING: failing,
            samples.STRIPED: preset.striped_spec(min(MANY, kept_combinations(failing))),
            samples.WHOLE: whole_grid(failing),
            samples.UNPENALISED: unpenalised,
            samples.PENALISED: penalised_spec(preset, BOTH),
            samples.LOW_RANK_WHOLE: whole_grid(unpenalised),
        }
        return [Arm((name,), spec) for name, spec in specs.items()]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            stages, superposed = stage_profile(batch, maps=False), superposition.superposition_scores_of(batch)
            return {**batch.scores, **training_fit(batch), **superposed, **stages}

        inner = {**superposition.SUPERPOSITION_DIMS, **stage_dims()}
        result = tabulated_with_untrained(trials, samples.INITIAL, measured, inner)
        attributes = base_attributes(trials, size=trials.preset.size, depth=trials.preset.depth)
        return result.assign_coords(superposition.SUPERPOSITION_COORDS).assign_attrs(attributes)


def tabulated_with_untrained(
    trials: Trials[Any],
    initial: Mapping[str, str],
    measure: Callable[[Batch], Mapping[str, Any]],
    inner: Mapping[str, Sequence[str]],
) -> xarray.Dataset:
    """Tabulate measurements by experimental arm; `initial` maps added untrained arms to the arms trained from them."""
    runs: dict[Labels, Sequence[Run]] = dict(trials.items())
    runs |= {(arm,): initial_runs(run.spec for run in trials[source]) for arm, source in initial.items()}
    result = tabulate(Trials(trials.preset, trials.device, runs), ("arm",), measure, inner)
    return result.assign({TRAINED: result[TRAINED].where(~result["arm"].isin(list(initial)), 0.0)})


STUDY = ControlStudy()

STATISTICS: dict[str, tuple[str, samples.PerSeed]] = {
    "fall of held-out\nprobe R²": ("fall of the held-out probe's R²", probe_fall),
    "fall of factorization": ("fall of factorization", factorization_fall),
    "deviation of log10 dv,\nheld-out less kept": (
        "RMS deviation of log10 dv at the output from its mean, held-out less kept",
        deviation_excess,
    ),
    "superposition of training\nimages, over chance": (
        "variance that training images sharing a factor explain over others",
        superposition.superposed,
    ),
    "cross-terms, last two\nstages less others": ("cross-terms, last two stages less the others", late_cross_terms),
}
"""Quantities used by the paper to explain failure: panel title, description and function (one value per seed)."""


def _measured(result: xarray.Dataset) -> dict[str, tuple[str, samples.PerSeed]]:
    """Return the statistics that can be computed; a Dataset of an earlier version may lack some."""
    return {title: own for title, own in STATISTICS.items() if samples.case(title, lambda own=own: own[1](result))}  # type: ignore[misc]


def draw(result: xarray.Dataset) -> Figure:
    """Plot one row per architecture and one panel per statistic, with one dot per network."""
    statistics = _measured(result)
    with styled():
        shape = len(samples.CONTROLS), len(statistics)
        figure, axes = pyplot.subplots(*shape, figsize=(12.4, 4.0), layout="constrained", sharey="row")
        for row, (failing, others) in zip(axes, samples.CONTROLS.items(), strict=True):
            arms = [failing, *others]
            names = [arm.removeprefix("low-rank, ") for arm in arms]
            colors = [ARCHITECTURES[architecture(arm)] for arm in arms]
            for ax, (title, (_, statistic)) in zip(row, statistics.items(), strict=True):
                values = (statistic(result.sel(arm=arm)).values for arm in arms)
                group_dots(ax, dict(zip(names, values, strict=True)), colors)
                ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
                if failing == samples.FAILING:
                    ax.set_title(title, fontsize=9)
            row[0].set_ylabel("CNN, bump code" if failing == samples.FAILING else "low-rank,\none-hot code")
    return figure


def caption(result: xarray.Dataset) -> str:
    return (
        "Quantities with which the paper explains failure, in failing networks (first in each panel) and in others of "
        "the same architecture: composing networks, networks trained on the whole grid, and the failing networks "
        f"before training, {seed_count(result['factorization'])}; lines are medians, arrows are values off the scale."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    statistics = [(words, statistic(result).median("seed")) for words, statistic in _measured(result).values()]
    arms = [str(arm) for arm in result["arm"].values]
    return [["median", *arms], *([words, *(cell(own.sel(arm=arm)) for arm in arms)] for words, own in statistics)]


FIGURES = (FigureSpec("controls", "Failing networks and controls", ("controls",), draw, caption, table),)
