"""Is what the paper gives as the cause peculiar to networks that fail?

Where the paper says why networks fail (probes, factorization, volume, cross-terms, superposition), the same numbers are
measured on networks of the same architecture that do not: composing ones (stripes and 100 bumps; both penalties), ones
trained on the whole grid, the held-out region being only one to look at, and ones that were not trained at all. The
latter are the failing networks' own first weights. CNNs have the bump code and the usual depth; the low-rank decoder
has one-hot codes, which have finite differences only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, ClassVar

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.panels import COLORS, bar_groups, seed_count, styled
from recombine.papers.forced_rendering.depth import factorization_fall, late_cross_terms, probe_fall, spread_excess
from recombine.papers.forced_rendering.penalties import BOTH, NONE, PenaltySettings, penalised_spec
from recombine.papers.forced_rendering.presets import kept_combinations, whole_grid
from recombine.papers.forced_rendering.samples import (
    CONTROLS,
    FAILING,
    INITIAL,
    LOW_RANK_WHOLE,
    PENALISED,
    STRIPE_BUMPS,
    STRIPED,
    UNPENALISED,
    WHOLE,
)
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import StripeSettings
from recombine.papers.forced_rendering.superposition import (
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    SUPERPOSITION_METRICS,
    superposition_scores_of,
)
from recombine.papers.forced_rendering.superposition_claims import superposed
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import (
    TRAINED,
    Batch,
    Measured,
    base_attributes,
    stage_dims,
    stage_profile,
    tabulate,
)
from recombine.reproduction.study import Arm, Labels, Study, Trials, initial_runs
from recombine.store import Run


class Settings(StripeSettings, PenaltySettings):
    """Those of the two studies whose networks it measures."""


class ControlStudy(Study[Settings]):
    """Failing networks beside composing, whole-grid and untrained ones."""

    name: ClassVar[str] = "controls"
    question: ClassVar[str] = "Is what is given as the cause peculiar to networks that fail?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "squared_error", "stage_profile", *SUPERPOSITION_METRICS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        failing, unpenalised = preset.spec(), penalised_spec(preset, NONE)
        return [
            Arm((FAILING,), failing),
            Arm((STRIPED,), preset.striped_spec(min(STRIPE_BUMPS, kept_combinations(failing)))),
            Arm((WHOLE,), whole_grid(failing)),
            Arm((UNPENALISED,), unpenalised),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
            Arm((LOW_RANK_WHOLE,), whole_grid(unpenalised)),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            found = superposition_scores_of(batch)
            return {**batch.scores, **training_fit(batch), **found, **stage_profile(batch, maps=False)}

        result = tabulated_with_untrained(trials, INITIAL, measured, {**SUPERPOSITION_DIMS, **stage_dims()})
        attributes = base_attributes(trials, size=trials.preset.size, depth=trials.preset.depth)
        return result.assign_coords(SUPERPOSITION_COORDS).assign_attrs(attributes)


def tabulated_with_untrained(
    trials: Trials[Any],
    initial: Mapping[str, str],
    measure: Callable[[Batch], Measured],
    inner: Mapping[str, Sequence[str]],
) -> xarray.Dataset:
    """By arm, what is measured; also, by the name of their arm, on the first weights of the networks of other arms."""
    runs: dict[Labels, Sequence[Run]] = dict(trials.items())
    runs |= {(arm,): initial_runs(run.spec for run in trials[source]) for arm, source in initial.items()}
    result = tabulate(Trials(trials.preset, trials.device, runs), ("arm",), measure, inner)
    return result.assign({TRAINED: result[TRAINED].where(~result["arm"].isin(list(initial)), 0.0)})


STUDY = ControlStudy()


# -- figure ----------------------------------------------------------------------------------------------------------


STATISTICS: dict[str, tuple[str, Callable[[xarray.Dataset], xarray.DataArray]]] = {
    "fall of held-out\nprobe R²": ("fall of the held-out probe's R²", probe_fall),
    "fall of factorization": ("fall of factorization", factorization_fall),
    "spread of log10 dv,\nheld-out less kept": ("spread of log10 dv at the output, held-out less kept", spread_excess),
    "superposition of training\nimages, over chance": (
        "variance that training images sharing a factor explain over others",
        superposed,
    ),
    "cross-terms, last two\nstages less others": ("cross-terms, last two stages less the others", late_cross_terms),
}
"""By the title of its panel, what the paper's explanation is judged by, in words and as a number per seed."""
FAMILIES = {failing: "CNN, bump code" if failing == FAILING else "low-rank, one-hot code" for failing in CONTROLS}


def _short(arm: str) -> str:
    """An arm's name as a tick label, without that of its architecture."""
    return arm.removeprefix("low-rank, ").replace("stripes and ", "stripes,\n").replace("both pen", "both\npen")


def controls_figure(result: xarray.Dataset) -> Figure:
    """One row per architecture, one panel per statistic, every network a dot."""
    with styled():
        figure, axes = pyplot.subplots(
            len(CONTROLS), len(STATISTICS), figsize=(11.2, 4.8), layout="constrained", squeeze=False
        )
        for number, (row, (failing, others)) in enumerate(zip(axes, CONTROLS.items(), strict=True)):
            arms = [failing, *others]
            for ax, (title, (_, statistic)) in zip(row, STATISTICS.items(), strict=True):
                bar_groups(ax, arms, {arm: statistic(result.sel(arm=arm)).values for arm in arms}, COLORS)
                ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
                ax.set_xticks(range(len(arms)), [_short(arm) for arm in arms], rotation=35, ha="right", fontsize=7)
                if number == 0:
                    ax.set_title(title, fontsize=9)
            row[0].set_ylabel(FAMILIES[failing])
    return figure


def controls_caption(result: xarray.Dataset) -> str:
    """Means by arm."""
    words = []
    for name, statistic in STATISTICS.values():
        means = {str(arm): statistic(result.sel(arm=arm)).mean().item() for arm in result["arm"].values}
        words.append(f"{name}: " + ", ".join(f"{arm} {mean:.2f}" for arm, mean in means.items() if isfinite(mean)))
    return (
        "Numbers by which the paper explains why networks fail, in networks that fail (first in each panel) and in "
        "others of the same architecture: composing ones, ones trained on the whole grid, and the failing ones before "
        f"training; {seed_count(result['factorization'])}, lines are means. Mean {'; '.join(words)}."
    )


FIGURES = (FigureSpec("controls", "Failing networks and controls", ("controls",), controls_figure, controls_caption),)
