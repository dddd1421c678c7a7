"""Figure 4c: training-set size needed for 90 % accuracy against image size, and the underlying curves.

Hue encodes region and centres. Circles denote fixed steps, triangles fixed epochs. The paper's network is in bold.
Filled symbols denote bumps alone, open symbols stripes with or without bumps. Other tolerances are shown by grey marks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, PercentFormatter
from numpy.typing import ArrayLike

from recombine.panels import letter, shades, styled
from recombine.papers.forced_rendering.palette import ARCHITECTURES
from recombine.papers.forced_rendering.threshold import CUBIC, EXPONENT, ONE_PIXEL, estimated_exponent
from recombine.papers.forced_rendering.threshold_design import BUMPS, KEPT, STRIPES, spelt
from recombine.reproduction.figures import FigureSpec

COLORS = {
    ("whole", "integer"): "#0072B2",
    ("whole", "real"): "#009E73",
    ("kept", "integer"): "#D55E00",
    ("kept", "real"): "#CC79A7",
}
MARKERS = {"steps": "o", "epochs": "^"}
DASHED: dict[str, Any] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (4, 3))}
TOLERANCE_MARKS = {"exact": "x", "MSE": "s"}
FAR = 1e9
"""Length of the bar of an unbounded interval."""
CLAIMED = {BUMPS: (3, (CUBIC, FAR)), STRIPES: (1, (0.75, 1.25))}
"""The paper's exponents, and the ranges of exponents considered to agree with them."""


def protocol_style(protocol: str, family: str) -> dict[str, Any]:
    """Return the colour, marker and line width of a protocol."""
    region, centers, budget, network = protocol.split("/")
    color, bold = COLORS[region, centers], network == "paper"
    return {
        "color": color, "marker": MARKERS[budget], "markersize": 6.5 if bold else 4.5,
        "markerfacecolor": color if family == BUMPS else "white", "markeredgewidth": 1.4 if bold else 1.0,
        "linewidth": 2.0 if bold else 0.9, "elinewidth": 1.4 if bold else 0.9, "alpha": 1.0 if bold else 0.85,
        "zorder": 4 if bold else 3,
    }  # fmt: skip


def family_legend() -> list[Line2D]:
    """Return legend entries for bumps alone, stripes, and thresholds that were not reached."""
    style: dict[str, Any] = {"color": "0.25", "marker": "o", "markersize": 5, "linewidth": 1}
    return [
        Line2D([], [], label="bumps alone", **style),
        Line2D([], [], label="stripes (+ bumps)", markerfacecolor="white", **style),
        Line2D([], [], label="not reached", color="0.25", marker=r"$\uparrow$", markersize=7, linestyle="none"),
    ]


def bars(value: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Return the lengths of the bars below and above a value; unbounded bars extend far beyond the panel."""
    return np.clip([np.subtract(value, low), np.subtract(high, value)], 0, FAR)


def unreached_sets(result: xarray.Dataset) -> xarray.DataArray:
    """Return the size of the largest training set if it did not suffice, else NaN."""
    return result["largest"].where(result["outcome"].isin(["not reached"])).astype(float)


def growth(result: xarray.Dataset, power: int) -> np.ndarray:
    """Return a curve N^power through the first threshold with bumps alone; NaN if there is none."""
    sizes, thresholds = result["size"].values.astype(float), result["threshold"].sel(family=BUMPS).values
    row, column = next(iter(np.argwhere(np.isfinite(thresholds))), (0, 0))
    return np.asarray(thresholds[row, column] * (sizes / sizes[column]) ** power)


def threshold_panel(ax: Axes, result: xarray.Dataset, *, legend: bool = True) -> None:
    """Plot thresholds against N on log-log axes, with arrows where the target was not reached."""
    sizes, protocols = result["size"].values.astype(float), list(result["protocol"].values)
    for words, line in {"∝ N": 2 * sizes, "∝ N²": growth(result, 2), "∝ N³": growth(result, 3)}.items():
        ax.plot(sizes, line, color="0.55", linewidth=1.0, linestyle=(0, (1, 1.6)), zorder=1)
        if np.isfinite(line[-1]):
            place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
            ax.annotate(words, (sizes[-1], line[-1]), (13, 0), color="0.35", fontsize=8, **place)
    for number, protocol in reversed(list(enumerate(protocols))):
        for family in result["family"].values:
            exact = result["outcome"].sel(protocol=[protocol, protocols[0]], family=family) == "exact"
            if number and family == STRIPES and bool(exact.all()):
                continue  # the same as the first protocol's line
            # a small offset between protocols keeps their bars apart
            shift = np.exp(0.012 * (number - (len(protocols) - 1) / 2)) if number else 1.0
            here, style = result.sel(protocol=protocol, family=family), protocol_style(protocol, family)
            _draw_thresholds(ax, here, sizes * shift, style)
    ax.set(xscale="log", yscale="log", xlabel="N (pixels a side)")
    ax.set_ylabel(f"examples for {100 * result.attrs['target']:.0f} % accuracy")
    ax.xaxis.set_major_locator(FixedLocator(list(sizes)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())
    width = sizes[-1] / sizes[0]
    ax.set_xlim(sizes[0] / width**0.09, sizes[-1] * width**0.24)
    limits = (result["threshold_low"], result["threshold_high"])
    low, high = (values.where(np.isfinite(values) & (values > 0)) for values in limits)
    top = np.nanmax([4 * sizes[-1], high.max(), 1.3 * unreached_sets(result).max(), growth(result, 3)[-1]])
    bottom = np.nanmin([1.5 * sizes[0], low.min()])
    ax.set_ylim(bottom / 1.2, 1.5 * top)
    if legend:
        styles = {spelt(name): protocol_style(name, BUMPS) for name in protocols}
        for style in styles.values():
            del style["elinewidth"]
        handles = [*(Line2D([], [], label=label, **own) for label, own in styles.items()), *family_legend()[1:]]
        beside: dict[str, Any] = {"loc": "outside lower left", "ncols": 2, "columnspacing": 1.0}
        ax.figure.legend(handles=handles, fontsize=6, handlelength=1.6, labelspacing=0.3, **beside)


def _draw_thresholds(ax: Axes, here: xarray.Dataset, x: np.ndarray, style: dict[str, Any]) -> None:
    """Plot one protocol's thresholds, with arrows at the largest set where none was found."""
    value = here["threshold"].values
    if np.isfinite(value).any():
        ax.errorbar(x, value, yerr=bars(value, here["threshold_low"], here["threshold_high"]), **style)
    arrow: dict[str, Any] = {"arrowstyle": "<|-,head_width=0.2,head_length=0.35", "shrinkA": 0, "shrinkB": 0}
    arrow |= {"color": style["color"], "linewidth": style["elinewidth"]}
    for at, largest in zip(x, unreached_sets(here).values, strict=True):
        if np.isfinite(largest):
            ax.annotate("", (at, largest), (0, 11), textcoords="offset points", arrowprops=arrow)


def curves_panel(ax: Axes, result: xarray.Dataset, protocol: str) -> None:
    """Plot every network's accuracy and the fitted curves for bumps alone, one colour per size."""
    here, target = result.sel(protocol=protocol, family=BUMPS), result.attrs["target"]
    colors = shades(ARCHITECTURES["CNN"], here.sizes["size"])
    ax.axhline(target, zorder=0, **DASHED)
    for size, color in zip(here["size"].values, colors, strict=True):
        cell = here.sel(size=size)
        counted = cell["learnt"].values == 1
        examples, accuracy = cell["examples"].values, cell["accuracy"].values
        ax.plot(examples[counted], accuracy[counted], "o", color=color, markersize=3.2, alpha=0.75, markeredgewidth=0)
        ax.plot(examples[~counted], accuracy[~counted], "x", color=color, markersize=3.2, alpha=0.75)
        along = np.geomspace(np.nanmin(examples), np.nanmax(examples), 200)
        logistic = 1 / (1 + np.exp(-cell["slope"].item() * (np.log(along) - cell["mid"].item())))
        ax.plot(along, cell["top"].item() * logistic, color=color, linewidth=1.3, label=f"N = {size}")
        if np.isfinite(cell["threshold"]):
            ax.plot([cell["threshold"]], [target], "|", color=color, markersize=11, markeredgewidth=1.8)
    ax.set(xscale="log", xlabel="examples in the training set", ylim=(-0.02, 1.04))
    ax.set_ylabel("accuracy" if protocol.startswith("whole") else "accuracy outside the hold-out")
    ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    ax.legend(fontsize=7, loc="lower right", handlelength=1.2, labelspacing=0.25)


def exponents_panel(ax: Axes, result: xarray.Dataset) -> None:
    """Plot exponents with intervals, one row per protocol; bands mark the ranges that agree with the paper."""
    protocols, plain = list(result["protocol"].values), {"facecolor": "0.93", "edgecolor": "none", "pad": 0.5}
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    for family, (claimed, limits) in CLAIMED.items():
        ax.axvspan(*limits, color="0.93", linewidth=0, zorder=0)
        ax.axvline(claimed, zorder=1, **DASHED)
        ax.text(claimed, -0.62, f"{family}: {claimed}", fontsize=7, color="0.35", bbox=plain, **centred)
    ax.axvline(2, zorder=1, **DASHED)
    ends: list[float] = []
    for name, mark in TOLERANCE_MARKS.items():
        values = result[f"tolerance_{EXPONENT}"].sel(measure=name).values
        ends += list(values[np.isfinite(values)])
        rows = np.arange(len(protocols)) - 0.32
        ax.plot(values, rows, mark, color="0.35", markersize=4, markerfacecolor="none", label=name, zorder=2)
    legend: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "borderaxespad": 0.0}
    ax.legend(title="other tolerances, bumps alone", title_fontsize=6.5, fontsize=6.5, ncols=2, **legend)
    for row, protocol in enumerate(protocols):
        for family in result["family"].values:
            here = result.sel(protocol=protocol, family=family)
            at = row + (0.14 if family == STRIPES else -0.14)
            interval = estimated_exponent(here).interval(float(result.attrs["confidence"]))
            if np.isfinite(interval.value):
                style = {**protocol_style(protocol, family), "linestyle": "none"}
                ends += [end for end in (interval.low, interval.high) if np.isfinite(end)]
                lengths = bars([interval.value], [interval.low], [interval.high])
                ax.errorbar([interval.value], [at], xerr=lengths, **style)
            else:
                reasons = ("not reached", "too few networks", "always reached")
                why = next((reason for reason in reasons if reason in here["outcome"].values), "too few sizes")
                text: dict[str, Any] = {"fontsize": 6.5, "color": "0.4", "style": "italic", "bbox": plain, **centred}
                ax.text(CLAIMED[family][0], at, why, **text)
    words = [spelt(name).partition(": ") for name in protocols]
    names = [f"{choices}{', small' if network.startswith('small') else ''}" for network, _, choices in words]
    ax.set_yticks(range(len(protocols)), names, fontsize=7)
    ax.set(ylim=(len(protocols) - 0.5, -0.9), xlabel="exponent of N")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(min([0.3, *(end - 0.15 for end in ends)]), max([3.7, *(end + 0.15 for end in ends)]))
    ax.spines["left"].set_visible(False)


def threshold_figure(result: xarray.Dataset) -> Figure:
    """Plot thresholds against N, the fitted accuracy curves of selected protocols, and all exponents."""
    protocols = result["protocol"].values
    known = result["threshold"].sel(family=BUMPS).notnull().any("size").values
    first = str(protocols[int(np.argmax(known))])  # the first protocol with a threshold at any N, else the first
    shown = list(dict.fromkeys([first, *(name for name in protocols if name == KEPT)]))
    with styled():
        figure, axes = pyplot.subplots(
            1, 2 + len(shown), figsize=(8.4 + 3.6 * len(shown), max(3.3, 1.5 + 0.3 * len(protocols))),
            width_ratios=(1.15, *[1] * len(shown), 1.15), layout="constrained",
        )  # fmt: skip
        threshold_panel(axes[0], result, legend=False)
        axes[0].legend(handles=family_legend(), fontsize=7, loc="upper left", handlelength=1.8, labelspacing=0.3)
        letter(axes[0], "a", "data threshold")
        for ax, name, protocol in zip(axes[1:], "bc", shown, strict=False):
            curves_panel(ax, result, protocol)
            letter(ax, name, f"bumps {'over the whole grid' if 'whole' in protocol else 'outside the hold-out'}")
        exponents_panel(axes[-1], result)
        letter(axes[-1], "abcd"[len(axes) - 1], "exponents")
    return figure


def threshold_caption(result: xarray.Dataset) -> str:
    sizes, attributes = result["size"].values, result.attrs
    first = result.isel(protocol=0).sel(family=BUMPS)
    counts = " to ".join(dict.fromkeys(str(int(count)) for count in (first["networks"].min(), first["networks"].max())))
    return (
        f"(a) Smallest training set with which networks reach {100 * attributes['target']:.0f} % coordinate accuracy, "
        f"for images of {', '.join(str(size) for size in sizes)} pixels per side (N), with "
        f"{100 * attributes['confidence']:.0f} % bootstrap intervals ({attributes['resamples']} resamples; unbounded "
        "ones run off the panel), or the largest one tried where it was not enough (arrows); bold: the paper's network "
        f"(width {attributes['width']}, depth {attributes['depth']}, {attributes['steps']} steps), thin: a small "
        "network, filled: bumps alone, open: all 2N stripes and as many bumps as needed; middle: accuracy of the "
        "paper's networks, each with its own seed and training set, and fitted curves "
        f"({counts} networks per threshold learnt their training set; crosses did not); right: exponents of N by "
        "protocol, where the shaded ranges count as the paper's 3 and 1."
    )


def threshold_table(result: xarray.Dataset) -> list[list[str]]:
    attributes, first = result.attrs, result.isel(protocol=0).sel(family=BUMPS)
    rows = [
        [words, _exponents_in_words(result.sel(family=family), float(attributes["confidence"]))]
        for family, words in ((BUMPS, "exponent of N, bumps alone"), (STRIPES, "exponent of N, with stripes"))
    ]
    if np.isfinite(first["local_exponent"].item()):
        rows.append([
            "parabola through the first protocol's thresholds",
            f"slope {first['local_exponent'].item():.2f} at N = {result['size'].values[-1]}, curvature "
            f"{first['curvature'].item():.2f}",
        ])  # fmt: skip
    rows.append(["other tolerances, bumps alone", _by_tolerance(result)])
    if KEPT in result["protocol"].values:
        here = result.sel(protocol=KEPT, family=BUMPS)
        most = here["held_out_accuracy"].where((here["examples"] == here["largest"]) & (here["learnt"] == 1))
        means = most.mean("network").values
        rows.append([
            "accuracy inside the hold-out with the most bumps outside",
            f"means over N of {100 * np.nanmin(means):.0f} % to {100 * np.nanmax(means):.0f} %; the best of "
            f"{int(most.count())} networks {100 * float(most.max()):.0f} %"
            if most.notnull().any()
            else "no network learnt its training set",
        ])  # fmt: skip
    return [["quantity", "value"], *rows]


def _by_tolerance(result: xarray.Dataset) -> str:
    """Return a clause on how many protocols have an exponent that counts as the paper's."""
    integer = [name for name in result["protocol"].values if "/integer/" in name]
    values = result[f"tolerance_{EXPONENT}"].sel(protocol=integer).values
    known = values[np.isfinite(values)]
    if not len(known):
        return "no protocol has an exponent"
    return (
        f"N³ (an exponent above {CUBIC:g}) in {(known > CUBIC).sum()} of {len(known)} protocols "
        f"(tolerance exact, {ONE_PIXEL} or MSE; the other {values.size - len(known)} have none), with exponents of "
        f"{known.min():.2f} to {known.max():.2f}; the authors' protocol is not published"
    )


def _exponents_in_words(here: xarray.Dataset, confidence: float) -> str:
    """Return a clause stating the exponents of a family."""
    defined = here["exponent"].notnull().values
    parts = []
    if defined.any():
        first = here.isel(protocol=int(np.argmax(defined)))
        interval = estimated_exponent(first).interval(confidence)
        parts.append(
            f"the threshold grows as N to the power {interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}] "
            f"({spelt(first['protocol'].item())})"
        )
        if defined.sum() > 1:
            values = here["exponent"].values[defined]
            parts.append(f"over {defined.sum()} protocols the exponent is {values.min():.2f} to {values.max():.2f}")
        alone = (here["outcome"] == "exact").all("size").values
        if alone.any():
            parts.append(f"stripes alone suffice at every N under {alone.sum()} of {len(alone)} protocols")
    if (~defined).any():
        parts.append(f"there is no exponent under {(~defined).sum()} of {len(defined)} protocols")
    return "; ".join(parts)


FIGURES = (
    FigureSpec(
        "threshold", "Data threshold by protocol", ("threshold",), threshold_figure, threshold_caption, threshold_table
    ),
)
