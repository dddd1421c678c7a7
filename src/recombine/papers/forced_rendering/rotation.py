"""What does a network draw in a gap between the angles it was trained on? (App. E.2, Fig. 9)

The training data are one digit rotated by every angle except those strictly between 160° and 200°, or several digits,
of which only the first has the gap. The code is (cos θ, sin θ), plus a one-hot code of the digit if there are several.

Conventions: errors are divided by the error of a blank image for that digit, averaged over the gap. `stage_speed` is
the ratio of mean ‖df/dθ‖ inside to outside the gap. `roughness_held` and `roughness_kept` are defined as in the bump
task, with speed in place of volume. Images (0 to 255) and principal components of the stages are from the first seed.
Variables for networks trained on several digits start with `many_`, and those for all widths of the gap, with one and
with several digits, with `gaps_`.

The smoothness of stages is compared with the bump task, where stages of failing networks are rough. Networks of the two
tasks are paired by index, since their seeds are unrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray
from pydantic import Field
from torch import Tensor

from recombine.decoders import CNN
from recombine.holdouts import Center
from recombine.metrics import features, log_volume, metric_tensor, roughness
from recombine.papers.forced_rendering.presets import WithDepth
from recombine.papers.forced_rendering.rotation_gap import (
    MARGIN,
    blend_less_truth,
    edge_images,
    edge_regression,
    edges_less_truth,
    first_digit,
    gap_angles,
    gap_edges,
    in_gap,
    in_middle,
    linear_blend,
    principal_scores,
    stage_roughness,
)
from recombine.papers.forced_rendering.samples import FAILING, decades, difference, measured
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect
from recombine.reproduction.measuring import Batch, base_attributes, tabulate
from recombine.reproduction.preset import AnyNumber, Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks.rotation import GAP, RotationTask

ONE, MANY = "one digit", "many digits"
OUTPUT, BLEND, TRUTH = "output_image", "blend_image", "truth_image"
"""Names of the stored images at angles across the gap."""
WIDTH = GAP[1] - GAP[0]
"""Width of the paper's gap in degrees."""
INNER_MARGIN = 0.4
"""Fraction of the gap excluded from regressions at each edge, in a stricter alternative."""
INNER_DIMS = {
    **dict.fromkeys(("error", "error_others"), ("angle",)),
    **dict.fromkeys(("stage_speed", "stage_roughness", "roughness_held", "roughness_kept"), ("stage",)),
}


class Settings(WithDepth):
    angles: Count = 1000
    """Number of angles in the rotation study."""
    rotation_size: Count = 28
    """Image side in pixels."""
    rotation_width: Count = 128
    """Channels of the CNN."""
    rotation_steps: Count = 5600
    """Optimiser steps."""
    rotation_lr: Positive = 1e-3
    """Learning rate."""
    digits: Annotated[int, Field(ge=2, le=10)] = 10
    """Number of digits in the variant with several digits."""
    rotation_seeds: Seeds = 64
    """Number of seeds for networks trained on one digit."""
    rotation_gaps: Annotated[AnyNumber, Field(max_length=36)] = (10, 20, 60, 90)
    """Other widths of the gap in degrees, around the same angle."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "angles": 120, "rotation_size": 14, "rotation_width": 16, "rotation_steps": 300, "rotation_lr": 5e-3,
            "digits": 3, "rotation_seeds": 2, "rotation_gaps": (20, 80),
        }
    }  # fmt: skip


class RotationStudy(Study[Settings]):
    name: ClassVar[str] = "rotation"
    question: ClassVar[str] = "How does a network fill a gap between the angles it was trained on?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = ("features", "log_volume", "metric_tensor", "roughness")

    def arms(self, preset: Settings) -> list[Arm]:
        angles = max(36, preset.angles // preset.digits)  # at least one every ten degrees
        grids = {ONE: {"angles": preset.angles}, MANY: {"angles": angles, "digits": preset.digits}}
        return [
            Arm((ONE,), _spec(preset, **grids[ONE]), seeds=preset.rotation_seeds),
            Arm((MANY,), _spec(preset, **grids[MANY]), extra=True),
            *(
                Arm((arm, width), _spec(preset, **grid, holdout=gap_of(width, **grid)), extra=True)
                for arm, grid in grids.items()
                for width in preset.rotation_gaps
                if width != WIDTH
            ),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        one = _tabulated(trials, ONE, lambda batch: {**_over_angles(batch), **_stages(batch)})
        many = _tabulated(
            trials, MANY, lambda batch: {**_over_angles(batch), "error_others": _errors(batch)[:, 1:].mean(axis=1)}
        )
        renamed = {str(name): f"many_{name}" for name in (*many.data_vars, "angle")}
        first, preset = Batch([trials.pictured_run(ONE)], trials.device), trials.preset
        return (
            one.merge(many.rename(renamed), join="outer")
            .merge(_by_width(trials), join="outer")
            .assign_coords(_angles(Batch(trials[MANY][:1], trials.device), "many_") | _angles(first))
            .assign(_pictures(first) | _components(first))
            .assign_attrs(base_attributes(trials, size=preset.rotation_size, digits=preset.digits))
        )


def _spec(preset: Settings, **task: Any) -> RunSpec:
    """Return a run spec with the published recipe: squared error plus 0.1 times absolute error, weak weight decay."""
    return RunSpec(
        task=RotationTask(size=preset.rotation_size, training="each", **task),
        decoder=CNN(width=preset.rotation_width, depth=preset.depth),
        recipe=preset.recipe(steps=preset.rotation_steps, lr=preset.rotation_lr, weight_decay=1e-4, absolute=0.1),
    )


def _task(batch: Batch) -> RotationTask:
    assert isinstance(batch.task, RotationTask)
    return batch.task


def _tabulated(trials: Trials[Settings], arm: str, measure: Callable[[Batch], dict[str, Any]]) -> xarray.Dataset:
    """Return the measurements of one arm (experimental condition) for every seed."""
    alone = Trials(trials.preset, trials.device, {(arm,): trials[arm]})
    return tabulate(alone, ("arm",), measure, INNER_DIMS).isel(arm=0, drop=True)


def _by_width(trials: Trials[Settings]) -> xarray.Dataset:
    """Return scores and regression weights for all widths of the gap."""
    widths = sorted({WIDTH, *(labels[1] for labels in trials if len(labels) > 1)})
    arms = {(arm, w): trials[arm] if w == WIDTH else trials[arm, w] for arm in (ONE, MANY) for w in widths}

    def measured(batch: Batch) -> dict[str, Any]:
        scores = _over_angles(batch)
        return {name: value for name, value in scores.items() if name not in INNER_DIMS}

    result = tabulate(Trials(trials.preset, trials.device, arms), ("digits", "width"), measured)
    return result.rename({str(name): f"gaps_{name}" for name in result.data_vars})


def gap_of(width: float, angles: int, digits: int = 1) -> Center:
    """Return the hold-out of a gap of some width in degrees, around the middle of the paper's gap."""
    middle = sum(GAP) / 2
    return RotationTask.gap(angles, digits, (middle - width / 2, middle + width / 2))


def _angles(batch: Batch, prefix: str = "") -> dict[str, Any]:
    """Return as coordinates the angles and which of them lie in the gap."""
    task, name = _task(batch), f"{prefix}angle"
    return {name: task.grid.factors[-1].values.numpy(), f"{prefix}gap": (name, in_gap(task).numpy())}


def _over_angles(batch: Batch) -> dict[str, Any]:
    """Return scores, errors of the digit with the gap, and regression weights of its outputs in the gap."""
    task, errors = _task(batch), _errors(batch)[:, 0]
    low, high = gap_edges(task)
    nearest = int((task.grid.factors[-1].values - (low + high) / 2).abs().argmin())
    angles, edges = gap_angles(task), edge_images(task)
    values = first_digit(task, angles)
    drawn, truths = batch.outputs(values), task.render(values)
    parts = (in_middle(task, margin) for margin in (MARGIN, INNER_MARGIN))
    (weights, explained), (inner, _) = (edge_regression(drawn[:, part], truths[part], edges) for part in parts)
    return {
        "id_over_blank": batch.scores["id_over_blank"],
        "ood_over_blank": batch.scores["ood_over_blank"],
        "error": errors,
        "mid_gap_error": errors[:, nearest],
        "edges_less_truth": edges_less_truth(weights),
        "edges_less_truth_inner": edges_less_truth(inner),
        "blend_less_truth": blend_less_truth(drawn, truths, linear_blend(task, angles)),
        "truth_weight": weights[..., 0].mean(dim=-1),
        "edges_weight": weights[..., 1:].sum(dim=-1).mean(dim=-1),
        "explained": explained.mean(dim=-1),
    }


def _errors(batch: Batch) -> np.ndarray:
    """Return errors relative to the error of a blank image, as `[member, digit, angle]`."""
    task = _task(batch)
    error, blank = (batch.stored(name).reshape(-1, task.digits, task.angles) for name in ("error", "blank"))
    return np.asarray(error / blank[:, :, in_gap(task).numpy()].mean(axis=2, keepdims=True))


def _stages(batch: Batch) -> dict[str, Tensor]:
    """Return each stage's speed and roughness inside versus outside the gap; constant stages yield NaN."""
    task = _task(batch)
    points, held = task.grid.points.to(batch.device), task.held_out
    metrics = metric_tensor(batch.reader(), points, members=1, memory=batch.memory)
    speeds = [metric[..., 0, 0].double().clamp(min=0).sqrt() for metric in metrics.values()]
    volumes = [log_volume(metric) for metric in metrics.values()]
    bends = [
        torch.stack([stage_roughness(member, held) for member in stage]).cpu()
        for _, stage in features(batch.reader(), points, members=1, memory=batch.memory)
    ]
    by_stage = {
        "stage_speed": [speed[:, held].mean(dim=1) / speed[:, ~held].mean(dim=1) for speed in speeds],
        "stage_roughness": bends,
        "roughness_held": [roughness(volume, task.grid.shape, held) for volume in volumes],
        "roughness_kept": [roughness(volume, task.grid.shape, ~held) for volume in volumes],
    }
    return {name: torch.stack(values, dim=1) for name, values in by_stage.items()}


def _pictures(batch: Batch) -> dict[str, Any]:
    """Return outputs, true images and blends at nine angles across the gap, including its edges."""
    task = _task(batch)
    shown = torch.linspace(*gap_edges(task), 9, dtype=torch.float64)
    values = first_digit(task, shown)
    images = {OUTPUT: batch.outputs(values)[0], TRUTH: task.render(values), BLEND: linear_blend(task, shown)}
    pictures: dict[str, Any] = {
        name: (("shown", "row", "column"), (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy())
        for name, image in images.items()
    }
    return {**pictures, "shown": shown.numpy()}


def _components(batch: Batch) -> dict[str, Any]:
    """Return principal components of the first network's stages at up to 250 angles; the code is left untransformed."""
    task = _task(batch)
    chosen = torch.arange(0, task.angles, -(-task.angles // 250))
    points = task.grid.points[chosen].to(batch.device)
    stages = {
        name: stage[0].cpu().numpy() if stage.shape[-1] <= 2 else principal_scores(stage[0])
        for name, stage in features(batch.reader(), points, members=1, memory=batch.memory)
    }
    most = max(scores.shape[1] for scores in stages.values())
    padded = [np.pad(scores, ((0, 0), (0, most - scores.shape[1]))) for scores in stages.values()]
    return {
        "components": (("stage", "some_angle", "component"), np.stack(padded).astype(np.float32)),
        "stage": list(stages),
        "some_angle": task.grid.factors[-1].values[chosen].numpy(),
        "some_gap": ("some_angle", in_gap(task)[chosen].numpy()),
    }


STUDY = RotationStudy()


def otherwise_blended(data: Data) -> dict[str, Sample]:
    """Return results for other angles and regressions, several digits, and roughness compared with the bump task."""
    own = data["rotation"]
    samples = {
        "inner angles": measured(own, "edges_less_truth_inner"),
        "whole gap, on truth and linear blend": measured(own, "blend_less_truth"),
        MANY: _many_digits(data, "edges_less_truth"),
    }
    for arm, width in product((ONE, MANY), own["width"].values if "width" in own.dims else ()):
        if width != WIDTH:
            part = _prefixed(own, "gaps").sel(digits=arm, width=width)
            samples[f"{arm}, gap of {width:g}°"] = measured(part, "edges_less_truth")
    if "controls" in data:
        bumps = data["controls"].sel(arm=FAILING)
        count = min(bumps.sizes["seed"], own.sizes["seed"])
        pair = (part.isel(seed=slice(count)) for part in (bumps, own))
        words = "roughness of stages, bump task's less rotation's (decades)"
        samples[words] = replace(difference(_rougher_inside, *pair), measures=words)
    return samples


def _many_digits(data: Data, statistic: str) -> Sample:
    """Return a statistic of the networks trained on several digits."""
    return measured(_prefixed(data["rotation"], "many"), statistic)


def _prefixed(result: xarray.Dataset, prefix: str) -> xarray.Dataset:
    """Return the variables whose names start with a prefix, without it."""
    names = {
        name: str(name).removeprefix(f"{prefix}_") for name in result.data_vars if str(name).startswith(f"{prefix}_")
    }
    return result[list(names)].rename(names)


def _rougher_inside(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the mean over non-input stages of log10 (log10-volume roughness inside the hold-out / outside)."""
    inside = decades(networks["roughness_held"], networks["roughness_kept"])
    return inside.isel(stage=slice(1, None)).mean("stage")


CLAIMS = (
    Claim(
        "C15",
        "A gap in rotation is filled by blending its edges, though stages stay smooth",
        "App. E.2, Fig. 9",
        statements=(
            Statement(
                effect("weight of the images at the edges less that of the truth, in outputs inside the gap", 0.1),
                lambda data: {ONE: measured(data["rotation"], "edges_less_truth")},
                alternatives=otherwise_blended,
            ),
            Statement(
                above("error at mid-gap over blank", 0.3),
                lambda data: {ONE: measured(data["rotation"], "mid_gap_error")},
                alternatives=lambda data: {
                    "whole gap": measured(data["rotation"], "ood_over_blank"),
                    MANY: _many_digits(data, "mid_gap_error"),
                },
            ),
        ),
        studies=("rotation",),
        beside=("controls",),
    ),
)
