"""What does a network draw in a gap between the angles it was trained on? (E.2, Fig. 9; claim C15)

One digit turned by every angle but those strictly between 160° and 200°; and several digits, of which the first has the
gap while the others are seen at every angle. The code is (cos θ, sin θ), with a one-hot code of the digit.

Conventions: errors are over blank, what an empty image scores on that digit, averaged over the gap. The **blend** at an
angle in the gap mixes the true images at the gap's two edges, the last trained angles on either side, with weights
linear in the angle. `closer_to_blend` is log10 of an answer's distance to the truth over its distance to the blend,
averaged over the gap: above 0 is nearer to the blend. `stage_speed` is ‖df/dθ‖ (exact) averaged inside the gap over
outside; `gap_speed`, the largest of these over the network's own stages, leaves out the input, where it is 1 whatever
the network does. Pictures are of the first seed, 0 … 255.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from recombine.claims import CLAIMS, Judgement
from recombine.decoders import CNN
from recombine.metrics import Reader, decoder_reader, features, metric_tensor, squared_error
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import MEMORY, answers, base_attributes, per_seed, tabulate
from recombine.tasks.rotation import RotationTask
from recombine.training.devices import arithmetic

if TYPE_CHECKING:
    import xarray

ONE, MANY = "one digit", "many digits"
INPUT = "input"
"""The stage that is the code."""
FEWEST_ANGLES = 36
"""Of each of several digits: every ten degrees."""
SHOWN = 9
"""Angles across the gap, its edges included, at which pictures are kept."""
NEGLIGIBLE = 1e-8
"""Root-mean-square distances between images below this count as this."""
NEIGHBOURS, FEWEST_NEIGHBOURS = 0.05, 15
"""Share of all angles that UMAP looks at around each, and the fewest."""
ALONG = {"error": "angle", "stage_speed": "stage", "many_error": "many_angle", "many_error_others": "many_angle"}
"""What a measured row runs along."""


@register
class RotationStudy(Study):
    """Rotated digits with a gap in the angles."""

    name: ClassVar[str] = "rotation"
    question: ClassVar[str] = "How does a network fill a gap between the angles that it was trained on?"
    claims: ClassVar[tuple[str, ...]] = ("C15",)

    def arms(self, preset: Preset) -> list[Arm]:
        arms = [Arm((ONE,), _spec(preset, angles=preset.angles))]
        if preset.digits > 1:
            angles = max(FEWEST_ANGLES, preset.angles // preset.digits)
            arms.append(Arm((MANY,), _spec(preset, angles=angles, digits=preset.digits), extra=True))
        return arms

    def optional_tools(self) -> tuple[str, ...]:
        return (_embedder()[0],)

    def measure(self, trials: Trials) -> xarray.Dataset:
        with arithmetic("float32"):
            result = _tabulated(trials, ONE, lambda run: _one_digit(run, trials.device))
            if MANY in trials:
                many = _tabulated(trials, MANY, lambda run: _many_digits(run, trials.device))
                result = result.merge(many, join="outer").assign_coords(_angles(trials[MANY][0], "many_"))
            first = trials.shown(ONE)
            result = result.assign_coords(_angles(first)).assign(_pictures(first, trials.device))
            stages, method, embedded = _embedding(first, trials.device)
        about = {"size": trials.preset.rotation_size, "embedding": method, "digits": trials.preset.digits}
        return result.assign(embedding=(("stage", "angle", "axis"), embedded)).assign_coords(stage=stages).assign_attrs(
            {**base_attributes(trials), **about}
        )  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        claim = CLAIMS["C15"]
        fastest = result["stage_speed"].sel(stage=result["stage"] != INPUT).max("stage")
        scores = {name: per_seed(result[name]) for name in ("id_over_blank", "closer_to_blend")}
        return [claim.judge({ONE: {**scores, "gap_speed": per_seed(fastest)}})]


def _spec(preset: Preset, **task: Any) -> RunSpec:
    """The published recipe: squared plus a tenth of the absolute error, little weight decay."""
    return RunSpec(
        task=RotationTask(size=preset.rotation_size, training="each", **task),
        decoder=CNN(width=preset.rotation_width, depth=preset.depth),
        recipe=preset.recipe(steps=preset.rotation_steps, lr=preset.rotation_lr, weight_decay=1e-4, absolute=0.1),
    )


def _task(run: Run) -> RotationTask:
    assert isinstance(run.spec.task, RotationTask)
    return run.spec.task


def _tabulated(trials: Trials, arm: str, measure: Callable[[Run], dict[str, Any]]) -> xarray.Dataset:
    """What is measured on the runs of one arm, over seeds."""
    alone = Trials(trials.preset, trials.device, {(arm,): trials[arm]})
    return tabulate(alone, ("arm",), measure, {name: (dim,) for name, dim in ALONG.items()}).isel(arm=0, drop=True)


def gap_angles(task: RotationTask) -> Float[Tensor, " angle"]:
    """The held-out angles of the first digit."""
    return task.grid.factors[-1].values[_by_digit(task, task.held_out)[0]]


def gap_edges(task: RotationTask) -> tuple[float, float]:
    """The last trained angles on either side of the gap."""
    inside, step = gap_angles(task), task.grid.factors[-1].spacing
    return inside.min().item() - step, inside.max().item() + step


def linear_blend(task: RotationTask, angles: Float[Tensor, " angle"]) -> Float[Tensor, "angle y x"]:
    """The first digit's true images at the gap's edges, mixed with weights linear in the angle."""
    low, high = gap_edges(task)
    before, after = task.render(_first_digit(task, torch.tensor([low, high], dtype=torch.float64)))
    weight = ((angles - low) / (high - low))[:, None, None]
    return (1 - weight) * before + weight * after


def closer_to_blend(
    drawn: Float[Tensor, "angle y x"], truths: Float[Tensor, "angle y x"], blends: Float[Tensor, "angle y x"]
) -> Float[Tensor, " angle"]:
    """log10 of the root-mean-square distance to the truth over that to the blend, image by image."""
    to_truth, to_blend = (squared_error(drawn, other).sqrt().clamp(min=NEGLIGIBLE) for other in (truths, blends))
    return (to_truth / to_blend).log10()


def _first_digit(task: RotationTask, angles: Tensor) -> Tensor:
    """Rows of factor values: the first digit at these angles."""
    return angles[:, None] if task.digits == 1 else torch.stack([torch.zeros_like(angles), angles], dim=1)


def _by_digit(task: RotationTask, values: Tensor) -> Tensor:
    """Something a grid point as a row a digit."""
    return values.reshape(task.digits, task.angles)


def _angles(run: Run, prefix: str = "") -> dict[str, Any]:
    """Coordinates: the angles, and which of them are in the gap."""
    task, name = _task(run), f"{prefix}angle"
    held = _by_digit(task, task.held_out)[0].numpy()
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
    """Error over blank: a row a digit, a column an angle."""
    task, arrays = _task(run), run.arrays()
    error, blank, held = (_by_digit(task, torch.from_numpy(arrays[name])) for name in ("error", "blank", "held_out"))
    return (error / blank[:, held[0].bool()].mean(dim=1, keepdim=True)).numpy()


def _mean_closeness(run: Run, device: torch.device) -> float:
    task, angles = _task(run), gap_angles(_task(run))
    values = _first_digit(task, angles)
    found = closer_to_blend(answers(run, values, device).double(), task.render(values), linear_blend(task, angles))
    return found.mean().item()


def _reader(run: Run, device: torch.device) -> Reader:
    task = _task(run)
    return decoder_reader(run.module().to(device), lambda values: task.codes(values).float())


def _stage_speeds(run: Run, device: torch.device) -> np.ndarray:
    """How fast each stage moves a degree, inside the gap over outside; NaN for a stage that stands still."""
    task = _task(run)
    found = metric_tensor(_reader(run, device), task.grid.points.to(device), memory=MEMORY[device.type])
    held = task.held_out.to(device)
    speeds = [metric[:, 0, 0].double().clamp(min=0).sqrt() for metric in found.values()]
    return torch.stack([speed[held].mean() / speed[~held].mean() for speed in speeds]).cpu().numpy()


def _pictures(run: Run, device: torch.device) -> dict[str, Any]:
    """Answers, truths and blends at angles across the gap."""
    task = _task(run)
    shown = torch.linspace(*gap_edges(task), SHOWN, dtype=torch.float64)
    values = _first_digit(task, shown)
    images = {
        "answer": answers(run, values, device),
        "truth": task.render(values),
        "blend": linear_blend(task, shown),
    }
    found: dict[str, Any] = {
        name: (("shown", "row", "column"), (image.clamp(0, 1) * 255).round().to(torch.uint8).numpy())
        for name, image in images.items()
    }
    return {**found, "shown": shown.numpy()}


def _embedding(run: Run, device: torch.device) -> tuple[list[str], str, np.ndarray]:
    """Stages, method, and each stage's activations over all angles in two dimensions; the input has two as it is."""
    method, embed = _embedder()
    stages = features(_reader(run, device), _task(run).grid.points.to(device), memory=MEMORY[device.type])
    found = {name: embed(stage) if stage.shape[1] > 2 else stage.cpu().numpy() for name, stage in stages}
    return list(found), method, np.stack(list(found.values())).astype(np.float32)


def _embedder() -> tuple[str, Callable[[Tensor], np.ndarray]]:
    """UMAP where it is installed (the paper's), or else principal components."""
    try:
        mapper = import_module("umap").UMAP
    except (ImportError, AttributeError):
        return "PCA", _principal_components

    def embed(activations: Tensor) -> np.ndarray:
        neighbours = min(len(activations) - 1, max(FEWEST_NEIGHBOURS, round(NEIGHBOURS * len(activations))))
        mapped = mapper(n_neighbors=neighbours, n_components=2, random_state=0, n_jobs=1)
        return np.asarray(mapped.fit_transform(activations.cpu().numpy()))

    return "UMAP", embed


def _principal_components(activations: Float[Tensor, "point feature"]) -> np.ndarray:
    """The two leading ones, each with its largest entry positive."""
    left, lengths, _ = torch.linalg.svd(activations - activations.mean(dim=0), full_matrices=False)
    scores = left[:, :2] * lengths[:2]
    extreme = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    return (scores * extreme.sign()).cpu().numpy()
