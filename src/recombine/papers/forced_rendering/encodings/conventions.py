"""What the published scripts' conventions do to the numbers, where they differ from the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.encodings.labels import BOX, DARK
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, band, bar_groups, of_shared_seeds, seed_count, styled

if TYPE_CHECKING:
    import xarray


def conventions_figure(encodings: xarray.Dataset, depth: xarray.Dataset) -> Figure:
    """Polarity, finite differences, ratio of means, in-sample probe: paper's against scripts'."""
    shown = int(depth.attrs["shown"])
    own = depth.sel(encoding="bump", depth=shown)
    with styled():
        figure, axes = pyplot.subplots(1, 4, figsize=(11.2, 3.0), layout="constrained")
        names = ("bright (paper)", "dark (scripts)")
        both = _polarities(encodings)
        bar_groups(axes[0], list(names), {name: own.values for name, own in zip(names, both, strict=True)}, COLORS)
        axes[0].set_title(f"held-out error / blank, {seed_count(both[0])}")
        for ax, title, lines in (
            (axes[1], "spread of log10 dv", {"exact (paper)": "spread", "differences (scripts)": "spread_differences"}),
            (axes[2], "factorization", {
                "exact, mean of points (paper)": "factorization", "of mean |g| (scripts)": "factorization_of_means",
                "differences": "factorization_differences",
            }),
            (axes[3], "probe R²", {"in sample (paper)": "probe_in_sample", "held-out points": "probe_held_out"}),
        ):  # fmt: skip
            for (label, name), color in zip(lines.items(), COLORS, strict=False):
                band(ax, own[name], label, color)
            ax.set_title(title)
            ax.set_xlabel("stage (0: input)")
            ax.legend(fontsize=7)
        axes[3].set_ylim(max(-0.5, axes[3].get_ylim()[0]), 1.05)
    return figure


def _polarities(encodings: xarray.Dataset) -> tuple[xarray.DataArray, ...]:
    """Held-out errors with bright and with dark bumps, of the seeds that were trained with both."""
    over = encodings["ood_over_blank"].sel(encoding="bump")
    return of_shared_seeds(over.sel(holdout=BOX), over.sel(holdout=DARK))


def conventions_caption(encodings: xarray.Dataset, depth: xarray.Dataset) -> str:
    """The differences in numbers."""
    shown = int(depth.attrs["shown"])
    own = depth.sel(encoding="bump", depth=shown).mean("seed").isel(stage=slice(1, None))
    bright, dark = _polarities(encodings)
    ratio = (own["spread_differences"] / own["spread"]).mean("stage").item()
    return (
        f"Bump-coded CNN of depth {shown}. Held-out error over blank, mean over the {seed_count(bright)} trained both "
        f"ways: {bright.mean().item():.2f} with bright bumps (the paper), {dark.mean().item():.2f} with dark ones (the "
        f"scripts). The rest over {seed_count(depth['spread'].sel(encoding='bump', depth=shown))}: finite differences "
        f"on the grid make the spread of log10 dv {ratio:.2f} times as large, mean over layers. Factorization, mean "
        "over layers: "
        f"{own['factorization'].mean().item():.3f} as the mean over "
        f"points, {own['factorization_of_means'].mean().item():.3f} as a ratio of means, "
        f"{own['factorization_differences'].mean().item():.3f} by finite "
        f"differences. Probe R² at its lowest layer: {np.nanmin(own['probe_in_sample'].values):.3f} in sample, "
        f"{np.nanmin(own['probe_held_out'].values):.3f} on held-out points."
    )


CONVENTIONS = FigureSpec(
    "conventions",
    "Paper's conventions against the published scripts'",
    ("encodings", "depth"),
    conventions_figure,
    conventions_caption,
)
