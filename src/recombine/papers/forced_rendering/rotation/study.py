"""What does a network draw in a gap between the angles it was trained on? (App. E.2, Fig. 9)

One digit turned by every angle but those strictly between 160° and 200°; and several digits, of which the first has the
gap while the others are seen at every angle. The code is (cos θ, sin θ), with a one-hot code of the digit.

Conventions: errors are over blank, what an empty image scores on that digit, averaged over the gap. `stage_speed` is
‖df/dθ‖ (exact) averaged inside the gap over outside. Pictures are of the first seed, 0 … 255.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recombine.decoders import CNN
from recombine.metrics import features, metric_tensor
from recombine.papers.forced_rendering.presets import WithDepth
from recombine.papers.forced_rendering.rotation.embedding import embedder
from recombine.papers.forced_rendering.rotation.gap import (
    by_digit,
    closer_to_blend,
    first_digit,
    gap_angles,
    gap_edges,
    linear_blend,
)
from recombine.papers.forced_rendering.rotation.labels import BLEND, MANY, ONE, OUTPUT, TRUTH
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import base_attributes, tabulate
from recombine.reproduction.preset import Count, Positive
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks.rotation import RotationTask
from recombine.training.devices import arithmetic

if TYPE_CHECKING:
    import xarray

FEWEST_ANGLES = 36
"""Of each of several digits: every ten degrees."""
SHOWN = 9
"""Angles across the gap, its edges included, at which pictures are kept."""
ALONG = {"error": "angle", "stage_speed": "stage", "many_error": "many_angle", "many_error_others": "many_angle"}
"""What a measured row runs along."""


class Settings(WithDepth):
    """Angles, digits and training."""

    angles: Count = 1000
    """Angles of the rotation study."""
    rotation_size: Count = 28
    rotation_width: Count = 128
    rotation_steps: Count = 5600
    rotation_lr: Positive = 1e-3
    digits: Count = 10
    """Digits of the many-digit variant."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "angles": 120, "rotation_size": 14, "rotation_width": 16, "rotation_steps": 300, "rotation_lr": 5e-3,
            "digits": 3,
        }
    }  # fmt: skip


class RotationStudy(Study[Settings]):
    """Rotated digits with a gap in the angles."""

    name: ClassVar[str] = "rotation"
    question: ClassVar[str] = "How does a network fill a gap between the angles that it was trained on?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("features", "metric_tensor", "squared_error")

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((ONE,), _spec(preset, angles=preset.angles))]
        if preset.digits > 1:
            angles = max(FEWEST_ANGLES, preset.angles // preset.digits)
            arms.append(Arm((MANY,), _spec(preset, angles=angles, digits=preset.digits), extra=True))
        return arms

    def optional_tools(self) -> tuple[str, ...]:
        return (embedder()[0],)

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        with arithmetic("float32"):
            result = _tabulated(trials, ONE, _one_digit)
            if MANY in trials:
                many = _tabulated(trials, MANY, _many_digits)
                angles = _angles(Batch(trials[MANY][:1], trials.device), "many_")
                result = result.merge(many, join="outer").assign_coords(angles)
            first = Batch([trials.pictured_run(ONE)], trials.device)
            result = result.assign_coords(_angles(first)).assign(_pictures(first))
            stages, method, embedded = _embedding(first)
        preset = trials.preset
        return result.assign(embedding=(("stage", "angle", "axis"), embedded)).assign_coords(stage=stages).assign_attrs(
            base_attributes(trials, size=preset.rotation_size, embedding=method, digits=preset.digits)
        )  # fmt: skip


def _spec(preset: Settings, **task: Any) -> RunSpec:
    """The published recipe: squared plus a tenth of the absolute error, little weight decay."""
    return RunSpec(
        task=RotationTask(size=preset.rotation_size, training="each", **task),
        decoder=CNN(width=preset.rotation_width, depth=preset.depth),
        recipe=preset.recipe(steps=preset.rotation_steps, lr=preset.rotation_lr, weight_decay=1e-4, absolute=0.1),
    )


def _task(batch: Batch) -> RotationTask:
    assert isinstance(batch.task, RotationTask)
    return batch.task


def _tabulated(trials: Trials[Settings], arm: str, measure: Callable[[Batch], dict[str, Any]]) -> xarray.Dataset:
    """What is measured on the runs of one arm, over seeds."""
    alone = Trials(trials.preset, trials.device, {(arm,): trials[arm]})
    return tabulate(alone, ("arm",), measure, {name: (dim,) for name, dim in ALONG.items()}).isel(arm=0, drop=True)


def _angles(batch: Batch, prefix: str = "") -> dict[str, Any]:
    """Coordinates: the angles, and which of them are in the gap."""
    task, name = _task(batch), f"{prefix}angle"
    held = by_digit(task, task.held_out)[0].numpy()
    return {name: task.grid.factors[-1].values.numpy(), f"{prefix}gap": (name, held)}


def _one_digit(batch: Batch) -> dict[str, Any]:
    return {
        "id_over_blank": batch.scores["id_over_blank"],
        "ood_over_blank": batch.scores["ood_over_blank"],
        "error": _errors(batch)[:, 0],
        "closer_to_blend": _mean_closeness(batch),
        "stage_speed": _stage_speeds(batch),
    }


def _many_digits(batch: Batch) -> dict[str, Any]:
    errors = _errors(batch)
    return {
        "many_id_over_blank": batch.scores["id_over_blank"],
        "many_ood_over_blank": batch.scores["ood_over_blank"],
        "many_error": errors[:, 0],
        "many_error_others": errors[:, 1:].mean(axis=1),
        "many_closer_to_blend": _mean_closeness(batch),
    }


def _errors(batch: Batch) -> np.ndarray:
    """Error over blank: per member one row per digit, one column per angle."""
    task = _task(batch)
    error, blank = (batch.stored(name).reshape(-1, task.digits, task.angles) for name in ("error", "blank"))
    held = by_digit(task, task.held_out)[0].numpy()
    return np.asarray(error / blank[:, :, held].mean(axis=2, keepdims=True))


def _mean_closeness(batch: Batch) -> Tensor:
    task, angles = _task(batch), gap_angles(_task(batch))
    values = first_digit(task, angles)
    drawn = batch.outputs(values).double()
    return closer_to_blend(drawn, task.render(values), linear_blend(task, angles)).mean(dim=-1)


def _stage_speeds(batch: Batch) -> Tensor:
    """How fast each stage moves per degree, inside the gap over outside; NaN for a stage that stands still."""
    task = _task(batch)
    points = task.grid.points.to(batch.device)
    metrics = metric_tensor(batch.reader(), points, members=1, memory=batch.memory)
    held = task.held_out.to(batch.device)
    speeds = [metric[..., 0, 0].double().clamp(min=0).sqrt() for metric in metrics.values()]
    return torch.stack([speed[:, held].mean(dim=1) / speed[:, ~held].mean(dim=1) for speed in speeds], dim=1)


def _pictures(batch: Batch) -> dict[str, Any]:
    """Outputs, truths and blends at angles across the gap."""
    task = _task(batch)
    shown = torch.linspace(*gap_edges(task), SHOWN, dtype=torch.float64)
    values = first_digit(task, shown)
    images = {
        OUTPUT: batch.outputs(values)[0],
        TRUTH: task.render(values),
        BLEND: linear_blend(task, shown),
    }
    pictures: dict[str, Any] = {
        name: (("shown", "row", "column"), (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy())
        for name, image in images.items()
    }
    return {**pictures, "shown": shown.numpy()}


def _embedding(batch: Batch) -> tuple[list[str], str, np.ndarray]:
    """Stages, method, and each stage's activations over all angles in two dimensions; the input has two as it is."""
    method, embed = embedder()
    points = batch.task.grid.points.to(batch.device)
    stages = ((name, one[0]) for name, one in features(batch.reader(), points, members=1, memory=batch.memory))
    embedded = {name: embed(stage) if stage.shape[1] > 2 else stage.cpu().numpy() for name, stage in stages}
    return list(embedded), method, np.stack(list(embedded.values())).astype(np.float32)


STUDY = RotationStudy()
