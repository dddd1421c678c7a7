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
from recombine.reproduction.figures import FigureSpec

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
        figure = pyplot.figure(figsize=(9.2, 5.7 + 1.7 * len(methods)), layout="constrained")
        curves, stages, pictures = divided(figure, 3, 1, height_ratios=[2.1, 1.8 * len(methods), 3.0])
        _curves(curves, result)
        _stages(stages, result, methods)
        _pictures(pictures, result)
    return figure


def _curves(part: SubFigure, result: xarray.Dataset) -> None:
    """Plot the error against angle, with the gap shaded up to the adjacent training angles."""
    many = {"many_error": "digit with the gap", "many_error_others": "other digits, mean"}
    panels = {"(a) one digit": {"error": ""}, f"(e) {result.attrs['digits']} digits, a gap for one": many}
    *axes, last = part.subplots(1, 3)
    axes[1].sharey(axes[0])
    _weights(last, result)
    for ax, (title, labels) in zip(axes, panels.items(), strict=True):
        for name, color in zip(labels, ("C0", "C1"), strict=False):
            error = result[name].dropna("seed", how="all")
            dim = str(error.dims[1])
            angle, (low, high) = error[dim].values, error.quantile((0.05, 0.95), dim="seed").values
            ax.fill_between(angle, low, high, color=color, alpha=0.25, linewidth=0)
            ax.plot(angle, error.mean("seed").values, color=color, linewidth=1.4, label=labels[name] or None)
        inside, step = angle[result[dim.replace("angle", "gap")].values], angle[1] - angle[0]
        ax.axvspan(inside.min() - step, inside.max() + step, color=HOLDOUT_COLOR, alpha=0.14, linewidth=0)
        ax.set(title=title, xlabel="angle (degrees)", xlim=(0, 360), xticks=QUARTERS)
    axes[1].legend(loc="upper right")
    axes[0].set_ylim(bottom=0)  # set after drawing both panels, which share the axis
    axes[0].set_ylabel("MSE over that of blank")


def _weights(ax: Axes, result: xarray.Dataset) -> None:
    """Plot the weight of the edges less that of the truth against the width of the gap."""
    weights = result["gaps_edges_less_truth"]
    for digits, color in zip(weights["digits"].values, COLORS, strict=False):
        band(ax, weights.sel(digits=digits).transpose("width", "seed"), digits, color)
    ax.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set(title="(f) edges less truth", xlabel="width of the gap (degrees)", ylabel="weight", ylim=(-1.05, 1.05))
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
    def mean(name: str) -> str:
        return f"{float(result[name].mean()):.2g}"

    shown = result["shown"].values
    after_input = result["stage"] != INPUT  # at the input the ratio is 1 by construction
    fastest = result["stage_speed"].sel(stage=after_input).max("stage")
    by = "UMAP and principal components" if UMAP in embeddings() else "principal components (UMAP is not installed)"
    return (
        f"A digit rotated by every angle except those strictly between {shown[0]:.0f}° and {shown[-1]:.0f}° (shaded). "
        "(a) Error over angle, relative to a blank image, mean and 5–95 % range over "
        f"{seed_count(result['ood_over_blank'])}: {mean('ood_over_blank')} in the gap, {mean('mid_gap_error')} in its "
        f"middle, {mean('id_over_blank')} outside. (b) Stages of the first seed's network over all angles, by {by}, "
        "gap in orange. × marks a stage's speed (change per degree) inside the gap relative to outside, mean over "
        f"seeds; {fastest.mean().item():.2g} on average in the fastest layer. (c) Outputs of the first seed's "
        "network and (d) linear blends of the true images at the gap's edges. Regressing outputs in the middle half of "
        f"the gap on the truth and the edges gives weights of {mean('truth_weight')} for the truth and "
        f"{mean('edges_weight')} for both edges together, which explain "
        f"{100 * float(result['explained'].mean()):.0f} % of the outputs' square. "
        f"(e) {result.attrs['digits']} digits, one of them with the gap, "
        f"{seed_count(result['many_ood_over_blank'])}: error {mean('many_ood_over_blank')} in the gap, "
        f"{mean('many_id_over_blank')} elsewhere; weights {mean('many_truth_weight')} for the truth and "
        f"{mean('many_edges_weight')} for the edges. (f) Weight of the edges minus that of the truth by the width of "
        f"the gap, mean and standard error over {seed_count(result['gaps_edges_less_truth'])}: {_by_width(result)}."
    )


def _by_width(result: xarray.Dataset) -> str:
    weights = result["gaps_edges_less_truth"].mean("seed")
    rows = (
        f"{digits} " + ", ".join(f"{weights.sel(digits=digits, width=width):.2f} at {width:g}°" for width in widths)
        for digits in weights["digits"].values
        if len(widths := weights["width"].values)
    )
    return "; ".join(rows)


FIGURES = (FigureSpec("fig9", "A gap in rotation", ("rotation",), rotation_figure, rotation_caption),)
