"""Figures 3 and 6: rendered embeddings and their penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import NullFormatter

from recombine import panels
from recombine.papers.forced_rendering.penalties import ARMS, BOTH, NONE, RAW, UNIT
from recombine.papers.forced_rendering.penalties_claims import log_roughness
from recombine.reproduction.figures import FigureSpec, cell


def penalties_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 3: a schematic, two embeddings, the volume element, and the ablation."""
    stages = int(result["log_volume"].sel(arm=NONE, vectors=UNIT).notnull().any(["y", "x"]).sum())
    middle = round(14 / 32 * int(result.attrs["size"]))  # the paper shows value 14 of 32
    with panels.styled():
        figure = pyplot.figure(figsize=(9.8, 6.3), layout="constrained")
        top, bottom = panels.divided(figure, 2, 1, height_ratios=[1.15, 1.1])
        left, right = panels.divided(top, 1, 2, width_ratios=[1.25, 1])
        below, scatter = panels.divided(bottom, 1, 2, width_ratios=[1.25, 1])
        _schematic(left.subplots(), result, middle)
        pairs, volumes, maps = right.subplots(2, 2), below.subplots(2, stages), {}
        for row, (arm, label) in enumerate({NONE: ARMS[NONE], BOTH: "both penalties"}.items()):
            for ax, factor in zip(pairs[row], ("x", "y"), strict=True):
                image = _embedding(ax, result, arm, factor, middle)
                ax.set_title(f"{factor} = {middle}", fontsize=8)
            pairs[row, 0].set_ylabel(label)
            maps[label] = result["log_volume"].sel(arm=arm, vectors=UNIT)
        panels.color_bar(pairs, image, "share of largest", ticks=(-1, 0, 1))
        panels.volume_maps(volumes, result, maps)
        panels.letter(pairs[0, 0], "b", f"x = {middle}")
        panels.letter(volumes[0, 0], "c", "log10 dv: in")
        ax = scatter.subplots()
        for color, marker, (arm, label) in zip(panels.COLORS, "os^D", ARMS.items(), strict=False):
            own = result.sel(arm=arm, vectors=UNIT)
            (dots,) = ax.plot(own["id_mse"], own["ood_mse"], marker, color=color, label=label, markersize=4.5)
            dots.set(alpha=0.75, markeredgewidth=0)
        ax.set(xscale="log", yscale="log", xlabel="ID MSE", ylabel="OOD MSE")
        ax.xaxis.set_minor_formatter(NullFormatter())  # labels within a decade would overlap
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
        for place in range(6):
            box: dict[str, Any] = {"facecolor": panels.COLORS[0] if place == 2 else "white", "edgecolor": "black"}
            ax.add_patch(Rectangle((0.3, base + 0.25 * place), 0.35, 0.25, linewidth=0.6, **box))
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


def _embedding(ax: Axes, result: xarray.Dataset, arm: str, factor: str, value: int) -> Any:
    image = result["embedding"].sel(arm=arm, factor=factor).isel(value=value).values
    image = image - np.median(image)  # a constant offset would hide the bands
    top = float(np.abs(image).max()) or 1.0
    shown = ax.imshow(image / top, cmap="PuOr", vmin=-1, vmax=1)
    panels.bare(ax)
    return shown


def _mean(result: xarray.Dataset, name: str, arm: str) -> float:
    return float(result[name].sel(arm=arm, vectors=UNIT).mean("seed"))


def penalties_caption(result: xarray.Dataset) -> str:
    return (
        "(a) Architecture, with embeddings of the penalised network; (b) embeddings of the middle value, less their "
        "median, as a share of their largest absolute value; (c) log10 of the volume element by stage, less its "
        "median, from finite differences since one-hot codes have no derivative, after aligning embeddings of "
        "neighbouring values in sign; (d) held-out against training error, one dot per seed; the table gives means "
        f"over {panels.seed_count(result['rank'].sel(vectors=UNIT))}, geometric ones of errors because of a few "
        "outliers."
    )


def penalties_table(result: xarray.Dataset) -> list[list[str]]:
    unit, rows = result.sel(vectors=UNIT), []
    for arm, label in ARMS.items():
        own, over = unit.sel(arm=arm), result["ood_over_blank"].sel(arm=arm)
        raw, _ = panels.of_shared_seeds(over.sel(vectors=RAW), over.sel(vectors=UNIT))
        errors = [own["ood_over_blank"], own["id_over_blank"], *([raw] if raw.size else [])]
        numbers = [f"{panels.geometric_mean(values):.2g}" for values in errors]
        roughness = 10 ** log_roughness(own).mean()
        properties = cell(_mean(result, "rank", arm), 1), cell(_mean(result, "band", arm)), cell(roughness, 3)
        rows.append([label, *numbers, *["–"] * (3 - len(numbers)), *properties, cell(_mean(result, "aligned", arm))])
    heads = ["held-out error / blank", "kept error / blank", "held-out error / blank, published penalty on raw vectors"]
    more = [
        "effective rank",
        "band index",
        "roughness of log10 dv",
        "share of bands within a pixel of their coordinate",
    ]
    return [["penalty", *heads, *more], *rows]


def embeddings_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 6: all embeddings without penalties and with both."""
    values = result.sizes["value"]
    columns = 8 if values > 16 else 6
    rows = -(-values // columns)
    with panels.styled():
        figure = pyplot.figure(figsize=(10.0, 1.05 * 2 * rows * 4.5 / columns + 0.6), layout="constrained")
        maps, bar = panels.divided(figure, 1, 2, width_ratios=[12, 1])
        for part_row, factor in zip(panels.divided(maps, 2, 2), ("x", "y"), strict=True):
            for part, arm in zip(part_row, (NONE, BOTH), strict=True):
                axes = part.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.02, "hspace": 0.02}).flat
                for value, ax in enumerate(axes[:values]):
                    image = _embedding(ax, result, arm, factor, value)
                for ax in axes[values:]:
                    ax.set_visible(False)
                name = "without penalties" if arm == NONE else "with both penalties"
                part.suptitle(f"{factor} embeddings {name}", fontsize=9)
        bar.colorbar(image, cax=bar.add_axes((0.0, 0.3, 0.18, 0.4)), ticks=(-1, 0, 1), label="share of largest")
    return figure


def embeddings_caption(result: xarray.Dataset) -> str:
    return (
        f"All embedding images of x and of y for values 0 to {result.sizes['value'] - 1}, first seed, each less its "
        "median and as a share of its largest absolute value; the band index (share of an image's variance along "
        f"one axis) is {_mean(result, 'band', NONE):.2f} without and {_mean(result, 'band', BOTH):.2f} with both, "
        f"mean over {panels.seed_count(result['band'].sel(vectors=UNIT))}."
    )


FIGURES = (
    FigureSpec(
        "fig3",
        "Remedy A: rendered embeddings and their penalties",
        ("penalties",),
        penalties_figure,
        penalties_caption,
        penalties_table,
    ),
    FigureSpec(
        "fig6", "All embeddings, without and with penalties", ("penalties",), embeddings_figure, embeddings_caption
    ),
)
