"""Remedies by number of factors."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.factors import ALL_KEPT, ARMS, CNN_ISOLATED, COORDINATE
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, bare, divided, letter, seed_count, styled

SHARES = {"all_values_accuracy": "every value right, held out", "ood_accuracy": "bumps in place, held out"}
RIGHT = 0.9
"""Share of held-out outputs that are right from which on a network composes."""


def factors_figure(result: xarray.Dataset) -> Figure:
    """Accuracy, error, values and products by number of factors; accuracy by data; drawings."""
    full = result.sel(data=ALL_KEPT)
    with styled():
        figure = pyplot.figure(figsize=(12.4, 6.4), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1])
        panels = top.subplots(1, 4)
        for ax, (name, title) in zip(panels, SHARES.items(), strict=False):
            _by_count(ax, full, name)
            ax.set_ylim(-0.03, 1.03)
            ax.set_title(title)
        _by_count(panels[2], full, "ood_over_blank")
        panels[2].set_yscale("log")
        panels[2].axhline(1, color="0.7", linewidth=0.8)
        panels[2].set_title("error over blank, held out")
        _by_count(panels[3], full, "products")
        panels[3].plot(full["count"], full["target_products"].mean(["arm", "seed"]), "k:", label="right images")
        panels[3].set_title("products per pixel, held out")
        panels[3].legend(fontsize=7)
        for ax, name in zip(panels, "abcd", strict=True):
            letter(ax, name, ax.get_title())
        left, right = divided(bottom, 1, 2, width_ratios=[1, 1.25])
        for ax, arm in zip(left.subplots(1, 2, sharey=True), (CNN_ISOLATED, COORDINATE), strict=True):
            _by_data(ax, result.sel(arm=arm))
            letter(ax, "e" if arm == CNN_ISOLATED else "f", arm)
        left.legend(*left.axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=4)
        left.supylabel("every value right, held out", fontsize=8)
        _drawings(right, full)
    return figure


def _by_count(ax: Axes, full: xarray.Dataset, name: str) -> None:
    """Every network a dot, means joined by a line, by arm."""
    counts = full["count"].values
    for place, (arm, color) in enumerate(zip(ARMS, COLORS, strict=False)):
        values = full[name].sel(arm=arm)
        shift = 0.07 * (place - (len(ARMS) - 1) / 2)
        for count in counts:
            own = values.sel(count=count).values
            ax.plot(np.full(own.shape, count + shift), own, "o", markersize=2, alpha=0.35, color=color,
                    markeredgewidth=0)  # fmt: skip
        ax.plot(counts + shift, values.mean("seed"), "-", color=color, label=arm)
    ax.set_xticks(counts)
    ax.set_xlabel("factors")


def _by_data(ax: Axes, result: xarray.Dataset) -> None:
    """Right outputs against the number of combinations trained on, one line per number of factors."""
    amounts = np.array([int(data) for data in result["data"].values if data != ALL_KEPT])
    for count, color in zip(result["count"].values, COLORS, strict=False):
        means = result["all_values_accuracy"].sel(count=count, data=amounts).mean("seed").values
        ax.plot(amounts, means, "o-", markersize=3, color=color, label=f"{int(count)} factors")
    ax.axhline(RIGHT, color="0.7", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xticks(amounts, [str(amount) for amount in amounts])
    ax.set_xticks([], minor=True)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("combinations trained on")


def _drawings(figure: Figure, full: xarray.Dataset) -> None:
    """The first seed's outputs at a few held-out points, with the most factors; the right images on top."""
    own = full.sel(count=full["count"].values[-1])
    rows = [("right images", own["truth"].sel(arm=ARMS[0]).values)]
    rows += [(arm, own["drawing"].sel(arm=arm).values) for arm in ARMS]
    rows = [(name, images) for name, images in rows if np.isfinite(images).any()]
    axes = figure.subplots(own.sizes["sample"], len(rows))
    for column, (name, images) in enumerate(rows):
        for ax, image in zip(axes[:, column], images, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=1)
            bare(ax)
        axes[0, column].set_title(name.replace(", ", ",\n"), fontsize=7)
    figure.suptitle(f"(g) {int(own['count'])} factors, held out", fontsize=9)


def needed(result: xarray.Dataset, arm: str, count: int) -> str:
    """The smallest training set with which most held-out outputs are right on average, in words."""
    means = result["all_values_accuracy"].sel(arm=arm, count=count).mean("seed")
    enough = [int(data) for data in result["data"].values if data != ALL_KEPT and float(means.sel(data=data)) >= RIGHT]
    if enough:
        return str(min(enough))
    return "all kept" if float(means.sel(data=ALL_KEPT)) >= RIGHT else "not reached"


def factors_caption(result: xarray.Dataset) -> str:
    """Means by arm and number of factors."""
    full = result.sel(data=ALL_KEPT)
    counts = [int(count) for count in result["count"].values]

    def line(name: str, arm: str) -> str:
        means = (full[name].sel(arm=arm, count=count).mean().item() for count in counts)
        return ", ".join("–" if np.isnan(mean) else f"{mean:.2f}" for mean in means)

    shares = "; ".join(f"{arm} {line('all_values_accuracy', arm)} ({line('ood_accuracy', arm)})" for arm in ARMS)
    products = "; ".join(f"{arm} {line('products', arm)}" for arm in ARMS)
    data = "; ".join(
        f"{arm} " + ", ".join(needed(result, arm, count) for count in counts) for arm in (CNN_ISOLATED, COORDINATE)
    )
    return (
        f"Bumps with {', '.join(map(str, counts))} factors, the box of x and y held out, trained on all kept "
        f"combinations; {seed_count(full['ood_accuracy'])}. Share of held-out outputs with every value "
        f"right (in place) by number of factors: {shares}. (d) Products of single-factor functions per pixel "
        f"(relative error {result.attrs['epsilon']:g}, no more than 5 told apart): {products}. (e, f) Fewer "
        f"combinations, {seed_count(result['ood_accuracy'].sel(arm=COORDINATE).isel(data=slice(1, None)))}; smallest "
        f"of those tried with 90 % right: {data}. (g) First seed's drawings."
    )


FIGURES = (FigureSpec("factors", "Remedies with more factors", ("factors",), factors_figure, factors_caption),)
