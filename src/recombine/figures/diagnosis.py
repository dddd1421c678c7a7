"""A diagnosis drawn: volume maps a stage, and how factorization, probes and tuning change along the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.figures.panels import half_cell, outline, styled

if TYPE_CHECKING:
    import xarray


def volume_figure(result: xarray.Dataset) -> Figure:
    """log10 of the volume element over a two-factor grid, a panel a stage, each with its own colours."""
    first, second = result["held_out"].dims
    x, y = result[first].values, result[second].values
    stages = list(result["stage"].values)
    columns = min(4, len(stages))
    rows = -(-len(stages) // columns)
    half_x, half_y = half_cell(x), half_cell(y)
    extent = (x[0] - half_x, x[-1] + half_x, y[-1] + half_y, y[0] - half_y)
    with styled():
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(2.4 * columns, 2.2 * rows), squeeze=False, layout="constrained"
        )
        for ax, stage in zip(axes.flat, stages, strict=False):
            volume = result["volume"].sel(stage=stage).transpose(second, first).values
            shown = ax.imshow(np.log10(np.where(volume > 0, volume, np.nan)), extent=extent, aspect="auto")
            outline(ax, result["held_out"].transpose(second, first).values, x, y)
            ax.set_title(str(stage))
            ax.spines[:].set_visible(True)
            figure.colorbar(shown, ax=ax, shrink=0.8)
        for ax in axes.flat[len(stages) :]:
            ax.set_visible(False)
        figure.supxlabel(str(first), fontsize=9)
        figure.supylabel(str(second), fontsize=9)
        figure.suptitle("log10 volume element", fontsize=10)
    return figure


def profile_figure(result: xarray.Dataset) -> Figure:
    """Factorization, probes and tuning indices by stage."""
    stages = [str(stage) for stage in result["stage"].values]
    panels = {
        "factorization": {"mean over points": "factorization_mean", "of means": "factorization_of_means"},
        "probe R²": {"in sample": "probe_in_sample", "held out": "probe_held_out"},
        "tuning": {"stripe index": "stripe_index", "localisation index": "localisation_index"},
    }
    with styled():
        figure, axes = pyplot.subplots(1, len(panels), figsize=(9.5, 2.9), layout="constrained")
        for ax, (title, lines) in zip(axes, panels.items(), strict=True):
            for label, name in lines.items():
                if name in result:
                    values = result[name].mean("factor") if "factor" in result[name].dims else result[name]
                    ax.plot(stages, values.values, marker="o", markersize=4, label=label)
            ax.set_title(title)
            ax.tick_params(axis="x", rotation=60)
            ax.legend()
        axes[1].set_ylim(max(-1.0, axes[1].get_ylim()[0]), 1.05)
    return figure
