"""Is factorization kept through the forward pass what composing needs? (§5)

Judged on all networks of the marker study that learnt and were not trained on the whole grid: those have seen what
counts as held out. That composing *needs* factorization means that networks that compose have more of it than networks
of the same architecture and code that fail; the paper's mean over the forward pass is that over hidden stages and
output. The bound, an AUROC of 0.75, is where a marker tells better than half-way between chance and always.

"Near the top" is above three quarters of the markers that the paper does not name, each scored on architectures that it
was not chosen on. Signs of F and dv are the claim's own: composing networks have more of F, and less spread and
roughness of log10 dv; other markers have the sign that is chosen on other architectures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from math import isfinite

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import COLORS, styled
from recombine.papers.forced_rendering import markers_scoring as scoring
from recombine.papers.forced_rendering.markers import (
    COMPOSING,
    FACTORIZATION,
    FALL,
    MARKERS,
    MEAN,
    NAMED,
    OUTPUT,
    SPREAD,
    predicted_sign,
)
from recombine.papers.forced_rendering.markers_ranking import MODEL_MARKERS, Ranked, model, ranking
from recombine.papers.forced_rendering.samples import trained
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import below, effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.intervals import Estimate, Interval

TELLING = 0.25
"""AUROC over one half from which on a marker counts as telling."""
TOP = 0.25
"""Share of the rivals that may be more telling than one near the top."""


def _of_networks(networks: xarray.Dataset, estimated: Callable[[scoring.Table], Estimate]) -> Sample:
    """A number of all networks that learnt together."""
    numbers = np.arange(networks.sizes["network"], dtype=float)
    was_trained = np.asarray(trained(networks).values, dtype=bool)
    return Sample(
        numbers,
        scoring.counted(networks),
        was_trained,
        lambda rows: estimated(scoring.table_of(networks, rows.astype(int))),
    )


def telling(networks: xarray.Dataset, marker: str, position: str, sign: float = 1.0) -> Sample:
    """AUROC of a marker at a position less a half, composing networks having the larger (or smaller) values."""

    def estimated(table: scoring.Table) -> Estimate:
        aurocs = (scoring.aurocs(table, count)[:, :, 0, 0] for count in (0, scoring.RESAMPLES))
        value, draws = (sign * (scoring.mean(own, 1) - 0.5) for own in aurocs)
        return scoring.resampled(value[0], draws, table)

    return _of_networks(networks.sel(marker=[marker], position=[position]), estimated)


def ranks(networks: xarray.Dataset, cases: Mapping[str, str], *, free: bool = False) -> dict[str, Sample]:
    """By case, the share of the markers that the paper does not name, or of those free of targets, that tell more."""
    names, places = ([str(name) for name in networks[dim].values] for dim in ("marker", "position"))
    rivals = [
        k
        for k, name in enumerate(names)
        if MARKERS[name].family not in NAMED and not (free and MARKERS[name].needs_targets)
    ]

    @cache  # all ranks are from the same resamples
    def left_out() -> list[np.ndarray]:
        table = scoring.table_of(networks)
        signs = np.array([[predicted_sign(name, place) for place in places] for name in names])
        return [scoring.left_out(scoring.aurocs(table, count), signs) for count in (0, scoring.RESAMPLES)]

    def rank(marker: str, table: scoring.Table) -> Estimate:
        chosen = [*rivals, names.index(marker)]
        value, draws = (scoring.more_telling(part[:, chosen], len(rivals)) for part in left_out())
        return scoring.resampled(value[0], draws, table)

    return {case: _of_networks(networks, partial(rank, marker)) for case, marker in cases.items()}


def factorization_alternatives(data: Data) -> dict[str, Sample]:
    """F elsewhere and otherwise, its fall, pairs across codes, and with networks that were trained on everything."""
    networks = scoring.never_shown(data["markers"])
    across = networks.assign_coords(code=("network", np.full(networks.sizes["network"], "any")))
    return {
        "F at the output": telling(networks, FACTORIZATION, OUTPUT),
        "fall of F, first hidden stage to output (smaller)": telling(networks, FACTORIZATION, FALL, -1.0),
        "F over held-out points": telling(networks, "factorization_held", MEAN),
        "F by finite differences": telling(networks, "factorization_differences", MEAN),
        "pairs across codes": telling(across, FACTORIZATION, MEAN),
        "with networks trained on the whole grid": telling(data["markers"], FACTORIZATION, MEAN),
    }


JUDGED = {"factorization F": FACTORIZATION, "spread of log10 dv": SPREAD}
"""F and dv, each at the position chosen on other architectures and with the paper's sign."""


def top_alternatives(data: Data) -> dict[str, Sample]:
    """Other forms of both, and F among markers that need no held-out targets."""
    networks = scoring.never_shown(data["markers"])
    cases = {
        "F over held-out points": "factorization_held",
        "spread of log10 dv, held-out points": "spread_held",
        "spread of log10 dv, held-out less kept": "spread_excess",
        "roughness of log10 dv": "roughness",
    }
    return {
        **ranks(networks, cases),
        **ranks(networks, {"F among markers that need no held-out targets": FACTORIZATION}, free=True),
    }


CLAIMS = (
    Claim(
        "C21",
        "Factorization kept through the forward pass is what composing needs; F and dv are near the top of what tells "
        "composing from failing networks",
        "§5",
        (
            Statement(
                effect("AUROC less a half, composing against failing networks, mean over architectures", TELLING),
                lambda data: {f"F, {MEAN}": telling(scoring.never_shown(data["markers"]), FACTORIZATION, MEAN)},
                factorization_alternatives,
            ),
            Statement(
                below("share of markers of other kinds that are more telling (AUROC, architectures left out)", TOP),
                lambda data: ranks(scoring.never_shown(data["markers"]), JUDGED),
                top_alternatives,
            ),
        ),
        ("markers",),
    ),
)


# -- figure ----------------------------------------------------------------------------------------------------------


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
    unseen = scoring.never_shown(result)
    networks = unseen.isel(network=np.flatnonzero(scoring.counted(unseen)))
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
    ranked, table = ranking(result), scoring.table_of(scoring.never_shown(result))
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
