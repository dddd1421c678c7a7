"""Remedy B: do examples of single factors make a network compose? (§4.2, App. D, Fig. 4 a, b, d, e, 7)

Networks are trained on all 2N stripes and a few bumps from the kept (not held-out) combinations, or on the same number
of bumps without stripes. In Fig. 7b, the number of bumps is a percentage of the kept combinations. The first stage is
also measured before training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch import Tensor

from recombine import panels
from recombine.metrics import band_position, features, interior, mean_band_index, stripe_superposition
from recombine.metrics.stages import INPUT
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.threshold_figure import threshold_panel
from recombine.reproduction import measuring
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.preset import Several
from recombine.reproduction.study import Arm, InitialRun, Labels, Study, Trials, initial_runs
from recombine.reproduction.tables import listed_attribute, output
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.tasks import Task

WITH, WITHOUT, PERCENT, PERCENT_ALONE, FULL, UNTRAINED = FAMILIES = (
    "stripes", "bumps alone", "stripes, per cent", "bumps alone, per cent", "all training bumps", "untrained",
)  # fmt: skip
STRIPES_ONLY, STRIPES_AND_BUMPS = "stripes only", "stripes and bumps"
"""Arms (experimental conditions) of the tuning study, also shown in Fig. 4f."""
TOLERANCE = 1
"""Number of pixels by which a band may lie outside the image region covered by its unit."""
SOME, MANY = 50, 100
"""Numbers of bumps added to the stripes: in Fig. 4d–e, and where outputs are proper bumps (Fig. 4b, 15)."""


class StripeSettings(BumpPreset):
    bumps: Several = (0, 10, 50, 100, 200)
    """Numbers of bumps added to the stripes (Fig. 4b); all but 0 are also used without stripes."""
    percents: Several = (1, 5, 20, 50)
    """Numbers of bumps with and without stripes, as percentages of the kept combinations (Fig. 7b)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"bumps": (0, 10, 30), "percents": (5,)}}

    def closest(self, bumps: int) -> int:
        """Return the available number of bumps closest to the paper's."""
        return min(self.bumps, key=lambda own: abs(own - bumps))

    def striped_spec(self, bumps: int, **task: Any) -> RunSpec:
        """Return a run spec for training on all stripes and the given number of bumps."""
        return self.spec(isolated=True, training=f"pick:{bumps}", **task)


class StripeStudy(Study[StripeSettings]):
    name: ClassVar[str] = "stripes"
    question: ClassVar[str] = "Do examples of single factors make a network compose?"
    settings: ClassVar[type[StripeSettings]] = StripeSettings
    version: ClassVar[int] = 3
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
        preset, spec = trials.preset, trials.first.spec
        striped_runs = {run.key for bumps in preset.bumps for run in trials[WITH, bumps]}
        profiled_runs = striped_runs | {run.key for run in trials[FULL, preset.samples]}
        arm = preset.closest(SOME)
        initial = initial_runs(run.spec for run in trials[WITH, arm])  # the same for every number of bumps

        def measured(batch: measuring.Batch) -> dict[str, Any]:
            if isinstance(batch.runs[0], InitialRun):
                return {
                    **measuring.stage_profile(batch, probes=False, maps=False),
                    **band_scores(first_stage_maps(batch), preset.width),
                }
            values = {**batch.scores, **training_fit(batch), "drawing": measuring.drawings(batch)}
            task, key = batch.task, batch.runs[0].key
            if key in striped_runs:
                inputs = (task.examples(own).inputs for own in (task.grid.points, task.isolated_values()))
                values |= conjunctions(task, *(batch.forward(rows) for rows in inputs))
            if key in profiled_runs:
                values |= measuring.stage_profile(batch, probes=False)
                values |= band_scores(first_stage_maps(batch), preset.width)
            return values

        dims = {**measuring.stage_dims(), "drawing": measuring.DRAWING}
        runs: dict[Labels, Sequence[Run]] = {**dict(trials.items()), (UNTRAINED, arm): initial}
        result = measuring.tabulate(Trials(preset, trials.device, runs), ("family", "bumps"), measured, dims)
        result[measuring.TRAINED].loc[{"family": UNTRAINED}] = 0.0
        stripes = spec.task.render(spec.task.isolated_values())
        maps = first_stage_maps(measuring.Batch([trials.pictured_run(WITH, arm)], trials.device))[0]
        most_varying = maps[maps.var(dim=(-2, -1)).argsort(descending=True)[:8]]  # shown in Fig. 4e
        return measuring.with_positions(result, spec, "log_volume").drop_vars("mean_log_volume").assign(
            activation=(("neuron", "y", "x"), most_varying.cpu().numpy().astype(np.float32)),
            stripe_image=(("stripe", "row", "column"), stripes.numpy().astype(np.float32)),
        ).assign_attrs(measuring.base_attributes(
            trials, size=preset.size, shown=arm, many=preset.closest(MANY), full=preset.samples,
            added=list(preset.bumps), percents=list(preset.percents),
        ))  # fmt: skip


def conjunctions(task: Task, outputs: Tensor, alone: Tensor) -> dict[str, Tensor]:
    """Return how additive held-out outputs are, and how much stripes and a bump contribute to them (§4.2, Fig. 4b).

    `outputs` are given at all grid points, `[member, point, y, x]`, and `alone` for single factors. An *additive
    conjunction* is a non-negative combination of a point's two training stripes (`recombine.metrics.superposition`).
    `additive` is the fraction of the held-out outputs explained by the best combinations, and `additive_inside` the
    same in the interior of the hold-out. `additive_unweighted` is the fraction explained by the unweighted sum of the
    network's outputs, D(x, ∅) + D(∅, y), and can be negative. `stripe_share` and `bump_share` are the contributions
    when the true bump is added to the stripes.
    """
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
    """Return the image of each factor's value alone for every grid point, `[…, factor, point, pixel]`."""
    values, points = task.isolated_values(), task.grid.points
    rows = [torch.nonzero(points[:, k, None] == values[None, :, k])[:, 1] for k in range(points.shape[1])]
    return torch.stack([stripes[..., own.to(stripes.device), :] for own in rows], dim=-3)


def first_stage_maps(batch: measuring.Batch) -> Tensor:
    """Return the activations of the first layer after the code over the (x, y) grid, `[member, unit, y, x]`."""
    grid = batch.task.grid
    stages = features(batch.reader(), grid.points.to(batch.device), members=1, memory=batch.memory)
    first = next(stage for name, stage in stages if name != INPUT)
    return first.mT.unflatten(-1, grid.shape).mT


def band_scores(maps: Tensor, channels: int) -> dict[str, Tensor]:
    """Return band, orientation and alignment scores of first-stage maps `[member, unit, y, x]` (§4.2, Fig. 4e, 3b).

    The units are the pixels of a coarse square image with several channels. Scores are means over units, weighted by
    the variance of their maps so that silent units do not count. `first_band` is the band index, the share of variance
    along one axis. `first_orientation` is |V_x − V_y| / V, which is 1 for a band and 0 for two crossing bands.
    `first_alignment` is the share of units whose band lies, within `TOLERANCE`, in the rows or columns covered by the
    unit's pixel, as for penalised embeddings.
    """
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


STUDY = StripeStudy()


def striped(result: xarray.Dataset, bumps: int) -> xarray.Dataset:
    """Return the networks trained on all stripes and the given number of bumps."""
    return result.sel(family=WITH, bumps=bumps)


def untrained(result: xarray.Dataset) -> xarray.Dataset:
    """Return the networks before training."""
    return result.sel(family=UNTRAINED, bumps=result.attrs["shown"])


def all_bumps(result: xarray.Dataset) -> xarray.Dataset:
    """Return the networks trained on all training bumps and no stripes."""
    return result.sel(family=FULL, bumps=result.attrs["full"])


def with_bumps(bumps: int) -> str:
    """Return the name of the training set with stripes and the given number of bumps."""
    return f"stripes and {bumps} bumps" if bumps else "stripes alone"


def stripes_figure(result: xarray.Dataset, threshold: xarray.Dataset, tuning: xarray.Dataset) -> Figure:
    """Draw all panels of Fig. 4."""
    added, shown = listed_attribute(result, "added"), int(result.attrs["shown"])
    volumes = {
        "bumps alone": all_bumps(result)["log_volume"],
        f"stripes +\n{shown} bumps": striped(result, shown)["log_volume"],
    }
    stages = int(volumes["bumps alone"].notnull().any(["y", "x"]).sum())
    with panels.styled():
        figure = pyplot.figure(figsize=(11.0, 8.4), layout="constrained")
        top, middle, lower, bottom = panels.divided(figure, 4, 1, height_ratios=[1.15, 3.1, 1.25, 1.5])
        _samples(top.subplots(1, 2 + 2 * len(added)), result, added)
        left, right = panels.divided(middle, 1, 2, width_ratios=[1, 1.4])
        ax = left.subplots()
        threshold_panel(ax, threshold)
        panels.letter(ax, "c", "data for 90 % accuracy")
        maps = right.subplots(2, stages)
        panels.volume_maps(maps, result, volumes)
        panels.letter(maps[0, 0], "d", "log10 dv: in")
        neurons = lower.subplots(1, result.sizes["neuron"], squeeze=False)
        for ax, values in zip(neurons.flat, result["activation"].values, strict=True):
            image = panels.activation_map(ax, values, result)
        lower.suptitle(f"(e) first-stage neurons over (x, y), stripes + {shown} bumps", x=0.005, ha="left", fontsize=9)
        panels.color_bar(neurons, image, "share of range", shrink=0.9, aspect=12)
        _tuning(bottom.subplots(1, 6, gridspec_kw={"width_ratios": [1, 1.1, 1.1] * 2}), tuning)
    return figure


def _samples(axes: np.ndarray, result: xarray.Dataset, added: list[int]) -> None:
    """Show two stripes, and two held-out outputs for each number of bumps."""
    images = result["stripe_image"].values
    half, background = len(images) // 2, float(result.attrs["background"])
    for ax, image in zip(axes, (images[half // 2], images[half + half // 2]), strict=False):
        panels.drawn_image(ax, image, background=background)
    panels.letter(axes[0], "a", "stripes")
    for pair, bumps in zip(axes[2:].reshape(-1, 2), added, strict=True):
        for sample, ax in enumerate(pair):
            image = striped(result, bumps)["drawing"].isel(sample=sample).values
            panels.held_out_drawing(ax, image, result, sample)
        pair[0].set_title(f"+ {bumps} bumps", loc="left", fontsize=8)
    panels.letter(axes[2], "b", f"+ {added[0]} bumps")


def _tuning(axes: np.ndarray, tuning: xarray.Dataset) -> None:
    """Plot a neuron from an early stage and one from a late stage."""
    for line, stage in zip(axes.reshape(2, 3), (0, tuning.sizes["shown"] - 1), strict=True):
        neuron_row(line, tuning, tuning["map"].sel(arm=STRIPES_AND_BUMPS).isel(shown=stage))
        line[1].set_xlabel("x")
        line[2].set_xlabel("y")
        line[1].set_title("mean over y", fontsize=8)
        line[2].set_title("mean over x", fontsize=8)
    panels.letter(axes[0], "f", "neurons")


def neuron_row(axes: np.ndarray, tuning: xarray.Dataset, maps: xarray.DataArray) -> Any:
    """Plot maps of a stage's first neurons and, in the last two panels, their means over y and over x."""
    *pictures, over_y, over_x = axes
    for ax, values, color in zip(pictures, maps.values, panels.COLORS, strict=False):
        image = panels.activation_map(ax, values, tuning)
        over_y.plot(tuning["x"].values, values.mean(axis=0), color=color)
        over_x.plot(tuning["y"].values, values.mean(axis=1), color=color)
    axes[0].set_ylabel(str(maps["shown"].values))
    for ax in (over_y, over_x):
        ax.set_yticks([])
    return image


def stripes_caption(result: xarray.Dataset, threshold: xarray.Dataset, _: xarray.Dataset) -> str:
    return (
        f"(a) Two of {result.sizes['stripe']} stripes; (b) the first seed's outputs at two held-out places after "
        f"training on all stripes and some bumps; (c) smallest training set that puts "
        f"{100 * threshold.attrs['target']:.0f} % of bumps in place, with {100 * threshold.attrs['confidence']:.0f} % "
        "intervals (unbounded ones run off the panel); (d) log10 of the volume element by stage, less its median; (e) "
        "first-stage neurons; (f) tuning of an early and a late neuron; the table gives held-out scores, means over "
        f"{panels.seed_count(result['ood_mse'].sel(family=WITH))}."
    )


def stripes_table(result: xarray.Dataset, *_: xarray.Dataset) -> list[list[str]]:
    scores = result.assign(spread_excess=output(result["spread_excess"])).mean("seed")
    scores = scores.reindex(family=[WITH, WITHOUT, FULL])  # a preset may have none of one kind
    shown = {"ood_accuracy": "in place", "ood_over_blank": "error / blank"}
    shares = {"stripe_share": "contribution of stripes", "bump_share": "contribution of the bump"}
    excess = "std of log10 dv at the output, held out less kept"
    rows = []
    for bumps in listed_attribute(result, "added"):
        own, alone = striped(scores, bumps), scores.sel(family=WITHOUT, bumps=bumps)
        both = [cell(part[name], percent=name == "ood_accuracy") for part in (own, alone) for name in shown]
        rows.append([str(bumps), *both, *(cell(own[n], percent=True) for n in shares), cell(own["spread_excess"])])
    full = all_bumps(scores)
    none = [cell(full[name], percent=name == "ood_accuracy") for name in shown]
    rows.append(["all", "–", "–", *none, "–", "–", cell(full["spread_excess"])])
    heads = [f"{words}, {family}" for family in ("with stripes", "without") for words in shown.values()]
    return [["bumps", *heads, *shares.values(), excess], *rows]


def percents_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 7: all stripes, and outputs after training on stripes and p % of the bumps."""
    images, background = result["stripe_image"].values, float(result.attrs["background"])
    columns = 14
    rows = -(-len(images) // columns)
    arms, half = _percent_arms(result), -(-result.sizes["sample"] // 2)
    side = min(1.3, 9.6 / (half * len(arms)))
    with panels.styled():
        figure = pyplot.figure(figsize=(9.6, 0.68 * rows + 2 * side + 0.9), layout="constrained")
        top, bottom = panels.divided(figure, 2, 1, height_ratios=[0.68 * rows, 2 * side])
        axes = top.subplots(rows, columns, squeeze=False).flat
        for ax, image in zip(axes, images, strict=False):
            panels.drawn_image(ax, image, background=background)
        for ax in axes[len(images) :]:
            ax.set_visible(False)
        panels.letter(axes[0], "a", f"all {len(images)} stripes")
        grid = bottom.subplots(2, half * len(arms), squeeze=False)
        for k, (family, bumps) in enumerate(arms):
            drawings = result["drawing"].sel(family=family, bumps=bumps).values
            own = grid[:, k * half : (k + 1) * half]
            for sample, (ax, image) in enumerate(zip(own.flat, drawings, strict=False)):
                panels.held_out_drawing(ax, image, result, sample)
            own[0, 0].set_title(f"{bumps} %", loc="left")
        panels.letter(grid[0, 0], "b", f"{arms[0][1]} %")
    return figure


def _percent_arms(result: xarray.Dataset) -> list[tuple[str, int]]:
    """Return the arms with stripes and p % of the kept bumps, preceded by stripes alone if available."""
    none = [(WITH, 0)] if 0 in listed_attribute(result, "added") else []
    return none + [(PERCENT, percent) for percent in listed_attribute(result, "percents")]


def percents_caption(result: xarray.Dataset) -> str:
    return (
        f"(a) Every stripe of the training set; (b) the first seed's outputs at {result.sizes['sample']} held-out "
        "places after training on stripes and p % of the kept bumps; the table gives held-out scores, means over "
        f"{panels.seed_count(result['ood_over_blank'].sel(family=PERCENT))}, the errors over those that all rows share."
    )


def percents_table(result: xarray.Dataset) -> list[list[str]]:
    arms, accuracy = _percent_arms(result), result["ood_accuracy"].mean("seed")
    over = panels.of_shared_seeds(*(result["ood_over_blank"].sel(family=family, bumps=bumps) for family, bumps in arms))
    rows = []
    for (family, bumps), own in zip(arms, over, strict=True):
        alone = cell(accuracy.sel(family=PERCENT_ALONE, bumps=bumps), percent=True)
        rows.append(
            [f"{bumps} %", cell(own.mean()), cell(accuracy.sel(family=family, bumps=bumps), percent=True), alone]
        )
    return [["kept bumps", "error / blank", "in place", "in place, without stripes"], *rows]


FIGURES = (
    FigureSpec(
        "fig4", "Remedy B: stripes", ("stripes", "threshold", "tuning"), stripes_figure, stripes_caption, stripes_table
    ),
    FigureSpec(
        "fig7", "All stripes, and outputs for stripes and p % of bumps", ("stripes",), percents_figure,
        percents_caption, percents_table,
    ),
)  # fmt: skip
