"""How fast, as a picture: ratios to a plain loop, and cost by members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from recombine.reproduction.panels import COLORS, styled


def performance_figure(record: Mapping[str, Any]) -> Figure:
    """Seconds per model by case, and by the number of members where that was measured."""
    rows, counts = record["engine"], record.get("members", [])
    with styled():
        figure, axes = pyplot.subplots(
            1, 2 if counts else 1, figsize=(9.6 if counts else 6, 0.42 * len(rows) + 1.4), squeeze=False,
            layout="constrained", width_ratios=[1.6, 1] if counts else [1],
        )  # fmt: skip
        ax = axes[0, 0]
        marks = (("plain", "plain loop", "o"), ("graphed", "one network, graphed", "s"), ("ours", "ours", "D"))
        for (name, label, marker), color in zip((*marks, ("floor", "floor", "|")), COLORS, strict=False):
            known = [(row[name], at) for at, row in enumerate(rows) if row[name]]
            if known:
                ax.plot(*zip(*known, strict=True), marker, color=color, label=label, linestyle="none", markersize=6)
        for at, row in enumerate(rows):
            ax.plot([row["ours"], row["plain"]], [at, at], color="0.85", zorder=0)
            ax.annotate(
                f"{row['ratio']:.0f}×" if row["ratio"] >= 10 else f"{row['ratio']:.1f}×", (row["plain"], at),
                textcoords="offset points", xytext=(8, -3), fontsize=8,
            )  # fmt: skip
        ax.set_yticks(range(len(rows)), [row["case"] for row in rows])
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.margins(x=0.15)
        ax.set_xlabel("seconds per model")
        ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4, fontsize=8)
        if counts:
            ax = axes[0, 1]
            values, seconds = [row["value"] for row in counts], [row["seconds"] for row in counts]
            ax.loglog(values, seconds, "o-", color=COLORS[2])
            ax.set_xticks(values, [str(value) for value in values], minor=False)
            ax.set_xticks([], minor=True)
            ax.set_ylim(min(seconds) / 1.5, max(seconds) * 1.5)  # noise shall not fill the panel
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("members that train together")
            ax.set_ylabel("seconds per model")
            ax.set_title("CNN depth 4")
    return figure
