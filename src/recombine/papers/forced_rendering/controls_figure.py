"""What is given as the cause of failing, in failing networks and in others."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.controls import CONTROLS, FAILING
from recombine.papers.forced_rendering.depth_claims import (
    factorization_fall,
    late_cross_terms,
    probe_fall,
    spread_excess,
)
from recombine.papers.forced_rendering.superposition_claims import superposed
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, bar_groups, seed_count, styled

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
