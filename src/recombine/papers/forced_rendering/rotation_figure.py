"""Figure 9: error, stages and outputs of networks trained on rotated digits with a gap in the angles.

Stages are embedded in two dimensions by principal components and, as in the paper, by UMAP if it is installed. Both
use the stored principal components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from recombine.metrics.stages import INPUT
from recombine.panels import COLORS, HOLDOUT_COLOR, band, bare, divided, seed_count, styled
from recombine.papers.forced_rendering.rotation import BLEND, OUTPUT, TRUTH
from recombine.reproduction.figures import FigureSpec, cell

QUARTERS = (0, 90, 180, 270, 360)
PICTURES = {OUTPUT: "(c) network", BLEND: "(d) linear blend", TRUTH: "truth"}
UMAP, COMPONENTS = "UMAP", "PC"
Embed = Callable[[np.ndarray], np.ndarray]


def embeddings() -> dict[str, Embed]:
    """Return the available embedding methods by name, starting with the paper's."""
    try:
        mapper = import_module("umap").UMAP
    except (ImportError, AttributeError):
        return {COMPONENTS: lambda scores: scores[:, :2]}

    def embed(scores: np.ndarray) -> np.ndarray:
        neighbours = min(len(scores) - 1, max(15, round(0.05 * len(scores))))  # 5 % of all angles, at least 15
        mapped = mapper(n_neighbors=neighbours, n_components=2, random_state=0, n_jobs=1)
        return np.asarray(mapped.fit_transform(scores))

    return {UMAP: embed, COMPONENTS: lambda scores: scores[:, :2]}


def rotation_figure(result: xarray.Dataset) -> Figure:
    """Plot errors against angle, weights against the gap's width, stages in two dimensions, and images in the gap."""
    methods = embeddings()
    with styled():
        figure = pyplot.figure(figsize=(9.2, 7.4 + 1.7 * len(methods)), layout="constrained")
        top, stages, pictures, bottom = divided(figure, 4, 1, height_ratios=[1.8, 1.8 * len(methods), 3.0, 1.9])
        first, (second, last) = top.subplots(), bottom.subplots(1, 2)
        _curves(first, result, {"error": COLORS[0]})
        first.set(title="(a) one digit", ylabel="MSE over that of blank")
        _stages(stages, result, methods)
        _pictures(pictures, result)
        _curves(second, result, {"many_error": COLORS[0], "many_error_others": COLORS[1]})
        second.set(title=f"(e) {result.attrs['digits']} digits, a gap for one", ylabel="MSE over that of blank")
        _weights(last, result)
    return figure


def _curves(ax: Axes, result: xarray.Dataset, colors: Mapping[str, str]) -> None:
    """Plot errors against angle, with the gap shaded up to the adjacent training angles."""
    lines = []
    for name, color in colors.items():
        error = result[name].dropna("seed", how="all")
        dim = str(error.dims[1])
        angle, (low, high) = error[dim].values, error.quantile((0.05, 0.95), dim="seed").values
        ax.fill_between(angle, low, high, color=color, alpha=0.25, linewidth=0)
        lines += ax.plot(angle, error.mean("seed").values, color=color, linewidth=1.4)
    inside, step = angle[result[dim.replace("angle", "gap")].values], angle[1] - angle[0]
    ax.axvspan(inside.min() - step, inside.max() + step, color=HOLDOUT_COLOR, alpha=0.14, linewidth=0)
    ax.set(xlabel="angle (degrees)", xlim=(0, 360), xticks=QUARTERS)
    ax.set_ylim(0, (1.6 if len(lines) > 1 else 1) * ax.get_ylim()[1])  # room for the legend
    if len(lines) > 1:
        ax.legend(lines, ["digit with the gap", "other digits, mean"], loc="upper right")


def _weights(ax: Axes, result: xarray.Dataset) -> None:
    """Plot the weight of the edges less that of the truth against the width of the gap."""
    weights = result["gaps_edges_less_truth"]
    for digits, color in zip(weights["digits"].values, COLORS, strict=False):
        band(ax, weights.sel(digits=digits).transpose("width", "seed"), digits, color)
    ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set(title="(f) edges less truth", xlabel="width of the gap (degrees)", ylabel="weight", ylim=(-1.05, 1.05))
    ax.set_xticks(weights["width"].values)
    ax.legend(loc="upper left")


def _stages(part: SubFigure, result: xarray.Dataset, methods: Mapping[str, Embed]) -> None:
    """Plot every stage as a path over angles, one row per embedding method; the code is plotted only once."""
    names = list(result["stage"].values)
    axes = part.subplots(len(methods), len(names), squeeze=False)
    speed = result["stage_speed"].mean("seed").values
    for row, (method, embed) in enumerate(methods.items()):
        for k, (ax, name) in enumerate(zip(axes[row], names, strict=True)):
            if name == INPUT and row:
                ax.set_visible(False)
                continue
            scores = result["components"].values[k]
            dots = _path(ax, result, scores[:, :2] if name == INPUT else embed(scores))
            ax.set_xlabel(f"{method} 1" if name != INPUT else "cos θ")
            ax.set_ylabel(f"{method} 2" if name != INPUT else "sin θ", labelpad=2)
            if not row:
                ax.set_title(f"{name}\ngap ×{speed[k]:.2f}")
    axes[0, 0].set_title("(b)", loc="left", x=-0.12)
    bar = part.colorbar(dots, ax=list(axes.flat), ticks=QUARTERS, pad=0.01, aspect=12 * len(methods))
    bar.set_label("angle (degrees)")


def _path(ax: Axes, result: xarray.Dataset, places: np.ndarray) -> Any:
    """Plot one dot per angle, coloured by angle, with the gap highlighted, and return the dots."""
    angle, gap = result["some_angle"].values, result["some_gap"].values
    x, y = places.T
    ax.scatter(x, y, s=16, color="0.55", linewidths=0, rasterized=True)
    ax.scatter(x[gap], y[gap], s=44, color=HOLDOUT_COLOR, linewidths=0, rasterized=True)
    # "twilight" is cyclic, and its colours also differ in lightness
    dots = ax.scatter(x, y, s=9, c=angle, cmap="twilight", vmin=0, vmax=360, linewidths=0, rasterized=True)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    bare(ax)
    return dots


def _pictures(part: SubFigure, result: xarray.Dataset) -> None:
    """Show outputs, blends and true images, one column per angle."""
    shown = result["shown"].values
    axes = part.subplots(len(PICTURES), len(shown), squeeze=False)
    for line, (name, title) in zip(axes, PICTURES.items(), strict=True):
        for ax, image in zip(line, result[name].values, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=255)
            bare(ax)
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(title)
    for ax, angle in zip(axes[0], shown, strict=True):
        ax.set_title(f"{angle:.0f}°")


def rotation_caption(result: xarray.Dataset) -> str:
    shown = result["shown"].values
    by = "UMAP and principal components" if UMAP in embeddings() else "principal components (UMAP is not installed)"
    return (
        f"A digit rotated by every angle except those strictly between {shown[0]:.0f}° and {shown[-1]:.0f}° (shaded): "
        "(a) error over angle, relative to a blank image, mean and 5–95 % range over "
        f"{seed_count(result['ood_over_blank'])}; (b) stages of the first seed's network over all angles, by {by}, "
        "gap in orange, with each stage's speed (change per degree) inside the gap relative to outside, mean over "
        "seeds (×); (c) outputs of the first seed's network and (d) linear blends of the true images at the gap's "
        f"edges; (e) the error with {result.attrs['digits']} digits, one of them with the gap, "
        f"{seed_count(result['many_ood_over_blank'])}; (f) weight of the edges minus that of the truth, in a "
        "regression of outputs in the middle half of the gap, by its width, mean and standard error over "
        f"{seed_count(result['gaps_edges_less_truth'])}."
    )


def rotation_table(result: xarray.Dataset) -> list[list[str]]:
    names = {
        "error / blank in the gap": "ood_over_blank", "in its middle": "mid_gap_error",
        "outside": "id_over_blank", "weight of the truth in the gap": "truth_weight",
        "weight of both edges": "edges_weight", "share of the outputs' square that they explain": "explained",
    }  # fmt: skip
    rows = []
    for words, name in names.items():
        many = f"many_{name}"
        means = (f"{result[own].mean().item():.2g}" if own in result else "–" for own in (name, many))
        rows.append([words, *means])
    weights = result["gaps_edges_less_truth"].mean("seed")
    for width in weights["width"].values:
        rows.append([f"edges less truth, gap of {width:g}°", *(cell(own) for own in weights.sel(width=width))])
    fastest = result["stage_speed"].sel(stage=result["stage"] != INPUT).max("stage")  # at the input, it is 1
    rows.append(["speed in the gap over that outside, fastest layer", cell(fastest.mean()), "–"])
    return [["mean", "one digit", f"{result.attrs['digits']} digits"], *rows]


FIGURES = (FigureSpec("fig9", "A gap in rotation", ("rotation",), rotation_figure, rotation_caption, rotation_table),)
