"""Which numbers tell composing from failing networks, ranked; and the two best against OOD accuracy."""

from __future__ import annotations

from math import isfinite

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.markers_measuring import COMPOSING, FALL
from recombine.papers.forced_rendering.markers_ranking import MODEL_MARKERS, Ranked, model, ranking
from recombine.papers.forced_rendering.markers_scoring import counted, never_shown, table_of
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.intervals import Interval
from recombine.reproduction.panels import COLORS, styled

SHOWN = 2
"""Markers that are drawn against OOD accuracy."""
MODEL = f"logistic model of the best {MODEL_MARKERS}"


def markers_figure(result: xarray.Dataset) -> Figure:
    """Markers by left-out AUROC, and the two best network by network."""
    ranked, combined = ranking(result), model(result)
    with styled():
        figure = pyplot.figure(figsize=(11.2, 6.4), layout="constrained")
        grid = figure.add_gridspec(SHOWN, 2, width_ratios=(1.5, 1))
        _ranks(figure.add_subplot(grid[:, 0]), ranked, combined)
        for number, marker in enumerate(ranked[:SHOWN]):
            _against_accuracy(figure.add_subplot(grid[number, 1]), result, marker, legend=number == 0)
    return figure


def _ranks(ax: Axes, ranked: list[Ranked], combined: Interval) -> None:
    """A row per marker, the best on top; open marks need held-out targets."""
    rows = []
    for marker in ranked:
        title = f"{marker.title}{', fall' if marker.position == FALL else ''} {'↑' if marker.higher else '↓'}"
        rows.append((title, marker.auroc, marker.needs_targets))
    if isfinite(combined.value):
        rows.insert(0, (MODEL, combined, any(marker.needs_targets for marker in ranked[:MODEL_MARKERS])))
    for height, (title, found, needs_targets) in enumerate(rows):
        color = COLORS[1] if title == MODEL else COLORS[0]
        if isfinite(found.low):
            ax.plot([found.low, found.high], [height, height], color=color, linewidth=1.2)
        ax.plot(found.value, height, "o", color=color, markerfacecolor="white" if needs_targets else color)
    ax.axvline(0.5, color="0.7", linewidth=0.8, zorder=0)
    ax.set_yticks(range(len(rows)), [title for title, _, _ in rows], fontsize=8)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("AUROC, composing against failing,\non architectures that it was not chosen on")
    ax.plot([], [], "o", color=COLORS[0], label="needs no held-out targets")
    ax.plot([], [], "o", color=COLORS[0], markerfacecolor="white", label="needs held-out targets")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)


def _against_accuracy(ax: Axes, result: xarray.Dataset, marker: Ranked, *, legend: bool) -> None:
    unseen = never_shown(result)
    networks = unseen.isel(network=np.flatnonzero(counted(unseen)))
    if marker.position:
        values = networks["value"].sel(marker=marker.name, position=marker.position).values
        decoders = list(dict.fromkeys(str(name) for name in networks["decoder"].values))
        for number, decoder in enumerate(decoders):
            own = networks["decoder"].values == decoder
            color = COLORS[number % len(COLORS)]
            ax.plot(values[own], networks["ood_accuracy"].values[own], "o", markersize=3, color=color, label=decoder)
    ax.axhline(COMPOSING, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xlabel(f"{marker.title}\n({marker.position or 'no value'})", fontsize=8)
    ax.set_ylabel("OOD accuracy")
    if legend and marker.position:
        ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def markers_caption(result: xarray.Dataset) -> str:
    """What is scored on which networks, the best and the worst."""
    ranked, table = ranking(result), table_of(never_shown(result))
    scored = [marker for marker in ranked if isfinite(marker.auroc.value)]
    words = (
        f"{len(table.arm)} networks that learnt and never saw what is held out, in {len(set(table.arm))} conditions; "
        f"{int(table.composing.sum())} of them compose (OOD accuracy of at least {100 * COMPOSING:.0f} %). Left: how "
        "well each number tells them from failing networks of the same architecture and code, with its position and "
        "sign chosen on the other architectures; lines are 95 % intervals from resampling conditions; ↑ composing "
        "networks have more of it (or of its fall, from the first hidden stage to the output), ↓ less. Scored on: "
        f"{', '.join(table.scored) or 'none'}. Right: the two best, where all architectures together choose to look; "
        "the line is where networks count as composing."
    )
    if not scored:
        return (
            f"{words} Fewer than two architectures have composing and failing networks of a code: no number is scored."
        )
    best = ", ".join(f"{marker.title} {marker.auroc.value:.2f}" for marker in scored[:3])
    return f"{words} Best: {best}. Last: {scored[-1].title} {scored[-1].auroc.value:.2f}."


FIGURES = (
    FigureSpec("markers", "Which number tells whether a network composes?", ("markers",), markers_figure,
               markers_caption),
)  # fmt: skip
