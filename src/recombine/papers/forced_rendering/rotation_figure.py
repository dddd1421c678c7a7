"""Fig. 9: a gap in the angles of a rotated digit: error, stages, and what is drawn in the gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure, SubFigure

from recombine.panels import HOLDOUT_COLOR, bare, divided, seed_count, styled
from recombine.papers.forced_rendering.rotation import BLEND, INPUT, OUTPUT, TRUTH
from recombine.reproduction.figures import FigureSpec

CYCLE = "twilight"
"""Colours that come back to where they began, told apart by lightness."""
BAND = (0.05, 0.95)
"""Quantiles over seeds between which a band is drawn."""
GAPPED, OTHERS = "C0", "C1"
QUARTERS = (0, 90, 180, 270, 360)
PICTURES = {OUTPUT: "(c) network", BLEND: "(d) linear blend", TRUTH: "truth"}
WHITE = 255


def rotation_figure(result: xarray.Dataset) -> Figure:
    """Error over angle for one and for many digits, stages in two dimensions, and pictures across the gap."""
    methods = embeddings()
    with styled():
        figure = pyplot.figure(figsize=(9.2, 5.7 + 1.7 * len(methods)), layout="constrained")
        curves, stages, pictures = divided(figure, 3, 1, height_ratios=[2.1, 1.8 * len(methods), 3.0])
        _curves(curves, result)
        _stages(stages, result, methods)
        _pictures(pictures, result)
    return figure


def rotation_caption(result: xarray.Dataset) -> str:
    """What the figure shows, with numbers from the data."""
    shown = result["shown"].values
    own_stages = result["stage"] != INPUT  # at the input the ratio is 1 whatever the network does
    fastest = result["stage_speed"].sel(stage=own_stages).max("stage")
    by = "UMAP and principal components" if UMAP in embeddings() else "principal components (UMAP is not installed)"
    text = (
        f"A digit turned by every angle but those strictly between {shown[0]:.0f}° and {shown[-1]:.0f}° (shaded). (a) "
        f"Error over angle, relative to blank, mean and 5–95 % range over {seed_count(result['ood_over_blank'])}: "
        f"{_mean(result, 'ood_over_blank')} in the gap, {_mean(result, 'mid_gap_error')} at its middle, "
        f"{_mean(result, 'id_over_blank')} outside. (b) Stages of the first seed's network over all angles, by {by}, "
        "gap marked in orange; × is how fast a stage moves a degree inside the gap relative to outside, on average "
        f"over seeds, {fastest.mean().item():.2g} in the layer where that is largest. (c) What the first seed's "
        "network draws and (d) the linear blend of the true images at the gap's edges: in the middle half of the gap, "
        f"outputs regressed on truth and edges have a weight of {_mean(result, 'truth_weight')} on the truth and of "
        f"{_mean(result, 'edges_weight')} on both edges, which account for "
        f"{100 * float(result['explained'].mean()):.0f} % of their square."
    )
    if "many_error" in result:
        text += (
            f" (e) {result.attrs['digits']} digits, of which one has the gap, "
            f"{seed_count(result['many_ood_over_blank'])}: error {_mean(result, 'many_ood_over_blank')} in the gap, "
            f"{_mean(result, 'many_id_over_blank')} elsewhere; weights {_mean(result, 'many_truth_weight')} on the "
            f"truth and {_mean(result, 'many_edges_weight')} on the edges."
        )
    return text


def _mean(result: xarray.Dataset, name: str) -> str:
    return f"{float(result[name].mean()):.2g}"


def _curves(part: SubFigure, result: xarray.Dataset) -> None:
    """Error over angle."""
    many = "many_error" in result
    axes = part.subplots(1, 1 + many, sharey=True, squeeze=False)[0]
    _curve(axes[0], result["error"], GAPPED, None)
    _shade(axes[0], result["angle"].values, result["gap"].values)
    axes[0].set_title("(a) one digit")
    axes[0].set_ylabel("MSE over that of blank")
    if many:
        _curve(axes[1], result["many_error"], GAPPED, "digit with the gap")
        _curve(axes[1], result["many_error_others"], OTHERS, "other digits, mean")
        _shade(axes[1], result["many_angle"].values, result["many_gap"].values)
        axes[1].set_title(f"(e) {result.attrs['digits']} digits, a gap for one")
        axes[1].legend(loc="upper right")
    for ax in axes:
        ax.set_xlim(0, 360)
        ax.set_ylim(bottom=0)
        ax.set_xticks(QUARTERS)
        ax.set_xlabel("angle (degrees)")


def _curve(ax: Axes, error: xarray.DataArray, color: str, label: str | None) -> None:
    """Mean over seeds and a band."""
    error = error.dropna("seed", how="all")
    angle = error[error.dims[1]].values
    low, high = error.quantile(BAND, dim="seed").values
    ax.fill_between(angle, low, high, color=color, alpha=0.25, linewidth=0)
    ax.plot(angle, error.mean("seed").values, color=color, linewidth=1.4, label=label)


def _shade(ax: Axes, angle: np.ndarray, gap: np.ndarray) -> None:
    """The gap, out to the last trained angles."""
    step, inside = angle[1] - angle[0], angle[gap]
    ax.axvspan(inside.min() - step, inside.max() + step, color=HOLDOUT_COLOR, alpha=0.14, linewidth=0)


def _stages(part: SubFigure, result: xarray.Dataset, methods: Mapping[str, Embed]) -> None:
    """Every stage as a curve of the angle, the gap underlaid; one row per way to draw it in two dimensions."""
    names = list(result["stage"].values)
    axes = part.subplots(len(methods), len(names), squeeze=False)
    speed = result["stage_speed"].mean("seed").values
    for row, (method, embed) in enumerate(methods.items()):
        for k, (ax, name) in enumerate(zip(axes[row], names, strict=True)):
            if name == INPUT and row:
                ax.set_visible(False)
                continue
            scores = result["components"].values[k]
            across, up = (scores[:, :2] if name == INPUT else embed(scores)).T
            dots = _path(ax, result, across, up)
            ax.set_xlabel(f"{method} 1" if name != INPUT else "cos θ")
            ax.set_ylabel(f"{method} 2" if name != INPUT else "sin θ", labelpad=2)
            if not row:
                ax.set_title(f"{name}\ngap ×{speed[k]:.2f}")
    axes[0, 0].set_title("(b)", loc="left", x=-0.12)
    bar = part.colorbar(dots, ax=list(axes.flat), ticks=QUARTERS, pad=0.01, aspect=12 * len(methods))
    bar.set_label("angle (degrees)")


def _path(ax: Axes, result: xarray.Dataset, across: np.ndarray, up: np.ndarray) -> PathCollection:
    """Angles as dots, coloured, the gap underlaid."""
    angle, gap = result["some_angle"].values, result["some_gap"].values
    ax.scatter(across, up, s=16, color="0.55", linewidths=0, rasterized=True)
    ax.scatter(across[gap], up[gap], s=44, color=HOLDOUT_COLOR, linewidths=0, rasterized=True)
    dots = ax.scatter(across, up, s=9, c=angle, cmap=CYCLE, vmin=0, vmax=360, linewidths=0, rasterized=True)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    bare(ax)
    return dots


def _pictures(part: SubFigure, result: xarray.Dataset) -> None:
    """What is drawn, the blend and the truth, one column per angle."""
    shown = result["shown"].values
    axes = part.subplots(len(PICTURES), len(shown), squeeze=False)
    for row, (name, title) in enumerate(PICTURES.items()):
        for column, image in enumerate(result[name].values):
            ax = axes[row, column]
            ax.imshow(image, cmap="gray", vmin=0, vmax=WHITE)
            bare(ax)
            ax.spines[:].set_visible(False)
            if row == 0:
                ax.set_title(f"{shown[column]:.0f}°")
        axes[row, 0].set_ylabel(title)


# -- embedding -------------------------------------------------------------------------------------------------------
# Angles in two dimensions: by UMAP, as in the paper, where it is installed; and by principal components.
#
# Both are computed where a figure is drawn, from scores on principal components (`reduction`).


NEIGHBOURS, FEWEST_NEIGHBOURS = 0.05, 15
"""Share of all angles that UMAP looks at around each, and the fewest."""
UMAP, COMPONENTS = "UMAP", "PC"
Embed = Callable[[np.ndarray], np.ndarray]


def embeddings() -> dict[str, Embed]:
    """The methods that are available by name, the paper's first."""
    try:
        mapper = import_module("umap").UMAP
    except (ImportError, AttributeError):
        return {COMPONENTS: lambda scores: scores[:, :2]}

    def embed(scores: np.ndarray) -> np.ndarray:
        neighbours = min(len(scores) - 1, max(FEWEST_NEIGHBOURS, round(NEIGHBOURS * len(scores))))
        mapped = mapper(n_neighbors=neighbours, n_components=2, random_state=0, n_jobs=1)
        return np.asarray(mapped.fit_transform(scores))

    return {UMAP: embed, COMPONENTS: lambda scores: scores[:, :2]}


FIGURES = (FigureSpec("fig9", "A gap in rotation", ("rotation",), rotation_figure, rotation_caption),)
