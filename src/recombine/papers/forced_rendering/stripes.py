"""Remedy B: do examples of single factors make a network compose? (§4.2, App. D, Fig. 4 a, b, d, e, 7)

All 2N stripes with few bumps from the kept combinations, and as many bumps without stripes. Fig. 7b counts bumps in per
cent of the kept combinations; those too with and without stripes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from recombine.metrics import band_position, features, interior, mean_band_index, stripe_superposition
from recombine.metrics.stages import INPUT
from recombine.panels import (
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
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.threshold_figure import threshold_panel
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import (
    DRAWING,
    Batch,
    base_attributes,
    drawings,
    stage_dims,
    stage_profile,
    tabulate,
    with_positions,
)
from recombine.reproduction.preset import Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import listed_attribute, output
from recombine.specs import RunSpec
from recombine.tasks import Task

WITH, WITHOUT, PERCENT, PERCENT_ALONE, FULL = FAMILIES = (
    "stripes", "bumps alone", "stripes, per cent", "bumps alone, per cent", "all training bumps",
)  # fmt: skip
STRIPES_ONLY, STRIPES_AND_BUMPS = "stripes only", "stripes and bumps"
"""Arms of the tuning study, which Fig. 4f shows too."""


# -- conjunctions ----------------------------------------------------------------------------------------------------
# What outputs of a stripe-trained network are made of: their two stripes, or a bump where those cross (§4.2, Fig. 4b).
#
# Conventions (`recombine.metrics.superposition`): an *additive conjunction* is a sum, with weights that are not
# negative, of the two training stripes of a point. `additive` is the fraction of the outputs that the best such sums
# explain, over all held-out points, and `additive_inside` over those well inside. `additive_unweighted` is that
# explained by what the network itself draws for either factor alone, D(x, ∅) + D(∅, y), with no weights at all; it may
# be negative. With the true bump beside the stripes, `stripe_share` and `bump_share` are what each part contributes.


def conjunctions(batch: Batch) -> dict[str, Tensor]:
    """How additive held-out outputs of runs are, and the shares of stripes and bump in them."""
    task = batch.task
    outputs, alone = (
        batch.forward(task.examples(values).inputs) for values in (task.grid.points, task.isolated_values())
    )
    return conjunctions_of_outputs(task, outputs, alone)


def conjunctions_of_outputs(task: Task, outputs: Tensor, alone: Tensor) -> dict[str, Tensor]:
    """The same of outputs at all grid points, `[member, point, y, x]`, and for single factors."""
    device, held_out = outputs.device, task.held_out.to(outputs.device)
    signals, drawn = (images.flatten(2).double() - task.background for images in (outputs, alone))
    stripes, truth = (
        task.render(values).flatten(1).double().to(device) - task.background
        for values in (task.isolated_values(), task.grid.points)
    )
    own = _stripes_of_points(task, stripes)
    everywhere = stripe_superposition(signals, own, truth, held_out)
    inside = stripe_superposition(signals, own, truth, interior(held_out, task.grid.shape))
    unweighted = _stripes_of_points(task, drawn).sum(dim=-3)
    residual = (signals - unweighted)[:, held_out].square().sum(dim=(1, 2))
    return {
        "additive": everywhere["stripes"],
        "additive_inside": inside["stripes"],
        "additive_unweighted": 1 - residual / signals[:, held_out].square().sum(dim=(1, 2)),
        "stripe_share": everywhere["stripe_share"],
        "bump_share": everywhere["bump_share"],
    }


def _stripes_of_points(task: Task, stripes: Tensor) -> Tensor:
    """For each factor, the image of its value alone at every grid point: `[…, factor, point, pixel]`."""
    values, points = task.isolated_values(), task.grid.points
    rows = [torch.nonzero(points[:, k, None] == values[None, :, k])[:, 1] for k in range(points.shape[1])]
    return torch.stack([stripes[..., own.to(stripes.device), :] for own in rows], dim=-3)


# -- first stage -----------------------------------------------------------------------------------------------------
# What the units of a CNN's first stage are tuned to, beside bands of penalised embeddings (§4.2, Fig. 4e, 3b).
#
# The first stage is the first layer after the code: channels of a coarse image. The map of a unit is its activation
# over the (x, y) grid. Per network, means over units, weighted by the variance of their maps so that silent ones do not
# count:
#
# - `first_band`: the band index, the share of the variance along one axis (1: a band);
# - `first_orientation`: how much more of the variance lies along one axis than along the other, |V_x − V_y| / V (a band
#   has 1, a sum of two crossing bands 0);
# - `first_alignment`: whether the band lies where the unit does: for a vertical one the columns, for a horizontal one
#   the rows that the unit's own place in the coarse image covers, give or take one pixel. Embeddings are banded so.


TOLERANCE = 1
"""Pixels that a band may lie outside the part of the image that its unit covers."""


def first_stage_maps(batch: Batch) -> Tensor:
    """The maps of all first-stage units: `[member, unit, y, x]`."""
    grid = batch.task.grid
    stages = features(batch.reader(), grid.points.to(batch.device), members=1, memory=batch.memory)
    first = next(stage for name, stage in stages if name != INPUT)
    return first.mT.unflatten(-1, grid.shape).mT


def band_scores(maps: Tensor, channels: int) -> dict[str, Tensor]:
    """Band, orientation and alignment of maps, `[member, unit, y, x]`, of so many channels of a square image."""
    side = round((maps.shape[1] / channels) ** 0.5)
    variance = maps.double().var(dim=(-2, -1), correction=0)
    columns, rows = (maps.double().mean(dim=axis).var(dim=-1, correction=0) for axis in (-2, -1))
    total = variance.sum(dim=-1)
    weight = variance / torch.where(total > 0, total, torch.nan)[:, None]
    band = band_position(maps)
    unit = torch.arange(side * side, device=maps.device).repeat(channels)
    place = torch.where(band.axis == 1, unit % side, unit // side)
    pixels = torch.where(band.axis == 1, maps.shape[-1], maps.shape[-2]) / side
    low, high = place * pixels - TOLERANCE, (place + 1) * pixels - 1 + TOLERANCE
    aligned = (band.position >= low) & (band.position <= high)
    contrast = (columns - rows).abs() / torch.where(variance > 0, variance, 1.0)
    return {
        "first_band": mean_band_index(maps),
        "first_orientation": (contrast * weight).sum(dim=-1),
        "first_alignment": (aligned * weight).sum(dim=-1),
    }


NEURONS = 8
"""First-stage neurons shown (Fig. 4e)."""
SOME, MANY = 50, 100
"""Bumps beside the stripes in Fig. 4d–e, and where bumps are proper ones (Fig. 4b, 15)."""


class StripeSettings(BumpPreset):
    """Numbers of bumps."""

    bumps: Several = (0, 10, 50, 100, 200)
    """Bumps beside the stripes (Fig. 4b); all but 0 are also trained without stripes."""
    percents: Several = (1, 5, 20, 50)
    """Bumps with and without stripes in per cent of the kept combinations (Fig. 7b)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"bumps": (0, 10, 30), "percents": (5,)}}

    @property
    def some_bumps(self) -> int:
        """The number of bumps beside the stripes that is nearest to the paper's 50."""
        return min(self.bumps, key=lambda bumps: abs(bumps - SOME))

    @property
    def many_bumps(self) -> int:
        """The number of bumps beside the stripes that is nearest to the paper's 100."""
        return min(self.bumps, key=lambda bumps: abs(bumps - MANY))

    def striped_spec(self, bumps: int, **task: Any) -> RunSpec:
        """Stripes and so many bumps."""
        return self.spec(isolated=True, training=f"pick:{bumps}", **task)


class StripeStudy(Study[StripeSettings]):
    """Stripes with few bumps against bumps alone."""

    name: ClassVar[str] = "stripes"
    question: ClassVar[str] = "Do examples of single factors make a network compose?"
    settings: ClassVar[type[StripeSettings]] = StripeSettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "band_position", "extreme_pixel", "features", "hits", "interior", "mean_band_index", "squared_error",
        "stage_profile", "stripe_superposition",
    )  # fmt: skip

    def arms(self, preset: StripeSettings) -> list[Arm]:
        arms = [Arm((WITH, bumps), preset.striped_spec(bumps)) for bumps in preset.bumps]
        arms += [Arm((WITHOUT, n), preset.spec(training=f"pick:{n}")) for n in preset.bumps if n]
        arms += [Arm((PERCENT, p), preset.spec(isolated=True, training=f"percent:{p}")) for p in preset.percents]
        arms += [Arm((PERCENT_ALONE, p), preset.spec(training=f"percent:{p}")) for p in preset.percents if p]
        return [*arms, Arm((FULL, preset.samples), preset.spec())]

    def measure(self, trials: Trials[StripeSettings]) -> xarray.Dataset:
        preset = trials.preset
        striped = {run.key for bumps in preset.bumps for run in trials[WITH, bumps]}
        profiled = striped | {run.key for run in trials[FULL, preset.samples]}

        def measured(batch: Batch) -> dict[str, Any]:
            values = {**batch.scores, **training_fit(batch), "drawing": drawings(batch)}
            if batch.runs[0].key in striped:
                values |= conjunctions(batch)
            if batch.runs[0].key in profiled:
                values |= {**stage_profile(batch, probes=False), **band_scores(first_stage_maps(batch), preset.width)}
            return values

        result = tabulate(trials, ("family", "bumps"), measured, {**stage_dims(), "drawing": DRAWING})
        spec = trials.first.spec
        stripes = spec.task.render(spec.task.isolated_values())
        maps = first_stage_maps(Batch([trials.pictured_run(WITH, preset.some_bumps)], trials.device))[0]
        most_varying = maps[maps.var(dim=(-2, -1)).argsort(descending=True)[:NEURONS]]
        return with_positions(result, spec, "log_volume").drop_vars("mean_log_volume").assign(
            activation=(("neuron", "y", "x"), most_varying.cpu().numpy().astype(np.float32)),
            stripe_image=(("stripe", "row", "column"), stripes.numpy().astype(np.float32)),
        ).assign_attrs(base_attributes(
            trials, size=preset.size, shown=preset.some_bumps, many=preset.many_bumps, full=preset.samples,
            added=list(preset.bumps), percents=list(preset.percents),
        ))  # fmt: skip


STUDY = StripeStudy()


# -- figure ----------------------------------------------------------------------------------------------------------


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
    maps = tuning["map"].sel(arm=STRIPES_AND_BUMPS)
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
