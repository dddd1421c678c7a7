"""Does composition need factorization to be preserved through the forward pass? (§5)

We take "composition needs factorization" to mean that composing networks have a larger F than failing networks of the
same architecture and code. "Near the top" means better than three quarters of the markers (metrics used to predict
composition) not named in the paper. See docs/reproduction.md (C21) for details.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import COLORS, styled
from recombine.papers.forced_rendering import markers_ranking as scoring
from recombine.papers.forced_rendering.markers import FACTORIZATION, FALL, MARKERS, MEAN, NAMED, predicted_sign
from recombine.papers.forced_rendering.palette import ARCHITECTURES, architecture
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, fit
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import below, effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.intervals import Estimate, Interval

TOP = 0.25
"""Largest share of rivals that may beat a marker near the top."""


def _of_networks(networks: xarray.Dataset, estimated: Callable[[scoring.Table], Estimate]) -> Sample:
    """Return a sample whose values are indices of networks, from which `estimated` computes one joint estimate."""
    return Sample(
        np.arange(networks.sizes["network"], dtype=float),
        (fit(networks),),
        lambda rows: estimated(scoring.table_of(networks, rows.astype(int))),
    )


def auroc_less_half(networks: xarray.Dataset, marker: str, position: str, sign: float = 1.0) -> Sample:
    """Return a marker's AUROC at a position, minus 0.5; use `sign=-1` if smaller values predict composition."""

    def estimated(table: scoring.Table) -> Estimate:
        aurocs = (scoring.aurocs(table, count)[:, :, 0, 0] for count in (0, scoring.RESAMPLES))
        value, draws = (sign * (scoring.mean(own, 1) - 0.5) for own in aurocs)
        return scoring.resampled(value[0], draws, table)

    return _of_networks(networks.sel(marker=[marker], position=[position]), estimated)


def ranks(
    networks: xarray.Dataset, cases: Mapping[str, str], free: Mapping[str, str] | None = None
) -> dict[str, Sample]:
    """Return the share of rivals that beat each case's marker; in `free` cases, no rival needs held-out targets."""
    names, places = ([str(name) for name in networks[dim].values] for dim in ("marker", "position"))
    rivals = [k for k, name in enumerate(names) if MARKERS[name].family not in NAMED]
    free_rivals = [k for k in rivals if not MARKERS[names[k]].needs_targets]

    signs = np.array([[predicted_sign(name, place) for place in places] for name in names])
    every = scoring.table_of(networks)  # all ranks use the same resamples
    left_out = [scoring.left_out(scoring.aurocs(every, count), signs) for count in (0, scoring.RESAMPLES)]

    def rank(marker: str, others: list[int], table: scoring.Table) -> Estimate:
        chosen = [*others, names.index(marker)]
        value, draws = (scoring.share_above(part[:, chosen], len(others)) for part in left_out)
        return scoring.resampled(value[0], draws, table)

    parts = ((cases, rivals), (free or {}, free_rivals))
    return {
        case: _of_networks(networks, partial(rank, marker, others))
        for part, others in parts for case, marker in part.items()
    }  # fmt: skip


def _factorization_alternatives(data: Data) -> dict[str, Sample]:
    """Return AUROCs of F at other positions, of variants of F, across codes, and including whole-grid networks."""
    networks = scoring.never_shown(data["markers"])
    across = networks.assign_coords(code=("network", np.full(networks.sizes["network"], "any")))
    return {
        "F at the output": auroc_less_half(networks, FACTORIZATION, "output"),
        "fall of F, first hidden stage to output (smaller)": auroc_less_half(networks, FACTORIZATION, FALL, -1.0),
        "F over held-out points": auroc_less_half(networks, "factorization_held", MEAN),
        "F by finite differences": auroc_less_half(networks, "factorization_differences", MEAN),
        "pairs across codes": auroc_less_half(across, FACTORIZATION, MEAN),
        "with networks trained on the whole grid": auroc_less_half(data["markers"], FACTORIZATION, MEAN),
    }


def _top_alternatives(data: Data) -> dict[str, Sample]:
    """Return the ranks of variants of F and dv, and of F among markers that do not need held-out targets."""
    networks = scoring.never_shown(data["markers"])
    cases = {
        "F over held-out points": "factorization_held",
        "spread of log10 dv, held-out points": "spread_held",
        "spread of log10 dv, held-out less kept": "spread_excess",
        "roughness of log10 dv": "roughness",
    }
    return ranks(networks, cases, free={"F among markers that need no held-out targets": FACTORIZATION})


CLAIMS = (
    Claim(
        "C21",
        "Factorization kept through the forward pass is what composing needs; F and dv are near the top of what tells "
        "composing from failing networks",
        "§5",
        (
            Statement(
                effect("AUROC less a half, composing against failing networks, mean over architectures", 0.25),
                lambda data: {f"F, {MEAN}": auroc_less_half(scoring.never_shown(data["markers"]), FACTORIZATION, MEAN)},
                _factorization_alternatives,
            ),
            Statement(
                below("share of markers of other kinds that are more telling (AUROC, architectures left out)", TOP),
                lambda data: ranks(
                    scoring.never_shown(data["markers"]),
                    {"factorization F": FACTORIZATION, "spread of log10 dv": "spread"},
                ),
                _top_alternatives,
            ),
        ),
        ("markers",),
    ),
)

MODEL = f"logistic model of the best {scoring.MODEL_MARKERS}"


def draw(result: xarray.Dataset) -> Figure:
    """Plot the AUROC of all markers on left-out architectures, and the two best against OOD accuracy."""
    ranked, combined = scoring.ranking(result), scoring.model(result)
    with styled():
        figure = pyplot.figure(figsize=(11.2, 6.4), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
        _ranks(figure.add_subplot(grid[:, 0]), ranked, combined)
        for number, marker in enumerate(ranked[:2]):
            _against_accuracy(figure.add_subplot(grid[number, 1]), result, marker, legend=number == 0)
    return figure


def _ranks(ax: Axes, ranked: list[scoring.Ranked], combined: Interval) -> None:
    """Plot one row per marker, best on top; open dots denote markers that need held-out targets."""
    rows = []
    for marker in ranked:
        title = f"{marker.title}{', fall' if marker.position == FALL else ''} {'↑' if marker.higher else '↓'}"
        rows.append((title, marker.auroc, marker.needs_targets))
    if isfinite(combined.value):
        rows.insert(0, (MODEL, combined, any(marker.needs_targets for marker in ranked[: scoring.MODEL_MARKERS])))
    for height, (title, auroc, needs_targets) in enumerate(rows):
        color = COLORS[1] if title == MODEL else COLORS[0]
        if isfinite(auroc.low):
            ax.plot([auroc.low, auroc.high], [height, height], color=color, linewidth=1.2)
        ax.plot(auroc.value, height, "o", color=color, markerfacecolor="white" if needs_targets else color)
    ax.axvline(0.5, color="0.7", linewidth=0.8, zorder=0)
    ax.set_yticks(range(len(rows)), [title for title, _, _ in rows], fontsize=8)
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1.02))
    ax.set_xlabel("AUROC, composing against failing,\non architectures that it was not chosen on")
    for fill, label in ((COLORS[0], "needs no held-out targets"), ("white", "needs held-out targets")):
        ax.plot([], [], "o", color=COLORS[0], markerfacecolor=fill, label=label)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)


def _against_accuracy(ax: Axes, result: xarray.Dataset, marker: scoring.Ranked, *, legend: bool) -> None:
    unseen = scoring.never_shown(result)
    networks = unseen.isel(network=np.flatnonzero(scoring.counted(unseen)))
    if marker.position:
        values = networks["value"].sel(marker=marker.name, position=marker.position).values
        for decoder in dict.fromkeys(str(name) for name in networks["decoder"].values):
            own = networks["decoder"].values == decoder
            ax.plot(
                values[own], networks["ood_accuracy"].values[own], "o", markersize=3, label=decoder,
                color=ARCHITECTURES[architecture(decoder)],
            )  # fmt: skip
        if legend:
            ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.axhline(COMPOSING_ACCURACY, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xlabel(f"{marker.title}\n({marker.position or 'no value'})", fontsize=8)
    ax.set_ylabel("OOD accuracy")


def caption(result: xarray.Dataset) -> str:
    table = scoring.table_of(scoring.never_shown(result))
    return (
        "Left: how well each metric separates composing networks from failing ones of the same architecture and code, "
        "with its position and sign chosen on the other architectures, and 95 % intervals from resampling conditions "
        "(↑: composing networks have larger values, or a larger fall from the first hidden stage to the output); "
        "right: the best two, at the position chosen on all architectures; "
        f"{scoring.described(table)}, of which {int(table.composing.sum())} compose (OOD accuracy of at least "
        f"{100 * COMPOSING_ACCURACY:.0f} %); scored on: {', '.join(table.scored) or 'none'}."
    )


def auroc_table(result: xarray.Dataset) -> list[list[str]]:
    rows = []
    for marker in scoring.ranking(result):
        scores = marker.auroc.value, marker.auroc.low, marker.auroc.high
        sign = "larger" if marker.higher else "smaller"
        rows.append([marker.title, sign, marker.position or "–", *map(cell, scores)])
    return [["metric", "composing networks have", "position", "AUROC", "95 % interval, from", "to"], *rows]


FIGURES = (
    FigureSpec(
        "markers", "Which metric predicts whether a network composes?", ("markers",), draw, caption, auroc_table
    ),
)
