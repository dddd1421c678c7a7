"""The other direction: errors of encoders over the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import grid_image, seed_count, styled

if TYPE_CHECKING:
    import xarray


def encoder_figure(result: xarray.Dataset) -> Figure:
    """Error of encoders over the grid."""
    codes = [str(code) for code in result["encoding"].values]
    with styled():
        figure, axes = pyplot.subplots(
            1, len(codes), figsize=(3.4 * len(codes), 3.1), layout="constrained", squeeze=False
        )
        for ax, code in zip(axes[0], codes, strict=True):
            values = np.log10(np.maximum(result["error"].sel(encoding=code).values, 1e-8))
            image = grid_image(ax, values, result)
            ax.set_title(f"image to {code} code")
            figure.colorbar(image, ax=ax, shrink=0.8, label="log10 error / mean code's")
    return figure


def encoder_caption(result: xarray.Dataset) -> str:
    """Errors inside and outside."""
    words = "; ".join(
        f"{code} code {result['id_over_blank'].sel(encoding=code).mean().item():.3g} and "
        f"{result['ood_over_blank'].sel(encoding=code).mean().item():.3g}, read right for "
        f"{100 * result['ood_accuracy'].sel(encoding=code).mean().item():.0f} % of held-out images"
        for code in result["encoding"].values
    )
    return (
        f"The other direction: a convolutional encoder from bump images to their code. Squared error over the grid "
        "relative to "
        f"always giving the mean code, {seed_count(result['ood_over_blank'])}; kept and held-out means: {words}."
    )


FIGURES = (FigureSpec("encoder", "The other direction: image to code", ("encoder",), encoder_figure, encoder_caption),)
