"""Fig. 8: similarity, distance and overlap of all outputs, kept combinations first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.superposition.labels import KERNELS
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import HOLDOUT_COLOR, bare, seed_count, styled

if TYPE_CHECKING:
    import xarray


def kernels_figure(result: xarray.Dataset) -> Figure:
    """Three matrices for the bump code (top) and the rate code (bottom)."""
    kept = int(result.attrs["kept"])
    with styled():
        figure, axes = pyplot.subplots(2, 3, figsize=(7.6, 5.2), layout="constrained")
        for row, encoding in enumerate(("bump", "rate")):
            for column, kernel in enumerate(KERNELS):
                ax, values = axes[row, column], result["gram"].sel(encoding=encoding, kernel=kernel).values
                off = values[~np.eye(len(values), dtype=bool)]
                top = float(np.percentile(off, 99.8)) or float(values.max()) or 1.0
                image = ax.imshow(values, cmap="magma", vmin=0, vmax=top)
                for draw in (ax.axhline, ax.axvline):
                    draw(kept - 0.5, color=HOLDOUT_COLOR, linewidth=0.9, linestyle=(0, (3, 2)))
                bare(ax)
                figure.colorbar(image, ax=ax, shrink=0.8)
                if row == 0:
                    ax.set_title(KERNELS[kernel])
            axes[row, 0].set_ylabel(f"{encoding} code\nkept, then held out")
    return figure


def kernels_caption(result: xarray.Dataset) -> str:
    """The block contrasts in words."""
    means = {k: result[f"{k}_contrast"].mean("seed") for k in KERNELS}
    words = "; ".join(
        f"{KERNELS[k]} {m.sel(encoding='bump').item():.2f} against {m.sel(encoding='rate').item():.2f}"
        for k, m in means.items()
    )
    return (
        f"Matrices over the grid for the first seed's outputs, kept combinations before held-out ones (dashed). Block "
        f"contrast (similarity of pairs that share x or y less that of pairs that share none, over the spread), mean "
        "over "
        f"{seed_count(result['cosine_contrast'])}, bump against rate code: {words}."
    )


FIGURES = (
    FigureSpec(
        "fig8", "Similarity, distance and overlap of all outputs", ("superposition",), kernels_figure, kernels_caption
    ),
)
