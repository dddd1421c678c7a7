"""Fig. 13 and 14: MLPs by depth."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.depth_figure import probes_and_factorization
from recombine.papers.forced_rendering.mlp import CNN_ARM, MLP_ARM
from recombine.papers.forced_rendering.presets import CODES
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import band, seed_count, volume_rows
from recombine.reproduction.tables import listed_attribute

CNN_COLOR = "#D55E00"


def _depths(result: xarray.Dataset) -> list[int]:
    return listed_attribute(result, "mlp_depths")


def mlp_volumes_figure(result: xarray.Dataset) -> Figure:
    """Fig. 13: log10 dv at every stage of MLPs, and of a CNN below."""
    rows = [
        (f"{code}\nMLP {depth}", result["log_volume"].sel(encoding=code, decoder=MLP_ARM, depth=depth))
        for code in CODES
        for depth in _depths(result)
    ]
    depth = int(result.attrs["cnn_depth"])
    rows += [(f"{c}\nCNN {depth}", result["log_volume"].sel(encoding=c, decoder=CNN_ARM, depth=depth)) for c in CODES]
    return volume_rows(result, rows, "log10 of the volume element by stage (columns: input, layers, output)", 1.0)


def _contrast(result: xarray.Dataset, code: str, decoder: str) -> float:
    own = result["contrast"].sel(encoding=code, decoder=decoder).isel(stage=slice(1, None))
    return float(own.mean("stage").mean())


def mlp_volumes_caption(result: xarray.Dataset) -> str:
    """The contrasts in words."""
    words = [
        f"{code} code: MLP {_contrast(result, code, MLP_ARM):+.2f}, CNN {_contrast(result, code, CNN_ARM):+.2f}"
        for code in CODES
    ]
    return (
        "log10 of the volume element over the grid, first seed, each panel in colours of its own. Mean of log10 dv in "
        f"the held-out region less that of the kept one, over layers and {seed_count(result['contrast'])}: "
        + "; ".join(words)
        + "."
    )


def mlp_profiles_figure(result: xarray.Dataset) -> Figure:
    """Fig. 14: probes and factorization of MLPs, a CNN beside them."""
    depths, cnn_depth = _depths(result), result.attrs["cnn_depth"]
    shades = pyplot.get_cmap("viridis")(np.linspace(0.05, 0.9, len(depths)))

    def lines(ax: Axes, code: str, name: str) -> None:
        own = result[name].sel(encoding=code)
        for depth, color in zip(depths, shades, strict=True):
            band(ax, own.sel(decoder=MLP_ARM, depth=depth), f"MLP {depth}", color)
        cnn = own.sel(decoder=CNN_ARM, depth=cnn_depth)
        band(ax, cnn, f"CNN {cnn_depth}", CNN_COLOR, linestyle="--", marker="s")

    return probes_and_factorization(lines)


def mlp_profiles_caption(result: xarray.Dataset) -> str:
    """Falls of factorization in words."""
    words = []
    for code in CODES:
        own = result["factorization"].sel(encoding=code)
        fall = (own.isel(stage=0) - own.min("stage")).mean("seed")
        mlp = fall.sel(decoder=MLP_ARM).mean().item()
        cnn = fall.sel(decoder=CNN_ARM, depth=result.attrs["cnn_depth"]).item()
        words.append(f"{code} code: {mlp:.2f} for MLPs, {cnn:.2f} for the CNN")
    return (
        "Held-out linear probes and factorization along the stages of MLPs, a CNN dashed; means and standard errors "
        f"over {seed_count(result['factorization'])}. Factorization falls from the input to its lowest stage by: "
        + "; ".join(words)
        + "."
    )


FIGURES = (
    FigureSpec("fig13", "Volume element of MLPs", ("mlp",), mlp_volumes_figure, mlp_volumes_caption),
    FigureSpec("fig14", "Probes and factorization of MLPs", ("mlp",), mlp_profiles_figure, mlp_profiles_caption),
)
