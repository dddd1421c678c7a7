"""Figures 3 and 6: rendered embeddings and their penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from recombine import panels
from recombine.papers.forced_rendering.penalties import ARMS, BOTH, NONE, RAW, UNIT, VARIANCE
from recombine.papers.forced_rendering.penalties_claims import log_roughness
from recombine.reproduction.figures import FigureSpec


def penalties_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 3: a schematic, two embeddings, the volume element, and the ablation."""
    stages = int(result["log_volume"].sel(arm=NONE, vectors=UNIT).notnull().any(["y", "x"]).sum())
    middle = round(14 / 32 * int(result.attrs["size"]))  # the paper shows value 14 of 32
    with panels.styled():
        figure = pyplot.figure(figsize=(9.8, 6.3), layout="constrained")
        top, bottom = panels.divided(figure, 2, 1, height_ratios=[1.15, 1.1])
        left, right = panels.divided(top, 1, 2, width_ratios=[1.25, 1])
        maps, scatter = panels.divided(bottom, 1, 2, width_ratios=[1.25, 1])
        _schematic(left.subplots(), result, middle)
        pairs, volumes = right.subplots(2, 2), maps.subplots(2, stages)
        for row, (arm, label) in enumerate({NONE: ARMS[NONE], BOTH: "both penalties"}.items()):
            for ax, factor in zip(pairs[row], ("x", "y"), strict=True):
                _embedding(ax, result, arm, factor, middle)
                ax.set_title(f"{factor} = {middle}", fontsize=8)
            panels.volume_line(list(volumes[row]), result, result["log_volume"].sel(arm=arm, vectors=UNIT))
            pairs[row, 0].set_ylabel(label)
            volumes[row, 0].set_ylabel(label)
        panels.letter(pairs[0, 0], "b", f"x = {middle}")
        panels.letter(volumes[0, 0], "c", "log10 dv: in")
        ax = scatter.subplots()
        for color, marker, (arm, label) in zip(panels.COLORS, "os^D", ARMS.items(), strict=False):
            own = result.sel(arm=arm, vectors=UNIT)
            (dots,) = ax.plot(own["id_mse"], own["ood_mse"], marker, color=color, label=label, markersize=4.5)
            dots.set(alpha=0.75, markeredgewidth=0)
        ax.set(xscale="log", yscale="log", xlabel="ID MSE", ylabel="OOD MSE")
        ax.legend(fontsize=8)
        panels.letter(ax, "d", f"ablation, {panels.seed_count(result['ood_mse'].sel(vectors=UNIT))}")
    return figure


def _schematic(ax: Axes, result: xarray.Dataset, value: int) -> None:
    """Draw the architecture: one-hot codes select images, which a small network mixes."""
    ax.set(xlim=(0, 10), ylim=(0, 5))
    ax.axis("off")
    panels.letter(ax, "a", "each factor value owns a low-rank image")
    arrows = [((7.1, 2.5), (8.0, 2.5))]
    for row, factor in enumerate(("x", "y")):
        base = 3.1 - 2.2 * row
        for cell in range(6):
            box: dict[str, Any] = {"facecolor": panels.COLORS[0] if cell == 2 else "white", "edgecolor": "black"}
            ax.add_patch(Rectangle((0.3, base + 0.25 * cell), 0.35, 0.25, linewidth=0.6, **box))
        ax.text(0.48, base - 0.3, factor, ha="center", fontsize=9)
        _embedding(ax.inset_axes((2.3, base, 1.6, 1.6), transform=ax.transData), result, BOTH, factor, value)
        arrows += [((0.8, base + 0.75), (2.2, base + 0.75)), ((4.0, base + 0.75), (5.4, 2.5))]
    for start, end in arrows:
        ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color="black"))
    ax.text(1.5, 4.75, "W = Σ λ v uᵀ", fontsize=8, ha="center")
    ax.add_patch(Rectangle((5.5, 1.9), 1.5, 1.2, facecolor="#e8eef5", edgecolor="black", linewidth=0.8))
    ax.text(6.25, 2.5, "small\nconv net", ha="center", va="center", fontsize=8)
    inset = ax.inset_axes((8.1, 1.7, 1.6, 1.6), transform=ax.transData)
    distance = np.arange(int(result.attrs["size"])) - value
    profile = np.exp(-(distance**2) / (2 * float(result.attrs["sigma"]) ** 2))
    inset.imshow(np.outer(profile, profile), cmap="gray")
    panels.bare(inset)


def _embedding(ax: Axes, result: xarray.Dataset, arm: str, factor: str, value: int) -> None:
    image = result["embedding"].sel(arm=arm, factor=factor).isel(value=value).values
    image = image - np.median(image)  # a constant offset would hide the bands
    top = float(np.abs(image).max()) or 1.0
    ax.imshow(image, cmap="PuOr", vmin=-top, vmax=top)
    panels.bare(ax)


def _mean(result: xarray.Dataset, name: str, arm: str) -> float:
    return float(result[name].sel(arm=arm, vectors=UNIT).mean("seed"))


def penalties_caption(result: xarray.Dataset) -> str:
    unit = result.sel(vectors=UNIT)
    errors = ", ".join(
        f"{label} {panels.geometric_mean(unit['ood_over_blank'].sel(arm=arm)):.2g} "
        f"(ID {panels.geometric_mean(unit['id_over_blank'].sel(arm=arm)):.2g})"
        for arm, label in ARMS.items()
    )
    conventions = []
    for arm in (VARIANCE, BOTH):
        over = result["ood_over_blank"].sel(arm=arm)
        raw, own = panels.of_shared_seeds(over.sel(vectors=RAW), over.sel(vectors=UNIT))
        means = f"{panels.geometric_mean(raw):.2f} against {panels.geometric_mean(own):.2f} on unit vectors"
        conventions.append(f"{ARMS[arm]} {means} ({panels.seed_count(raw)})")
    without, penalised = (10 ** log_roughness(unit.sel(arm=arm)).mean().item() for arm in (NONE, BOTH))
    return (
        "(a) Architecture, with embeddings of the penalised network. (b) Embeddings of the middle value, minus their "
        f"median, without and with both penalties: effective rank {_mean(result, 'rank', NONE):.1f} and "
        f"{_mean(result, 'rank', BOTH):.1f}, band index {_mean(result, 'band', NONE):.2f} and "
        f"{_mean(result, 'band', BOTH):.2f}, bands within a pixel of their coordinate "
        f"{100 * _mean(result, 'aligned', NONE):.0f} % and {100 * _mean(result, 'aligned', BOTH):.0f} %, means over "
        f"all values and {panels.seed_count(unit['rank'])}. (c) log10 of the volume element by stage, from finite "
        "differences since one-hot codes have no derivative, after aligning embeddings of neighbouring values in sign; "
        "its roughness over held-out points (median absolute Laplacian, geometric mean over hidden stages and output) "
        f"is {without:.3f} without and {penalised:.3f} with both penalties. (d) Held-out against training error, one "
        "dot per seed. Held-out error over blank, geometric mean over seeds because of a "
        f"few outliers: {errors}. The same with the published scripts' penalty on raw vectors, over seeds trained with "
        f"both: {', '.join(conventions)}."
    )


def embeddings_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 6: all embeddings without penalties and with both."""
    values = result.sizes["value"]
    columns = 8 if values > 16 else 6
    rows = -(-values // columns)
    with panels.styled():
        figure = pyplot.figure(figsize=(9.4, 1.05 * 2 * rows * 4.5 / columns + 0.6), layout="constrained")
        for part_row, factor in zip(panels.divided(figure, 2, 2), ("x", "y"), strict=True):
            for part, arm in zip(part_row, (NONE, BOTH), strict=True):
                axes = part.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.02, "hspace": 0.02}).flat
                for value, ax in enumerate(axes[:values]):
                    _embedding(ax, result, arm, factor, value)
                for ax in axes[values:]:
                    ax.set_visible(False)
                name = "without penalties" if arm == NONE else "with both penalties"
                part.suptitle(f"{factor} embeddings {name}", fontsize=9)
    return figure


def embeddings_caption(result: xarray.Dataset) -> str:
    return (
        f"All embedding images of x and of y for values 0 to {result.sizes['value'] - 1}, first seed, each minus "
        "its median and with its own colour scale. Band index (share of an image's variance along one axis) over "
        f"{panels.seed_count(result['band'].sel(vectors=UNIT))}: "
        f"{_mean(result, 'band', NONE):.2f} without and {_mean(result, 'band', BOTH):.2f} with both penalties."
    )


FIGURES = (
    FigureSpec(
        "fig3", "Remedy A: rendered embeddings and their penalties", ("penalties",), penalties_figure, penalties_caption
    ),
    FigureSpec(
        "fig6", "All embeddings, without and with penalties", ("penalties",), embeddings_figure, embeddings_caption
    ),
)
