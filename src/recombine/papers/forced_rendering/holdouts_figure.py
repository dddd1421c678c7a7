"""Hold-outs by shape and size."""

from __future__ import annotations

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, divided, grid_image, seed_count, styled


def holdouts_figure(result: xarray.Dataset) -> Figure:
    """Error maps by shape, and held-out error by size of grid and box."""
    shapes = [str(shape) for shape in result["shape"].values]
    with styled():
        figure = pyplot.figure(figsize=(10.2, 4.7), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1.2])
        axes = top.subplots(1, len(shapes))
        for ax, shape in zip(axes, shapes, strict=True):
            error, mask = (result[name].sel(shape=shape).values for name in ("error", "mask"))
            image = grid_image(ax, error, result, mask, vmin=0, vmax=1.5)
            ax.set_title(f"{shape}: {result['shape_ood'].sel(shape=shape).mean().item():.2f} blank", fontsize=8)
        top.colorbar(image, ax=list(axes), shrink=0.8, label="MSE / blank")
        ax = bottom.subplots()
        for size, color in zip(result["size"].values, COLORS, strict=False):
            own = result["size_ood"].sel(size=size)
            at = [float(p) for p in result["percent"].values]
            ax.errorbar(
                at, own.mean("seed"), own.std("seed").fillna(0), marker="o", color=color, label=f"N = {size}", capsize=2
            )
        ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
        ax.set_xlabel("side of the held-out box, % of N")
        ax.set_ylabel("held-out MSE / blank")
        ax.legend()
    return figure


def holdouts_caption(result: xarray.Dataset) -> str:
    """Errors by shape and size."""
    words = ", ".join(
        f"{shape} {result['shape_ood'].sel(shape=shape).mean().item():.2f}" for shape in result["shape"].values
    )
    return (
        f"Bump-coded CNN, {seed_count(result['shape_ood'])}. Top: squared error over the grid for hold-outs of several "
        f"shapes; held-out error over blank: {words} (the cross removes whole values of x and y). Bottom: centred "
        "boxes by size, on grids of several sizes."
    )


FIGURES = (FigureSpec("holdouts", "Shape and size of the hold-out", ("holdouts",), holdouts_figure, holdouts_caption),)
