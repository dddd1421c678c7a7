"""Fig. 4c: the data needed for 90 % accuracy against the size of the image, and the curves it was read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, PercentFormatter

from recombine.papers.forced_rendering.threshold.labels import BUMPS, CLAIMED, STRIPES
from recombine.papers.forced_rendering.threshold.limits import exponent_interval
from recombine.papers.forced_rendering.threshold.marks import (
    APART,
    GREY,
    bars,
    cubic_growth,
    draw_references,
    draw_thresholds,
    family_legend,
    is_same_line,
    protocol_legend,
    protocol_style,
    spelt,
    threshold_limits_of,
    unreached_sets,
)
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import letter, styled

if TYPE_CHECKING:
    import xarray


def threshold_panel(ax: Axes, result: xarray.Dataset, *, legend: bool = True) -> None:
    """Thresholds against N, log–log: the first protocol bold, the others thin; arrows where none was reached."""
    sizes, protocols = result["size"].values.astype(float), list(result["protocol"].values)
    draw_references(ax, result)
    for number, protocol in reversed(list(enumerate(protocols))):
        for family in result["family"].values:
            here = result.sel(protocol=protocol, family=family)
            if number and family == STRIPES and is_same_line(here, result.isel(protocol=0).sel(family=family)):
                continue
            shift = np.exp(APART * (number - (len(protocols) - 1) / 2)) if number else 1.0
            draw_thresholds(ax, here, sizes * shift, protocol_style(protocol, family, bold=number == 0))
    ax.set(xscale="log", yscale="log", xlabel="N (pixels a side)")
    ax.set_ylabel(f"examples for {100 * result.attrs['target']:.0f} % accuracy")
    ax.xaxis.set_major_locator(FixedLocator(list(sizes)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())
    width = sizes[-1] / sizes[0]
    ax.set_xlim(sizes[0] / width**0.09, sizes[-1] * width**0.24)
    low, high = (values.where(np.isfinite(values) & (values > 0)) for values in threshold_limits_of(result))
    top = np.nanmax([4 * sizes[-1], high.max(), 1.3 * unreached_sets(result).max(), cubic_growth(result)[-1]])
    bottom = np.nanmin([1.5 * sizes[0], low.min()])
    ax.set_ylim(bottom / 1.2, 1.5 * top)
    if legend:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "borderaxespad": 0.0}
        ax.legend(handles=protocol_legend(protocols), fontsize=6.5, handlelength=1.6, labelspacing=0.45, **beside)


def curves_panel(ax: Axes, result: xarray.Dataset, protocol: str, family: str = BUMPS) -> None:
    """Every network's accuracy and the fitted curves, one colour per size."""
    here, target = result.sel(protocol=protocol, family=family), result.attrs["target"]
    shades = pyplot.get_cmap("viridis")(np.linspace(0, 0.88, here.sizes["size"]))
    ax.axhline(target, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for size, color in zip(here["size"].values, shades, strict=True):
        cell = here.sel(size=size)
        examples, accuracy = cell["examples"].values, cell["accuracy"].values
        ax.plot(examples, accuracy, "o", color=color, markersize=3.2, alpha=0.75, markeredgewidth=0)
        along = np.geomspace(np.nanmin(examples), np.nanmax(examples), 200)
        logistic = 1 / (1 + np.exp(-cell["slope"].item() * (np.log(along) - cell["mid"].item())))
        ax.plot(along, cell["top"].item() * logistic, color=color, linewidth=1.3, label=f"N = {size}")
        if np.isfinite(cell["threshold"]):
            ax.plot([cell["threshold"]], [target], "|", color=color, markersize=11, markeredgewidth=1.8)
    ax.set(xscale="log", xlabel="examples in the training set", ylim=(-0.02, 1.04))
    ax.set_ylabel("accuracy" if protocol.startswith("whole") else "accuracy in the held-out region")
    ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    ax.legend(fontsize=7, loc="lower right", handlelength=1.2, labelspacing=0.25)


def exponents_panel(ax: Axes, result: xarray.Dataset) -> None:
    """Exponents with intervals, one row per protocol; bands are what counts as the paper's."""
    protocols, plain = list(result["protocol"].values), {"facecolor": "0.93", "edgecolor": "none", "pad": 0.5}
    for family, (claimed, (low, high)) in CLAIMED.items():
        ax.axvspan(low, high, color="0.93", linewidth=0, zorder=0)
        ax.axvline(claimed, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        ax.text(claimed, -0.62, f"{family}: {claimed}", fontsize=7, color="0.35", ha="center", va="center").set_bbox(
            plain
        )
    limits: list[tuple[float, float]] = []
    for row, protocol in enumerate(protocols):
        for family in result["family"].values:
            here = result.sel(protocol=protocol, family=family)
            value, claimed = here["exponent"].item(), CLAIMED[family][0]
            at = row + (0.14 if family == STRIPES else -0.14)
            if np.isfinite(value):
                style = {**protocol_style(protocol, family, bold=row == 0), "linestyle": "none"}
                low, high = exponent_interval(here, float(result.attrs["confidence"]))
                limits.append((low, high))
                ax.errorbar([value], [at], xerr=bars([value], [low], [high]), **style)
            else:
                words = ax.text(claimed, at, _why(here), fontsize=6.5, color="0.4", ha="center", va="center")
                words.set(style="italic", bbox=plain)
    ax.set_yticks(range(len(protocols)), [spelt(protocol) for protocol in protocols], fontsize=7)
    ax.set(ylim=(len(protocols) - 0.5, -0.9), xlabel="exponent of N")
    ax.tick_params(axis="y", length=0)
    ends = [end for limit in limits for end in limit if np.isfinite(end)]
    ax.set_xlim(min([0.3, *(end - 0.15 for end in ends)]), max([3.7, *(end + 0.15 for end in ends)]))
    ax.spines["left"].set_visible(False)


def threshold_figure(result: xarray.Dataset) -> Figure:
    """Thresholds against N, the curves behind those of the first protocol, and the exponents of all."""
    protocol = _shown(result)
    rows = result.sizes["protocol"]
    with styled():
        figure, axes = pyplot.subplots(
            1, 3, figsize=(11.4, max(3.3, 1.5 + 0.3 * rows)), width_ratios=(1.15, 1, 0.95), layout="constrained"
        )
        threshold_panel(axes[0], result, legend=False)
        axes[0].legend(handles=family_legend(), fontsize=7, loc="upper left", handlelength=1.8, labelspacing=0.3)
        curves_panel(axes[1], result, protocol)
        exponents_panel(axes[2], result)
        letter(axes[0], "a", "data threshold")
        letter(axes[1], "b", f"bumps alone: {spelt(protocol)}")
        letter(axes[2], "c", "exponents")
    return figure


def threshold_caption(result: xarray.Dataset) -> str:
    """What the figure shows, with numbers from the data."""
    sizes, target = result["size"].values, result.attrs["target"]
    networks = result["networks"].sel(family=BUMPS)
    counts = " to ".join(dict.fromkeys(str(int(count)) for count in (networks.min(), networks.max())))
    said = [
        f"(a) Smallest training set with which networks reach {100 * target:.0f} % coordinate accuracy, for images of "
        f"{', '.join(str(size) for size in sizes)} pixels a side (N). Filled: bumps alone; open: all 2N stripes and as "
        f"many bumps as needed. Bars are {100 * result.attrs['confidence']:.0f} % bootstrap intervals, without an end "
        "where they run off the panel; arrows stand at the largest set tried where it was not enough. (b) The networks "
        "behind one protocol's thresholds, each with its own seed and training set, and the fitted curves; "
        f"{counts} networks per threshold with bumps alone. "
        "(c) Exponents of N by protocol; bands are what counts as the paper's 3 and 1."
    ]
    for family, words in ((BUMPS, "With bumps alone"), (STRIPES, "With stripes")):
        here = result.sel(family=family)
        said.append(f"{words} {_sentence(here, float(result.attrs['confidence']))}.")
    return " ".join(said)


def _sentence(here: xarray.Dataset, confidence: float) -> str:
    """The exponents of one family."""
    defined = here["exponent"].notnull().values
    parts = []
    if defined.any():
        first = here.isel(protocol=int(np.argmax(defined)))
        low, high = exponent_interval(first, confidence)
        parts.append(
            f"the threshold grows as N to the {first['exponent'].item():.2f} [{low:.2f}, {high:.2f}] "
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


def _why(here: xarray.Dataset) -> str:
    """Why there is no exponent, in two words."""
    outcomes = set(here["outcome"].values.tolist())
    for outcome in ("not reached", "unsure", "always reached"):
        if outcome in outcomes:
            return outcome
    return "too few sizes"


def _shown(result: xarray.Dataset) -> str:
    """The first protocol whose threshold with bumps was found somewhere, else the first."""
    known = result["threshold"].sel(family=BUMPS).notnull().any("size").values
    return str(result["protocol"].values[int(np.argmax(known))])


FIGURES = (FigureSpec("threshold", "Data threshold by protocol", ("threshold",), threshold_figure, threshold_caption),)
