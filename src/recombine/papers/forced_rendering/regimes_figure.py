"""Kernel regimes of failing and composing networks."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, bar_groups, seed_count, styled


def regimes_figure(result: xarray.Dataset) -> Figure:
    """Schmidt spectra and ranks, single-factor weights and distances to the ideal of failing and composing networks."""
    arms = [str(arm) for arm in result["arm"].values]
    with styled():
        figure, axes = pyplot.subplots(1, 4, figsize=(12.4, 3.5), layout="constrained")
        modes = np.arange(1, result.sizes["mode"] + 1)
        for arm, color in zip(arms, COLORS, strict=False):
            axes[0].plot(
                modes, result["schmidt"].sel(arm=arm).mean("seed"), "o-", markersize=3.5, color=color, label=arm
            )
        ideals = np.unique(result["ideal_schmidt"].values.round(6), axis=0)
        for number, ideal in enumerate(ideals):
            axes[0].plot(modes, ideal, "k:", label="ideal bumps" if number == 0 else None)
        axes[0].set_yscale("log")
        axes[0].set_ylim(bottom=1e-3)
        axes[0].set_xlabel("mode")
        axes[0].set_title("operator-Schmidt values")
        axes[0].legend(fontsize=7)
        for ax, name, title in zip(
            axes[1:],
            ("schmidt_rank", "single_factor", "kernel_distance"),
            ("Schmidt rank", "PF_Coeff, single factors", "distance to ideal kernel"),
            strict=True,
        ):
            bar_groups(ax, arms, {arm: result[name].sel(arm=arm).values for arm in arms}, COLORS)
            ticks = [arm.replace(", ", ",\n").replace(" and ", "\nand ") for arm in arms]
            ax.set_xticks(range(len(arms)), ticks, rotation=35, ha="right", fontsize=7)
            dotted = result.get(f"ideal_{name}", 0 * result["ideal_schmidt_rank"])  # the distance to itself is 0
            for k, ideal in enumerate(dotted.values):
                ax.plot([k - 0.42, k + 0.42], [ideal] * 2, color="black", linestyle=":", linewidth=1.2)
            ax.set_title(title)
    return figure


def regimes_caption(result: xarray.Dataset) -> str:
    """The two numbers by arm."""
    names = ["schmidt_rank", "single_factor", "kernel_distance"]
    means = result[names].mean("seed")
    words = "; ".join(
        f"{arm} {', '.join(f'{means[name].sel(arm=arm).item():.2f}' for name in names)}" for arm in result["arm"].values
    )
    ideals: dict[str, list[str]] = {}
    for arm in result["arm"].values:
        own = result[["ideal_schmidt_rank", "ideal_single_factor"]].sel(arm=arm)
        numbers = f"{own['ideal_schmidt_rank'].item():.2f} and {own['ideal_single_factor'].item():.2f}"
        ideals.setdefault(numbers, []).append(str(arm))
    ideal = ", ".join(f"{numbers} ({'; '.join(arms)})" for numbers, arms in ideals.items())
    return (
        f"Kernel (cosine Gram matrix) of the outputs over the whole grid, {seed_count(result['schmidt_rank'])}. "
        "Effective number of Schmidt terms, weight in single-factor terms, and relative distance to the kernel of "
        f"ideal bumps: {words}. Dotted, ideal bumps at each arm's settings, whose distance is 0: {ideal}. A.4 calls "
        "one Schmidt term purely factorized, A.5 calls one N-factor term memorisation; the ideal kernel is both."
    )


FIGURES = (FigureSpec("regimes", "Kernel regimes", ("regimes",), regimes_figure, regimes_caption),)
