"""Fig. 8: similarity, distance and overlap of all outputs, kept combinations first."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    COSINE,
    DISTANCE,
    KERNELS,
    SHOWN_THRESHOLD,
    overlap,
)
from recombine.papers.forced_rendering.superposition_claims import contrast
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import HOLDOUT_COLOR, bare, seed_count, styled


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


SHOWN = {"cosine": COSINE, "l2": DISTANCE, "overlap": overlap(SHOWN_THRESHOLD)}
"""Each pictured kernel, and its name among block contrasts."""


def kernels_caption(result: xarray.Dataset) -> str:
    """The block contrasts in words."""
    networks = result.sel(decoder=CNN_ARM)
    seeds = seed_count(networks["block_contrast"].sel(encoding="bump"))
    words = []
    for kernel, name in SHOWN.items():
        means = contrast(networks, name).mean("seed")
        bump, rate = (means.sel(encoding=code).item() for code in ("bump", "rate"))
        words.append(f"{KERNELS[kernel]} {bump:.2f} against {rate:.2f}")
    return (
        "Matrices over the grid for the first seed's outputs, kept combinations before held-out ones (dashed). Block "
        "contrast of held-out with kept outputs (similarity of pairs that share x or y less that of pairs that share "
        f"none, over the spread), mean over {seeds}, bump against rate code: {'; '.join(words)}."
    )


FIGURES = (
    FigureSpec(
        "fig8", "Similarity, distance and overlap of all outputs", ("superposition",), kernels_figure, kernels_caption
    ),
)
