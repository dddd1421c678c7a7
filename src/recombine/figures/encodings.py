"""Fig. 1 b–c: error over the grid and drawings in the held-out region, an encoding a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.figures.panels import cross, outline, styled

if TYPE_CHECKING:
    import xarray


def encodings_figure(result: xarray.Dataset) -> Figure:
    """One row an encoding: mean error map over seeds, then what the first seed's network draws."""
    names, samples = list(result["encoding"].values), result.sizes["sample"]
    x, y, held_out = result["x"].values, result["y"].values, result["held_out"].values
    relative = result["error"].mean("seed") / result.attrs["blank"]
    with styled():
        figure, axes = pyplot.subplots(
            len(names), samples + 1, figsize=(1.7 * (samples + 1), 1.75 * len(names)), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        grey = "gray" if result.attrs["polarity"] == "bright" else "gray_r"
        top = float(max(1.0, np.ceil(relative.max() * 2) / 2))
        extent = (x[0] - 0.5, x[-1] + 0.5, y[-1] + 0.5, y[0] - 0.5)
        for row, name in enumerate(names):
            ax = axes[row, 0]
            image = ax.imshow(relative.sel(encoding=name), vmin=0, vmax=top, extent=extent)
            outline(ax, held_out, x, y)
            ax.set_ylabel(f"{name}\ny")
            for sample in range(samples):
                ax = axes[row, sample + 1]
                drawing = result["drawing"].sel(encoding=name).isel(seed=0, sample=sample)
                ax.imshow(drawing, cmap=grey, vmin=0, vmax=1, extent=extent)
                outline(ax, held_out, x, y)
                cross(ax, float(result["sample_x"][sample]), float(result["sample_y"][sample]))
                ax.set_yticks([])
                if row == 0:
                    ax.set_title(f"drawn at ({int(result['sample_x'][sample])}, {int(result['sample_y'][sample])})")
        for ax in axes.flat:
            ax.spines[:].set_visible(True)
            if ax not in axes[-1]:
                ax.set_xticks([])
        axes[0, 0].set_title("error over blank")
        axes[-1, 0].set_xlabel("x")
        bar = figure.colorbar(image, ax=list(axes[:, 0]), location="left", shrink=0.5, pad=0.02)
        bar.set_label("MSE / MSE of a blank image")
    return figure


def encodings_caption(result: xarray.Dataset) -> str:
    """What the figure shows, with numbers from the data."""
    over = result["ood_over_blank"].mean("seed")
    worst, best = over.idxmax().item(), over.idxmin().item()
    return (
        f"Mean squared error over the grid, relative to blank, over {result.sizes['seed']} seeds (left), and what the "
        f"first seed's network draws at held-out places (crosses mark the truth, dashes the held-out region). Over all "
        f"held-out places the error is {over.min().item():.2f} ({best}) to {over.max().item():.2f} ({worst}) times "
        f"that of a blank image; over the training region it is at most "
        f"{result['id_over_blank'].mean('seed').max().item():.3f} times."
    )
