"""Decoders that render each pixel from code and coordinate: drawings, errors by variant, and stages beside a CNN's."""

from __future__ import annotations

import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from recombine.papers.forced_rendering.attention import ARCHITECTURES, BASE, PLAIN
from recombine.papers.forced_rendering.superposition import COSINE, FAMILIES
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, band, bar_groups, divided, held_out_drawing, seed_count, styled

DECODERS = (*ARCHITECTURES, PLAIN)
ROWS = 3
"""Drawings of each decoder."""


def attention_figure(result: xarray.Dataset) -> Figure:
    """Drawings on the paper's task, accuracies of every variant, factorization and volume by stage."""
    with styled():
        figure = pyplot.figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[1, 2.4])
        _drawings(left, result)
        top, bottom = divided(right, 2, 1, height_ratios=[1.5, 1])
        _accuracies(top.subplots(), result)
        axes = bottom.subplots(1, 3)
        for ax, name, title in zip(
            axes, ("factorization", "spread"), ("factorization", "spread of log10 dv"), strict=False
        ):
            for decoder, color in zip(DECODERS, COLORS, strict=False):
                band(ax, result[name].sel(decoder=decoder), decoder, color)
            ax.set_title(f"{title} by stage", loc="left")
        axes[0].legend(fontsize=6)
        _kernels(axes[2], result)
    return figure


def _kernels(ax: Axes, result: xarray.Dataset) -> None:
    """Agreement of the outputs' similarities with families of kernels."""
    for k, (decoder, color) in enumerate(zip(DECODERS, COLORS, strict=False)):
        own = result.sel(decoder=decoder, similarity=COSINE)
        for family, name in enumerate(FAMILIES):
            seen = own[f"kernel_{name}"].dropna("seed").values
            place = family + 0.25 * (k - 1)
            ax.plot([place] * len(seen), seen, "o", markersize=3, alpha=0.6, color=color, markeredgewidth=0)
    ax.set_xticks(range(len(FAMILIES)), ["OR", *FAMILIES[1:]])
    ax.set_title("kernel families, correlation", loc="left")


def _drawings(figure: SubFigure, result: xarray.Dataset) -> None:
    axes = figure.subplots(ROWS, len(DECODERS), squeeze=False)
    for column, decoder in enumerate(DECODERS):
        own = result.sel(decoder=decoder, variant=BASE)
        for row in range(ROWS):
            held_out_drawing(axes[row, column], own["drawing"].isel(sample=row).values, result, row)
        axes[0, column].set_title(decoder, fontsize=8)
        axes[-1, column].set_xlabel(f"{own['ood_over_blank'].mean().item():.2f} blank", fontsize=8)


def _accuracies(ax: Axes, result: xarray.Dataset) -> None:
    """Held-out accuracy of every arm that was trained."""
    arms = [(decoder, str(variant)) for decoder in DECODERS for variant in result["variant"].values]
    values = {
        f"{decoder},\n{variant}": result["ood_accuracy"].sel(decoder=decoder, variant=variant).values
        for decoder, variant in arms
        if bool(result["ood_accuracy"].sel(decoder=decoder, variant=variant).notnull().any())
    }
    bar_groups(ax, list(values), values, COLORS)
    ax.set_xticks(range(len(values)), list(values), rotation=40, ha="right", fontsize=5.5)
    ax.set_ylim(0, 1.05)
    ax.set_title("held-out accuracy", loc="left")


def attention_caption(result: xarray.Dataset) -> str:
    """Errors by decoder."""
    base = result.sel(variant=BASE)
    words = []
    for decoder in DECODERS:
        own = base.sel(decoder=decoder).mean("seed")
        words.append(
            f"{decoder} {own['ood_over_blank'].item():.2f} (kept: {own['id_over_blank'].item():.3f}; accuracy "
            f"{100 * own['ood_accuracy'].item():.0f} %; best sum of training images that share x or y less one that "
            f"shares neither {(own['matched'] - own['mismatched']).item():.2f})"
        )
    return (
        f"Left, drawings at three held-out places of the first seed's networks, bump code, box held out, "
        f"N = {result.attrs['size']}; below, the held-out error over blank. Right, accuracy in the hold-out of every "
        "decoder and variant, a dot for each network; factorization and spread of log10 dv by stage (0: input); and "
        "how well families of kernels agree with the cosine similarity of held-out and kept outputs, "
        f"{seed_count(result['factorization'])}. Held-out error over blank, mean over networks: {'; '.join(words)}."
    )


FIGURES = (
    FigureSpec(
        "attention",
        "Decoders that know where each pixel is",
        ("attention",),
        attention_figure,
        attention_caption,
    ),
)
