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

from recombine.decoders import CNN
from recombine.metrics import Reader, decoder_reader, features, metric_tensor
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
from recombine.reproduction.measuring import base_attributes, outputs, tabulate
from recombine.reproduction.preset import Count, Positive
from recombine.reproduction.profile import MEMORY
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.store import Run
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
    metrics: ClassVar[tuple[str, ...]] = ("decoder_reader", "features", "metric_tensor", "squared_error")

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
            result = _tabulated(trials, ONE, lambda run: _one_digit(run, trials.device))
            if MANY in trials:
                many = _tabulated(trials, MANY, lambda run: _many_digits(run, trials.device))
                result = result.merge(many, join="outer").assign_coords(_angles(trials[MANY][0], "many_"))
            first = trials.pictured_run(ONE)
            result = result.assign_coords(_angles(first)).assign(_pictures(first, trials.device))
            stages, method, embedded = _embedding(first, trials.device)
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


def _task(run: Run) -> RotationTask:
    assert isinstance(run.spec.task, RotationTask)
    return run.spec.task


def _tabulated(trials: Trials[Settings], arm: str, measure: Callable[[Run], dict[str, Any]]) -> xarray.Dataset:
    """What is measured on the runs of one arm, over seeds."""
    alone = Trials(trials.preset, trials.device, {(arm,): trials[arm]})
    return tabulate(alone, ("arm",), measure, {name: (dim,) for name, dim in ALONG.items()}).isel(arm=0, drop=True)


def _angles(run: Run, prefix: str = "") -> dict[str, Any]:
    """Coordinates: the angles, and which of them are in the gap."""
    task, name = _task(run), f"{prefix}angle"
    held = by_digit(task, task.held_out)[0].numpy()
    return {name: task.grid.factors[-1].values.numpy(), f"{prefix}gap": (name, held)}


def _one_digit(run: Run, device: torch.device) -> dict[str, Any]:
    return {
        "id_over_blank": run.scores["id_over_blank"],
        "ood_over_blank": run.scores["ood_over_blank"],
        "error": _errors(run)[0],
        "closer_to_blend": _mean_closeness(run, device),
        "stage_speed": _stage_speeds(run, device),
    }


def _many_digits(run: Run, device: torch.device) -> dict[str, Any]:
    errors = _errors(run)
    return {
        "many_id_over_blank": run.scores["id_over_blank"],
        "many_ood_over_blank": run.scores["ood_over_blank"],
        "many_error": errors[0],
        "many_error_others": errors[1:].mean(axis=0),
        "many_closer_to_blend": _mean_closeness(run, device),
    }


def _errors(run: Run) -> np.ndarray:
    """Error over blank: one row per digit, one column per angle."""
    task, arrays = _task(run), run.arrays()
    error, blank, held = (by_digit(task, torch.from_numpy(arrays[name])) for name in ("error", "blank", "held_out"))
    return (error / blank[:, held[0].bool()].mean(dim=1, keepdim=True)).numpy()


def _mean_closeness(run: Run, device: torch.device) -> float:
    task, angles = _task(run), gap_angles(_task(run))
    values = first_digit(task, angles)
    drawn = outputs(run, values, device).double()
    return closer_to_blend(drawn, task.render(values), linear_blend(task, angles)).mean().item()


def _reader(run: Run, device: torch.device) -> Reader:
    task = _task(run)
    return decoder_reader(run.module().to(device), lambda values: task.codes(values).float())


def _stage_speeds(run: Run, device: torch.device) -> np.ndarray:
    """How fast each stage moves per degree, inside the gap over outside; NaN for a stage that stands still."""
    task = _task(run)
    metrics = metric_tensor(_reader(run, device), task.grid.points.to(device), memory=MEMORY[device.type])
    held = task.held_out.to(device)
    speeds = [metric[:, 0, 0].double().clamp(min=0).sqrt() for metric in metrics.values()]
    return torch.stack([speed[held].mean() / speed[~held].mean() for speed in speeds]).cpu().numpy()


def _pictures(run: Run, device: torch.device) -> dict[str, Any]:
    """Outputs, truths and blends at angles across the gap."""
    task = _task(run)
    shown = torch.linspace(*gap_edges(task), SHOWN, dtype=torch.float64)
    values = first_digit(task, shown)
    images = {
        OUTPUT: outputs(run, values, device),
        TRUTH: task.render(values),
        BLEND: linear_blend(task, shown),
    }
    pictures: dict[str, Any] = {
        name: (("shown", "row", "column"), (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy())
        for name, image in images.items()
    }
    return {**pictures, "shown": shown.numpy()}


def _embedding(run: Run, device: torch.device) -> tuple[list[str], str, np.ndarray]:
    """Stages, method, and each stage's activations over all angles in two dimensions; the input has two as it is."""
    method, embed = embedder()
    stages = features(_reader(run, device), _task(run).grid.points.to(device), memory=MEMORY[device.type])
    embedded = {name: embed(stage) if stage.shape[1] > 2 else stage.cpu().numpy() for name, stage in stages}
    return list(embedded), method, np.stack(list(embedded.values())).astype(np.float32)


STUDY = RotationStudy()
