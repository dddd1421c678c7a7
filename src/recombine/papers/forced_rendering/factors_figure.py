"""Figure of the factors study: accuracy, error and products by number of factors, amounts of data, and outputs."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import bare, divided, letter, seed_count, shades, styled
from recombine.papers.forced_rendering.factors import ALL_KEPT, ARMS, COMPOSES, COORDINATE, FEWER_DATA, RIGHT, relative
from recombine.papers.forced_rendering.palette import arm_styles
from recombine.reproduction.figures import FigureSpec, cell


def factors_figure(result: xarray.Dataset) -> Figure:
    """Plot accuracy, error and products by number of factors, accuracy by amount of data, and outputs."""
    full = result.sel(data=ALL_KEPT)
    titles = {
        RIGHT: "every value right, held out",
        "ood_accuracy": "bumps in place, held out",
        "ood_over_blank": "error over blank, held out",
        "products": "products per pixel, held out",
    }
    with styled():
        figure = pyplot.figure(figsize=(12.4, 6.4), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1])
        panels = top.subplots(1, 4)
        for ax, place, (name, title) in zip(panels, "abcd", titles.items(), strict=True):
            _by_count(ax, full, name)
            letter(ax, place, title)
        for ax in panels[:2]:
            ax.set_ylim(-0.03, 1.03)
        panels[2].set_yscale("log")
        panels[2].axhline(1, color="0.7", linewidth=0.8)
        panels[3].plot(full["count"], full["target_products"].mean(["arm", "seed"]), "k:", label="right images")
        panels[3].legend(fontsize=7)
        left, right = divided(bottom, 1, 2, width_ratios=[1, 1.25])
        for ax, place, arm in zip(left.subplots(1, 2, sharey=True), "ef", FEWER_DATA, strict=True):
            _by_data(ax, result.sel(arm=arm))
            letter(ax, place, arm)
        left.legend(*left.axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=4)
        left.supylabel("every value right, held out", fontsize=8)
        _drawings(right, full)
    return figure


def _by_count(ax: Axes, full: xarray.Dataset, name: str) -> None:
    """Plot each network as a dot, with a line through the means of each arm."""
    counts = full["count"].values
    for place, (arm, style) in enumerate(arm_styles(ARMS).items()):
        values = full[name].sel(arm=arm)
        at = counts + 0.07 * (place - (len(ARMS) - 1) / 2)
        dots = values.transpose("count", "seed").values
        ax.plot(at, dots, "o", markersize=2, alpha=0.35, color=style["color"], markeredgewidth=0)
        ax.plot(at, values.mean("seed"), markersize=4, label=arm, **style)
    ax.set(xticks=counts, xlabel="factors")


def _by_data(ax: Axes, result: xarray.Dataset) -> None:
    """Plot the share of right outputs against the number of training combinations, by number of factors."""
    amounts = np.array([int(data) for data in result["data"].values if data != ALL_KEPT])
    for count, shade in zip(result["count"].values, shades("#666666", result.sizes["count"]), strict=True):
        means = result[RIGHT].sel(count=count, data=amounts).mean("seed").values
        ax.plot(amounts, means, "o-", markersize=3, color=shade, label=f"{int(count)} factors")
    ax.axhline(COMPOSES, color="0.7", linewidth=0.8)
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="combinations trained on")
    ax.set_xticks(amounts, [str(amount) for amount in amounts])
    ax.set_xticks([], minor=True)


def _drawings(figure: Figure, full: xarray.Dataset) -> None:
    """Show target images and the first seed's outputs at a few held-out points, for the largest number of factors."""
    own = full.sel(count=full["count"].values[-1])
    images = {"right images": own["truth"].sel(arm=ARMS[0]), **{arm: own["drawing"].sel(arm=arm) for arm in ARMS}}
    images = {name: drawn for name, drawn in images.items() if np.isfinite(drawn.values).any()}
    axes = figure.subplots(own.sizes["sample"], len(images))
    for column, (name, drawn) in zip(axes.T, images.items(), strict=True):
        for ax, image in zip(column, drawn.values, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=1)
            bare(ax)
        column[0].set_title(name.replace(", ", ",\n"), fontsize=7)
    figure.suptitle(f"(g) {int(own['count'])} factors, held out", fontsize=9)


def needed(result: xarray.Dataset, arm: str, count: int) -> str:
    """Return, as text, the smallest training-set size at which the mean share of right outputs reaches 90 %."""
    means = result[RIGHT].sel(arm=arm, count=count).mean("seed")
    enough = means["data"].values[means.values >= COMPOSES]
    fewer = enough[enough != ALL_KEPT]
    return str(int(fewer.min())) if len(fewer) else "all kept" if len(enough) else "not reached"


def factors_caption(result: xarray.Dataset) -> str:
    full, counts = result.sel(data=ALL_KEPT), [str(int(count)) for count in result["count"].values]
    fewer = result["ood_accuracy"].sel(arm=COORDINATE).isel(data=slice(1, None))
    return (
        f"Bumps with {', '.join(counts)} factors, the box of x and y held out: (a–d) networks trained on all kept "
        f"combinations, {seed_count(full['ood_accuracy'])}, with products of single-factor functions per pixel (d) "
        f"counted up to 5 at a relative error of {result.attrs['epsilon']:g}; (e, f) on fewer combinations, "
        f"{seed_count(fewer)}; (g) the first seed's outputs."
    )


def factors_table(result: xarray.Dataset) -> list[list[str]]:
    full = result.sel(data=ALL_KEPT)
    full = full.assign(relative=relative(full)).mean("seed")
    columns = {
        RIGHT: "every value right", "relative": "relative to trained combinations", "ood_accuracy": "in place",
        "products": "products per pixel",
    }  # fmt: skip
    rows = [
        [arm, str(int(count)), *(cell(full[name].sel(arm=arm, count=count)) for name in columns),
         needed(result, arm, count) if arm in FEWER_DATA else "–"]
        for arm in ARMS for count in result["count"].values
    ]  # fmt: skip
    return [["held out, mean", "factors", *columns.values(), "combinations needed for 90 % right"], *rows]


FIGURES = (
    FigureSpec("factors", "Remedies with more factors", ("factors",), factors_figure, factors_caption, factors_table),
)
