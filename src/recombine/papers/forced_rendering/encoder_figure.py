"""The other direction: errors of encoders over the grid."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recombine.papers.forced_rendering.samples import decades
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, band, grid_image, seed_count, styled


def encoder_figure(result: xarray.Dataset) -> Figure:
    """Error of encoders over the grid."""
    codes = [str(code) for code in result["encoding"].values]
    with styled():
        figure, axes = pyplot.subplots(
            1, len(codes) + 1, figsize=(3.4 * (len(codes) + 1), 3.1), layout="constrained", squeeze=False
        )
        for ax, code in zip(axes[0], codes, strict=False):
            values = np.log10(np.maximum(result["error"].sel(encoding=code).values, 1e-8))
            image = grid_image(ax, values, result)
            ax.set_title(f"image to {code} code")
            figure.colorbar(image, ax=ax, shrink=0.8, label="log10 error / mean code's")
        for code, color in zip(codes, COLORS, strict=False):
            own = result.sel(encoding=code)
            band(axes[0, -1], decades(own["distance_mse"], own["id_mse"]), f"{code} code", color)
        axes[0, -1].axhline(1, color="0.7", linewidth=0.8)
        axes[0, -1].xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, -1].set_xlabel("px from the kept region")
        axes[0, -1].set_title("log10 error / error outside")
        axes[0, -1].legend(fontsize=7)
    return figure


def encoder_caption(result: xarray.Dataset) -> str:
    """Errors inside and outside."""
    words = "; ".join(
        f"{code} code {result['id_over_blank'].sel(encoding=code).mean().item():.3g} and "
        f"{result['ood_over_blank'].sel(encoding=code).mean().item():.3g}, read right for "
        f"{100 * result['ood_accuracy'].sel(encoding=code).mean().item():.0f} % of held-out images"
        for code in result["encoding"].values
    )
    ratios = "; ".join(
        f"{code} code {decades(own['ood_mse'], own['id_mse']).mean().item():.2f} (linear read-out of the last hidden "
        f"stage {decades(own['readout_held'], own['readout_kept']).mean().item():.2f})"
        for code in result["encoding"].values
        for own in (result.sel(encoding=code),)
    )
    return (
        "The other direction: a convolutional encoder from bump images to their code. Squared error over the grid "
        f"relative to always giving the mean code, {seed_count(result['ood_over_blank'])}; kept and held-out means: "
        f"{words}. Right, error in the hold-out over that outside by distance from the kept region, in decades; over "
        f"all of it: {ratios}."
    )


FIGURES = (FigureSpec("encoder", "The other direction: image to code", ("encoder",), encoder_figure, encoder_caption),)
