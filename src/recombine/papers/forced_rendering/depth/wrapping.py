"""Fig. 5: the factor grid, and where a real network puts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.reproduction.panels import letter, styled

if TYPE_CHECKING:
    import xarray


def wrapping_figure(result: xarray.Dataset) -> Figure:
    """Fig. 5: the factor grid, and where a real network puts it."""
    surface, mask = result["surface"].values, result["held_out"].values
    x, y = np.meshgrid(result["x"].values, result["y"].values)
    hue = pyplot.get_cmap("viridis")((x - x.min()) / (x.max() - x.min()))[..., :3]
    shade = 0.45 + 0.55 * (y - y.min()) / (y.max() - y.min())
    colors = np.where(mask[..., None], [0.84, 0.37, 0.0], hue) * shade[..., None]
    with styled():
        figure = pyplot.figure(figsize=(8.2, 3.8), layout="constrained")
        flat = figure.add_subplot(1, 2, 1)
        flat.pcolormesh(
            x, y, np.zeros_like(x, dtype=float), facecolors=colors.reshape(-1, 3), edgecolor="white", linewidth=0.2
        )
        flat.collections[0].set_array(None)
        flat.collections[0].set_facecolor(colors.reshape(-1, 3))
        flat.set_aspect("equal")
        flat.invert_yaxis()
        flat.set_xlabel("x")
        flat.set_ylabel("y")
        letter(flat, "native", "factor space; held out in orange")
        curved = figure.add_subplot(1, 2, 2, projection="3d")
        curved.plot_surface(
            surface[..., 0], surface[..., 1], surface[..., 2], facecolors=colors, rstride=1, cstride=1, shade=False,
            linewidth=0.15, edgecolor=(1, 1, 1, 0.5), antialiased=True,
        )  # fmt: skip
        curved.set_title("(embedding) outputs, 3 main directions", loc="left", fontsize=9)
        curved.set_xticklabels([])
        curved.set_yticklabels([])
        curved.set_zticklabels([])
        curved.view_init(elev=28, azim=-55)
    return figure


def wrapping_caption(result: xarray.Dataset) -> str:
    """Fig. 5 in words."""
    extent = result["surface"].std(["y", "x"])
    held = result["surface"].where(result["held_out"]).std(["y", "x"])
    ratio = float(np.sqrt((held**2).sum() / (extent**2).sum()))
    return (
        f"The flat factor grid (left) and where a trained bump-coded CNN of depth {result.attrs['shown']} puts it "
        "(right: its "
        f"outputs along their three largest principal directions, first seed). The held-out box spreads {ratio:.2f} "
        "times "
        f"as far as the whole grid."
    )
