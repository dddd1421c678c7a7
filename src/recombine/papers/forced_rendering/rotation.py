"""What does a network draw in a gap between the angles it was trained on? (App. E.2, Fig. 9)

One digit turned by every angle but those strictly between 160° and 200°; and several digits, of which the first has the
gap while the others are seen at every angle. The code is (cos θ, sin θ), with a one-hot code of the digit.

Conventions: errors are over blank, what an empty image scores on that digit, averaged over the gap; `mid_gap_error` is
that at the angle nearest to the gap's middle. `edges_less_truth` is from a regression of outputs in the middle half of
the gap, `edges_less_truth_inner` in its middle fifth, `blend_less_truth` at all angles in it (`regression`).
`stage_speed` is ‖df/dθ‖ (exact) averaged inside the gap over outside, `stage_roughness` how much the path of a stage
bends in it relative to outside (`roughness`), and `roughness_held` and `roughness_kept` are the bump task's measures of
log10 of the volume, here the speed. Pictures are of the first seed, 0 … 255, and so are the stages' principal
components, from which figures are drawn (`reduction`). Numbers of several digits begin with `many_`.

Inside the gap, at least a quarter of it away from either edge, outputs are regressed on the truth and on the true
images at the edges (`regression`): −1 for a network that draws the truth, 1 for one that blends. "Error at mid-gap" is
that at the angle in the middle, over the error of a blank image.

"Stages stay smooth" is compared with the bump task, whose failing networks do not: how rough log10 of the volume (here
the speed) is inside the hold-out over outside, in decades, mean over the network's own stages. Networks of the two
tasks are paired by their numbers, which have nothing to do with one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.decoders import CNN
from recombine.metrics import features, log_volume, metric_tensor, roughness
from recombine.papers.forced_rendering import rotation_measures as measures
from recombine.papers.forced_rendering.presets import WithDepth
from recombine.papers.forced_rendering.samples import FAILING, decades, difference, measured
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect
from recombine.reproduction.measuring import Batch, base_attributes, tabulate
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks.rotation import RotationTask

ONE, MANY = "one digit", "many digits"
INPUT = "input"
"""The stage that is the code."""
OUTPUT, BLEND, TRUTH = "output_image", "blend_image", "truth_image"
"""Pictures across the gap, as they are kept."""


FEWEST_ANGLES = 36
"""Of each of several digits: every ten degrees."""
SHOWN = 9
"""Angles across the gap, its edges included, at which pictures are kept."""
INNER = 0.4
"""Share of the gap next to either edge that inner angles leave out."""
BY_STAGE = ("stage_speed", "stage_roughness", "roughness_held", "roughness_kept")
ALONG = {"error": "angle", "error_others": "angle", **dict.fromkeys(BY_STAGE, "stage")}
"""What a measured row runs along."""


class Settings(WithDepth):
    """Angles, digits and training."""

    angles: Count = 1000
    """Angles of the rotation study."""
    rotation_size: Count = 28
    """Rows and columns of the image."""
    rotation_width: Count = 128
    """Channels of the CNN."""
    rotation_steps: Count = 5600
    """Optimiser steps."""
    rotation_lr: Positive = 1e-3
    """Learning rate."""
    digits: Count = 10
    """Digits of the many-digit variant."""
    rotation_seeds: Seeds = 64
    """Seeds with one digit."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "angles": 120, "rotation_size": 14, "rotation_width": 16, "rotation_steps": 300, "rotation_lr": 5e-3,
            "digits": 3, "rotation_seeds": 3,
        }
    }  # fmt: skip


class RotationStudy(Study[Settings]):
    """Rotated digits with a gap in the angles."""

    name: ClassVar[str] = "rotation"
    question: ClassVar[str] = "How does a network fill a gap between the angles that it was trained on?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("features", "log_volume", "metric_tensor", "roughness")

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((ONE,), _spec(preset, angles=preset.angles), seeds=preset.rotation_seeds)]
        if preset.digits > 1:
            angles = max(FEWEST_ANGLES, preset.angles // preset.digits)
            arms.append(Arm((MANY,), _spec(preset, angles=angles, digits=preset.digits), extra=True))
        return arms

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = _tabulated(trials, ONE, lambda batch: {**_over_angles(batch), **_stages(batch)})
        if MANY in trials:
            many = _tabulated(
                trials, MANY, lambda batch: {**_over_angles(batch), "error_others": _errors(batch)[:, 1:].mean(axis=1)}
            )
            renamed = {str(name): f"many_{name}" for name in (*many.data_vars, "angle")}
            angles = _angles(Batch(trials[MANY][:1], trials.device), "many_")
            result = result.merge(many.rename(renamed), join="outer").assign_coords(angles)
        first = Batch([trials.pictured_run(ONE)], trials.device)
        result = result.assign_coords(_angles(first)).assign(_pictures(first)).assign(_components(first))
        preset = trials.preset
        return result.assign_attrs(base_attributes(trials, size=preset.rotation_size, digits=preset.digits))


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
    held = measures.by_digit(task, task.held_out)[0].numpy()
    return {name: task.grid.factors[-1].values.numpy(), f"{prefix}gap": (name, held)}


def _over_angles(batch: Batch) -> dict[str, Any]:
    """Scores, errors of the digit with the gap, and what its outputs there are made of."""
    task, errors = _task(batch), _errors(batch)[:, 0]
    low, high = measures.gap_edges(task)
    nearest = int((task.grid.factors[-1].values - (low + high) / 2).abs().argmin())
    angles, edges = measures.gap_angles(task), measures.edge_images(task)
    values = measures.first_digit(task, angles)
    drawn, truths = batch.outputs(values), task.render(values)
    parts = (torch.isin(angles, measures.middle_angles(task, *margin)) for margin in ((), (INNER,)))
    weights, inner = (measures.edge_regression(drawn[:, part], truths[part], edges) for part in parts)
    return {
        "id_over_blank": batch.scores["id_over_blank"],
        "ood_over_blank": batch.scores["ood_over_blank"],
        "error": errors,
        "mid_gap_error": errors[:, nearest],
        "edges_less_truth": weights.edges_less_truth,
        "edges_less_truth_inner": inner.edges_less_truth,
        "blend_less_truth": measures.blend_regression(drawn, truths, measures.linear_blend(task, angles)),
        "truth_weight": weights.truth.mean(dim=-1),
        "edges_weight": (weights.before + weights.after).mean(dim=-1),
        "explained": weights.explained.mean(dim=-1),
    }


def _errors(batch: Batch) -> np.ndarray:
    """Error over blank: per member one row per digit, one column per angle."""
    task = _task(batch)
    error, blank = (batch.stored(name).reshape(-1, task.digits, task.angles) for name in ("error", "blank"))
    held = measures.by_digit(task, task.held_out)[0].numpy()
    return np.asarray(error / blank[:, :, held].mean(axis=2, keepdims=True))


def _stages(batch: Batch) -> dict[str, Tensor]:
    """By stage: speed, path and volume inside the gap and outside; NaN for a stage that stands still."""
    task = _task(batch)
    points, held = task.grid.points.to(batch.device), task.held_out
    metrics = metric_tensor(batch.reader(), points, members=1, memory=batch.memory)
    speeds = [metric[..., 0, 0].double().clamp(min=0).sqrt() for metric in metrics.values()]
    volumes = [log_volume(metric) for metric in metrics.values()]
    bends = [
        torch.stack([measures.stage_roughness(member, held) for member in stage]).cpu()
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
    """Outputs, truths and blends at angles across the gap."""
    task = _task(batch)
    shown = torch.linspace(*measures.gap_edges(task), SHOWN, dtype=torch.float64)
    values = measures.first_digit(task, shown)
    images = {
        OUTPUT: batch.outputs(values)[0],
        TRUTH: task.render(values),
        BLEND: measures.linear_blend(task, shown),
    }
    pictures: dict[str, Any] = {
        name: (("shown", "row", "column"), (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy())
        for name, image in images.items()
    }
    return {**pictures, "shown": shown.numpy()}


def _components(batch: Batch) -> dict[str, Any]:
    """Stages of the first network at some angles, on their principal components; the code is as it is."""
    task = _task(batch)
    chosen = measures.chosen_angles(task.angles)
    points = task.grid.points[chosen].to(batch.device)
    stages = {
        name: one[0].cpu().numpy() if one.shape[-1] <= 2 else measures.principal_scores(one[0])
        for name, one in features(batch.reader(), points, members=1, memory=batch.memory)
    }
    most = max(scores.shape[1] for scores in stages.values())
    padded = [np.pad(scores, ((0, 0), (0, most - scores.shape[1]))) for scores in stages.values()]
    return {
        "components": (("stage", "some_angle", "component"), np.stack(padded).astype(np.float32)),
        "stage": list(stages),
        "some_angle": task.grid.factors[-1].values[chosen].numpy(),
        "some_gap": ("some_angle", measures.by_digit(task, task.held_out)[0][chosen].numpy()),
    }


STUDY = RotationStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


def otherwise_blended(data: Data) -> dict[str, Sample]:
    """Other angles and regressions, several digits, and stages beside those of the bump task."""
    own = data["rotation"]
    samples = {
        "inner angles": measured(own, "edges_less_truth_inner"),
        "whole gap, on truth and linear blend": measured(own, "blend_less_truth"),
        **_of_many(data, "edges_less_truth"),
    }
    if "controls" in data and FAILING in data["controls"]["arm"].values:
        bumps = data["controls"].sel(arm=FAILING)
        count = min(bumps.sizes["seed"], own.sizes["seed"])
        pair = (part.isel(seed=slice(count)) for part in (bumps, own))
        samples["roughness of stages, bump task's less rotation's (decades)"] = difference(_rougher_inside, *pair)
    return samples


def _of_many(data: Data, statistic: str) -> dict[str, Sample]:
    """A number of the networks on several digits, where there are any: all of theirs begin with `many_`."""
    result = data["rotation"]
    names = {name: str(name).removeprefix("many_") for name in result.data_vars if str(name).startswith("many_")}
    return {MANY: measured(result[list(names)].rename(names), statistic)} if names else {}


def _rougher_inside(networks: xarray.Dataset) -> xarray.DataArray:
    """log10 of the roughness of log10 volume inside the hold-out over outside, mean over stages but the input."""
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
                    **_of_many(data, "mid_gap_error"),
                },
            ),
        ),
        studies=("rotation",),
        beside=("controls",),
    ),
)
