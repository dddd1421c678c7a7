"""Colours, markers and lines of the threshold figure.

Colour and marker tell a protocol: hue the region and the centres, a circle fixed steps, a triangle fixed epochs. Bold
is the paper's network. Filled markers are bumps alone, open ones stripes with or without bumps. A bar that runs off the
panel has no end: too many resamples have no threshold there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from recombine.papers.forced_rendering.threshold.labels import BUMPS, spelt

if TYPE_CHECKING:
    import xarray

COLORS = {
    ("whole", "integer"): "#0072B2",
    ("whole", "real"): "#009E73",
    ("kept", "integer"): "#D55E00",
    ("kept", "real"): "#CC79A7",
}
MARKERS = {"steps": "o", "epochs": "^"}
GREY = "0.55"
FAR = 1e9
"""Length of a bar that has no end."""
APART = 0.012
"""Between protocols at the same N, in parts of ln N, so that their bars can be told apart."""


def protocol_style(protocol: str, family: str) -> dict[str, Any]:
    """Colour, marker and weight of a protocol."""
    region, centers, budget, network = str(protocol).split("/")
    color, bold = COLORS[region, centers], network == "paper"
    return {
        "color": color, "marker": MARKERS[budget], "markersize": 6.5 if bold else 4.5,
        "markerfacecolor": color if family == BUMPS else "white", "markeredgewidth": 1.4 if bold else 1.0,
        "linewidth": 2.0 if bold else 0.9, "elinewidth": 1.4 if bold else 0.9, "alpha": 1.0 if bold else 0.85,
        "zorder": 4 if bold else 3,
    }  # fmt: skip


def draw_thresholds(ax: Axes, here: xarray.Dataset, x: np.ndarray, style: dict[str, Any]) -> None:
    """One protocol's thresholds, and arrows at the largest set where there is none."""
    value = here["threshold"].values
    if np.isfinite(value).any():
        ax.errorbar(x, value, yerr=bars(value, here["threshold_low"], here["threshold_high"]), **style)
    arrow: dict[str, Any] = {"arrowstyle": "<|-,head_width=0.2,head_length=0.35", "shrinkA": 0, "shrinkB": 0}
    arrow |= {"color": style["color"], "linewidth": style["elinewidth"]}
    for at, cell in zip(x, unreached_sets(here).values, strict=True):
        if np.isfinite(cell):
            ax.annotate("", (at, cell), (0, 11), textcoords="offset points", arrowprops=arrow)


def bars(value: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Lengths of the bars below and above a value; an open one runs far beyond any panel."""
    value, low, high = (np.asarray(part, dtype=float) for part in (value, low, high))
    return np.clip([value - low, high - value], 0, FAR)


def unreached_sets(result: xarray.Dataset) -> xarray.DataArray:
    """The largest set tried where it was not enough, else NaN."""
    return result["largest"].where(result["outcome"].isin(["not reached"])).astype(float)


def draw_references(ax: Axes, result: xarray.Dataset) -> None:
    """Linear growth, as 2N, and quadratic and cubic growth."""
    sizes = result["size"].values.astype(float)
    for words, line in {"∝ N": 2 * sizes, "∝ N²": growth(result, 2), "∝ N³": growth(result, 3)}.items():
        ax.plot(sizes, line, color=GREY, linewidth=1.0, linestyle=(0, (1, 1.6)), zorder=1)
        if np.isfinite(line[-1]):
            place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
            ax.annotate(words, (sizes[-1], line[-1]), (13, 0), color="0.35", fontsize=8, **place)


def growth(result: xarray.Dataset, power: int) -> np.ndarray:
    """A power of N through the first threshold with bumps that there is; NaN without one."""
    sizes, bumps = result["size"].values.astype(float), result["threshold"].sel(family=BUMPS).values
    for row in bumps:
        for size, threshold in zip(sizes, row, strict=True):
            if np.isfinite(threshold):
                return np.asarray(threshold * (sizes / size) ** power)
    return np.full(len(sizes), np.nan)


def is_same_line(one: xarray.Dataset, other: xarray.Dataset) -> bool:
    """Whether two protocols' thresholds are the same to the last example, and so one line."""
    return bool((one["outcome"] == "exact").all() and (other["outcome"] == "exact").all())


def protocol_legend(protocols: list[str]) -> list[Line2D]:
    """Entries for every protocol, and for what is not bumps alone."""
    styles = [protocol_style(protocol, BUMPS) for protocol in protocols]
    lines = [
        Line2D([], [], **{k: v for k, v in style.items() if k != "elinewidth"}, label=spelt(protocol))
        for style, protocol in zip(styles, protocols, strict=True)
    ]
    return lines + family_legend()[1:]


def family_legend() -> list[Line2D]:
    """Entries for bumps alone, stripes, and thresholds that were not reached."""
    style: dict[str, Any] = {"color": "0.25", "marker": "o", "markersize": 5, "linewidth": 1}
    return [
        Line2D([], [], label="bumps alone", **style),
        Line2D([], [], label="stripes (+ bumps)", markerfacecolor="white", **style),
        Line2D([], [], label="not reached", color="0.25", marker=r"$\uparrow$", markersize=7, linestyle="none"),
    ]
