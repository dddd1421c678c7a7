"""What the theory asks for, in failing and in composing networks."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import COLORS, band, bar_groups, letter, seed_count, styled
from recombine.papers.forced_rendering import theory
from recombine.papers.forced_rendering.theory import FAMILIES
from recombine.reproduction.figures import FigureSpec

KINDS = ("no remedy", "remedy", "whole grid", "untrained")
"""Of the arms of a family, in order: stripes or penalties are the remedy."""
STAGES = {
    "linear_factorization": "blocks, linear map, R²",
    "factor_recovery_held": "factors decoded, R²",
    "additivity": "variance in a sum of blocks",
    "hole_openness": "width of the hole",
}
"""What is drawn along the stages, and the title of its column."""

NAMED = ("delta", "bump", "additive")
"""Known kernels whose lines have a label; those of OR and of broad Gaussians lie beside the additive one's."""


def theory_figure(result: xarray.Dataset) -> Figure:
    """One row per architecture: products, the kernel axis, and four numbers along the stages."""
    with styled():
        figure, axes = pyplot.subplots(
            len(FAMILIES), 2 + len(STAGES), figsize=(14.0, 2.5 * len(FAMILIES)), layout="constrained", squeeze=False
        )
        for number, (row, (family, arms)) in enumerate(zip(axes, FAMILIES.items(), strict=True)):
            _products(row[0], result, arms)
            _kernel_axis(row[1], result, arms)
            for ax, name in zip(row[2:], STAGES, strict=True):
                for arm, kind, color in zip(arms, KINDS, COLORS, strict=False):
                    band(ax, theory.clipped(result[name].sel(arm=arm)), kind, color)
                ax.set_ylim(bottom=min(0.8, ax.get_ylim()[0]) if name == "factor_recovery_held" else 0)
                if number == len(FAMILIES) - 1:
                    ax.set_xlabel("stage (0: code)")
            row[0].set_ylabel(family)
            if number == 0:
                titles = ("products per pixel, held out", "kernel, delta 0 to additive 1", *STAGES.values())
                for ax, name, title in zip(row, "abcdef", titles, strict=True):
                    letter(ax, name, title)
                row[3].legend(fontsize=7, loc="lower left")
    return figure


def _products(ax: Axes, result: xarray.Dataset, arms: tuple[str, ...]) -> None:
    bar_groups(ax, KINDS, {kind: result["held_products"].sel(arm=arm).values
                           for kind, arm in zip(KINDS, arms, strict=True)}, COLORS)  # fmt: skip
    ax.axhline(float(result["target_products"].sel(arm=arms[0]).mean()), color="black", linestyle=":", linewidth=1)
    ax.set_ylim(0.9, max(2.1, ax.get_ylim()[1]))
    ax.tick_params(axis="x", rotation=25)


def _kernel_axis(ax: Axes, result: xarray.Dataset, arms: tuple[str, ...]) -> None:
    """Outputs' kernels, every network a dot, between kernels that one knows."""
    for place, (arm, color) in enumerate(zip(arms, COLORS, strict=False)):
        values = theory.at_output(result["above_delta"].sel(arm=arm)).values
        values = values[np.isfinite(values)]
        ax.plot(values, place + np.linspace(-0.25, 0.25, len(values)), "o", markersize=3, alpha=0.6, color=color,
                markeredgewidth=0)  # fmt: skip
    for name in result["landmark"].values:
        at = float(result["landmark_place"].sel(landmark=name))
        ax.axvline(at, color="0.6", linewidth=0.8, zorder=0)
        if name in NAMED:
            ax.text(at, len(KINDS) - 0.55, str(name), rotation=90, fontsize=6, ha="right", va="bottom", color="0.4")
    ax.set_yticks(range(len(KINDS)), KINDS, fontsize=7)
    ax.set_ylim(len(KINDS) - 0.5, -0.6)


def theory_caption(result: xarray.Dataset) -> str:
    """The numbers that claims are judged by, by arm."""
    judged = {
        "products per pixel": result["held_products"],
        "blocks, hidden stages": theory.linear_split(result),
        "factors decoded, last hidden stage": 1 - theory.held_loss(result),
        "sum of blocks, last hidden stage": 1 - theory.mixing(result),
        "width of the hole, output": theory.hole_width(result),
    }
    words = [
        f"{name} " + ", ".join(f"{arm}: {values.sel(arm=arm).mean().item():.2f}"
                               for family in FAMILIES.values() for arm in family)
        for name, values in judged.items()
    ]  # fmt: skip
    return (
        "Appendix A, measured on networks without and with a remedy (stripes and 100 bumps; both penalties for the "
        f"low-rank decoder), trained on the whole grid, and untrained; {seed_count(result['held_products'])}. (a) "
        "Products of single-factor functions per pixel in held-out outputs (relative error "
        f"{result.attrs['epsilon']:g}; dotted: the right images). (b) Outputs' kernels between the delta kernel, "
        "memorisation, at 0 and additive ones at 1; lines: known kernels. (c–f) Along the stages, held-out points in "
        f"(c) and (d), means and standard errors. Means. {'; '.join(words)}."
    )


FIGURES = (FigureSpec("theory", "Appendix A in networks", ("theory",), theory_figure, theory_caption),)
