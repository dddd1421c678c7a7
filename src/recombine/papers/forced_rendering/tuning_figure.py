"""Fig. 15: tuning across the stages of a stripe-trained CNN."""

from __future__ import annotations

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.stripes import FULL, WITH
from recombine.papers.forced_rendering.stripes_claims import with_bumps
from recombine.papers.forced_rendering.tuning import ARMS, STRIPES
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import COLORS, band, color_limits, divided, grid_image, seed_count, styled
from recombine.reproduction.tables import listed_attribute


def tuning_figure(result: xarray.Dataset, stripes: xarray.Dataset) -> Figure:
    """For each arm and four stages, a neuron's map and its two tuning curves; below, the indices by stage."""
    stages, x, y = result.sizes["shown"], result["x"].values, result["y"].values
    with styled():
        figure = pyplot.figure(figsize=(9.8, 1.25 * stages + 2.6), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1.2 * stages, 2.2])
        for part, arm in zip(divided(top, 1, 2), ARMS, strict=True):
            axes = part.subplots(stages, 4, gridspec_kw={"width_ratios": [1, 1, 1.2, 1.2]}, squeeze=False)
            name = arm if arm == STRIPES else f"stripes and {result.attrs['bumps']} bumps"
            part.suptitle(name, fontsize=9)
            for row in range(stages):
                maps = result["map"].sel(arm=arm).isel(shown=row)
                for column in range(2):
                    values = maps.isel(neuron=column).values
                    grid_image(axes[row, column], values, result, **color_limits(values, 0, 100))
                for column, (at, over) in enumerate(((x, 0), (y, 1)), start=2):
                    for neuron, color in zip(range(2), COLORS, strict=False):
                        axes[row, column].plot(at, maps.isel(neuron=neuron).values.mean(axis=over), color=color)
                    axes[row, column].set_yticks([])
                    if row < stages - 1:
                        axes[row, column].set_xticklabels([])
                axes[row, 0].set_ylabel(str(result["shown"].values[row]))
            for column, title in enumerate(("neuron 1", "neuron 2", "mean over y", "mean over x")):
                axes[0, column].set_title(title, fontsize=8)
            axes[-1, 2].set_xlabel("x")
            axes[-1, 3].set_xlabel("y")
        lines = bottom.subplots(1, 2)
        for ax, name in zip(lines, ("stripe_index", "localisation_index"), strict=True):
            for (label, own), color in zip(_trained(stripes).items(), COLORS, strict=False):
                band(ax, own[name], label, color)
            ax.set_title(name.replace("_", " "))
            ax.set_xlabel("stage (0: input)")
            ax.set_ylim(-0.03, 1.03)
        lines[0].legend(fontsize=8)
    return figure


def _trained(stripes: xarray.Dataset) -> dict[str, xarray.Dataset]:
    """The networks whose indices are shown: stripes with more and more bumps, and all bumps alone."""
    striped = {with_bumps(bumps): stripes.sel(family=WITH, bumps=bumps) for bumps in listed_attribute(stripes, "added")}
    return {**striped, "bumps alone": stripes.sel(family=FULL, bumps=stripes.attrs["full"])}


def tuning_caption(result: xarray.Dataset, stripes: xarray.Dataset) -> str:
    """Indices in words."""
    words = []
    for label, own in _trained(stripes).items():
        stripe, local = (
            own[name].mean("seed").dropna("stage").values for name in ("stripe_index", "localisation_index")
        )
        words.append(
            f"{label}: stripe index {stripe[1]:.2f} in the first layer and {stripe[-1]:.2f} in the output, "
            f"localisation {local[1]:.2f} and {local[-1]:.2f}"
        )
    return (
        "Activation over (x, y) of the most varying neuron of each of the two most varying channels of a stage, and "
        "its means over y and over x (top, first seed); mean indices over all neurons by stage, with standard errors "
        f"over {seed_count(stripes['stripe_index'].sel(family=WITH))} (bottom). "
        + "; ".join(words) + "."
    )  # fmt: skip


FIGURES = (
    FigureSpec("fig15", "Tuning of stripe-trained networks", ("tuning", "stripes"), tuning_figure, tuning_caption),
)
