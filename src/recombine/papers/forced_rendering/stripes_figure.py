"""Fig. 4 and 7: stripes."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.papers.forced_rendering.stripes import FULL, PERCENT, PERCENT_ALONE, WITH, WITHOUT
from recombine.papers.forced_rendering.threshold_figure import threshold_panel
from recombine.papers.forced_rendering.tuning import WITH_BUMPS
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import (
    color_limits,
    divided,
    drawn_image,
    grid_image,
    held_out_drawing,
    letter,
    of_shared_seeds,
    seed_count,
    styled,
    volume_line,
)
from recombine.reproduction.tables import listed_attribute, output


def stripes_figure(result: xarray.Dataset, threshold: xarray.Dataset, tuning: xarray.Dataset) -> Figure:
    """All panels of Fig. 4."""
    added = listed_attribute(result, "added")
    shown = int(result.attrs["shown"])
    full = result["log_volume"].sel(family=FULL, bumps=result.attrs["full"])
    stages = int(full.notnull().any(["y", "x"]).sum())
    with styled():
        figure = pyplot.figure(figsize=(10.2, 9.6), layout="constrained")
        top, middle, lower, bottom = divided(figure, 4, 1, height_ratios=[1.25, 2.35, 1.95, 1.2])
        _samples(top.subplots(1, 2 + 2 * len(added)), result, added)
        left, right = divided(middle, 1, 2, width_ratios=[1.15, 1])
        ax = left.subplots()
        threshold_panel(ax, threshold)
        letter(ax, "c", "data for 90 % accuracy")
        _tuning(right.subplots(2, 3, gridspec_kw={"width_ratios": [1, 1.1, 1.1]}), tuning)
        panels = lower.subplots(2, stages)
        volume_line(list(panels[0]), result, full)
        volume_line(list(panels[1]), result, result["log_volume"].sel(family=WITH, bumps=shown))
        panels[0, 0].set_ylabel("bumps alone")
        panels[1, 0].set_ylabel(f"stripes +\n{shown} bumps")
        letter(panels[0, 0], "d", "log10 dv: in")
        neurons = bottom.subplots(1, result.sizes["neuron"])
        for k, ax in enumerate(neurons):
            values = result["activation"].isel(neuron=k).values
            grid_image(ax, values, result, **color_limits(values, 0, 100))
        bottom.suptitle(f"(e) first-stage neurons over (x, y), stripes + {shown} bumps", x=0.01, ha="left", fontsize=9)
    return figure


def _samples(axes: np.ndarray, result: xarray.Dataset, added: list[int]) -> None:
    images = result["stripe_image"].values
    half, background = len(images) // 2, float(result.attrs["background"])
    for ax, image in zip(axes, (images[half // 2], images[half + half // 2]), strict=False):
        drawn_image(ax, image, background=background)
    letter(axes[0], "a", "stripes")
    for k, bumps in enumerate(added):
        for sample in range(2):
            ax = axes[2 + 2 * k + sample]
            image = result["drawing"].sel(family=WITH, bumps=bumps).isel(sample=sample).values
            held_out_drawing(ax, image, result, sample)
        axes[2 + 2 * k].set_title(f"+ {bumps} bumps", loc="left", fontsize=8)
    letter(axes[2], "b", f"+ {added[0]} bumps")


def _tuning(axes: np.ndarray, tuning: xarray.Dataset) -> None:
    """One neuron of an early and of a late stage."""
    maps = tuning["map"].sel(arm=WITH_BUMPS)
    for row, stage in enumerate((0, tuning.sizes["shown"] - 1)):
        values = maps.isel(shown=stage, neuron=0).values
        grid_image(axes[row, 0], values, tuning, **color_limits(values, 0, 100))
        axes[row, 0].set_ylabel(str(tuning["shown"].values[stage]))
        _curve(axes[row, 1], tuning["x"].values, values.mean(axis=0), "x")
        _curve(axes[row, 2], tuning["y"].values, values.mean(axis=1), "y")
    letter(axes[0, 0], "f", "neuron")
    axes[0, 1].set_title("mean over y", fontsize=8)
    axes[0, 2].set_title("mean over x", fontsize=8)


def _curve(ax: Axes, at: np.ndarray, values: np.ndarray, name: str) -> None:
    ax.plot(at, values, color="#0072B2")
    ax.set_xlabel(name)
    ax.set_yticks([])


def stripes_caption(result: xarray.Dataset, threshold: xarray.Dataset, tuning: xarray.Dataset) -> str:
    """Numbers of Fig. 4."""
    added = listed_attribute(result, "added")
    scores = result.mean("seed")
    striped = "; ".join(
        f"{n} bumps: {100 * scores['ood_accuracy'].sel(family=WITH, bumps=n).item():.0f} % in place, error "
        f"{scores['ood_over_blank'].sel(family=WITH, bumps=n).item():.2f} of blank"
        for n in added
    )
    alone = "; ".join(
        f"{n}: {100 * scores['ood_accuracy'].sel(family=WITHOUT, bumps=n).item():.0f} %, "
        f"{scores['ood_over_blank'].sel(family=WITHOUT, bumps=n).item():.2f}"
        for n in added
        if n
    )
    excess = output(scores["spread_excess"])
    shares = ", ".join(
        f"{n}: {100 * scores['stripe_share'].sel(family=WITH, bumps=n).item():.0f} % and "
        f"{100 * scores['bump_share'].sel(family=WITH, bumps=n).item():.0f} %"
        for n in added
    )
    return (
        f"(a) Two of {result.sizes['stripe']} stripes. (b) First seed's drawings at two held-out places after training "
        f"on all stripes and some bumps. Over {seed_count(result['ood_mse'].sel(family=WITH))}, in the held-out box: "
        f"{striped}{f'; as many bumps without stripes: {alone}' if alone else ''}. What the two stripes and a bump "
        f"where they cross contribute to held-out outputs, by number of bumps: {shares}. (c) Smallest training set "
        f"that puts {100 * threshold.attrs['target']:.0f} % of bumps in place, with "
        f"{100 * threshold.attrs['confidence']:.0f} % intervals; those that run off the panel have no end. (d) log10 "
        "of the volume element by stage: at the output, its standard deviation over the held-out box less that over "
        f"the kept points is {excess.sel(family=FULL, bumps=result.attrs['full']).item():.2f} with bumps alone and "
        f"{excess.sel(family=WITH, bumps=result.attrs['shown']).item():.2f} with stripes and {result.attrs['shown']} "
        "bumps. (e) First-stage neurons. (f) Tuning of an early and a late neuron."
    )


def percents_figure(result: xarray.Dataset) -> Figure:
    """Fig. 7: all stripes, and drawings for stripes and p % of the bumps."""
    images, background = result["stripe_image"].values, float(result.attrs["background"])
    columns = 14
    rows = -(-len(images) // columns)
    arms = _percent_arms(result)
    with styled():
        figure = pyplot.figure(figsize=(9.6, 0.68 * rows + 1.35 * len(arms) * 0.78 + 0.9), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[0.62 * rows, 1.05 * len(arms)])
        axes = top.subplots(rows, columns, squeeze=False)
        for k, ax in enumerate(axes.flat):
            if k < len(images):
                drawn_image(ax, images[k], background=background)
            else:
                ax.set_visible(False)
        letter(axes[0, 0], "a", f"all {len(images)} stripes")
        panels = bottom.subplots(len(arms), result.sizes["sample"], squeeze=False)
        for line, (family, bumps) in zip(panels, arms, strict=True):
            for k, ax in enumerate(line):
                image = result["drawing"].sel(family=family, bumps=bumps).isel(sample=k).values
                held_out_drawing(ax, image, result, k)
            line[0].set_ylabel(f"{bumps} %")
        letter(panels[0, 0], "b", "held-out drawings, stripes + p % of the kept bumps")
    return figure


def _percent_arms(result: xarray.Dataset) -> list[tuple[str, int]]:
    """Stripes with p % of the kept bumps, after stripes without any where those were trained."""
    none = [(WITH, 0)] if 0 in listed_attribute(result, "added") else []
    return none + [(PERCENT, percent) for percent in listed_attribute(result, "percents")]


def percents_caption(result: xarray.Dataset) -> str:
    """Fig. 7 in words."""
    arms = _percent_arms(result)
    over = of_shared_seeds(*(result["ood_over_blank"].sel(family=family, bumps=bumps) for family, bumps in arms))
    words = ", ".join(f"{bumps} %: {own.mean().item():.2f}" for (_, bumps), own in zip(arms, over, strict=True))
    accuracy = result["ood_accuracy"].mean("seed")
    places = ", ".join(
        f"{p} %: {100 * accuracy.sel(family=PERCENT, bumps=p).item():.0f} % and "
        f"{100 * accuracy.sel(family=PERCENT_ALONE, bumps=p).item():.0f} %"
        for p in listed_attribute(result, "percents")
        if p
    )
    return (
        f"(a) Every stripe of the training set. (b) First seed's drawings at {result.sizes['sample']} held-out "
        f"places after training on stripes and p % of the kept bumps. Held-out error over blank, mean over the "
        f"{seed_count(over[0])} that all of these were trained with: {words}. Held-out bumps in place, with and "
        f"without stripes: {places}."
    )


FIGURES = (
    FigureSpec("fig4", "Remedy B: stripes", ("stripes", "threshold", "tuning"), stripes_figure, stripes_caption),
    FigureSpec(
        "fig7",
        "All stripes, and drawings for stripes and p % of bumps",
        ("stripes",),
        percents_figure,
        percents_caption,
    ),
)
