"""Errors and hits of a trained member on the factor grid.

A hit is an output that shows the right position; for a user's images, one whose nearest image is its own; and for
sprites, one with the right classes of hue and scale.

A grid of more than `EVALUATED` points is sampled, stratified by hold-out (`recombine.metrics.sampling`); scores then
have standard errors. Points without an example are never evaluated. Examples that would not fit into memory are
rendered in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.metrics import contrast, extreme_pixel, hits, squared_error
from recombine.metrics.errors import ComparedTargets
from recombine.metrics.sampling import Estimate, mean_estimate, ratio_estimate, stratified_sample
from recombine.tasks import Task
from recombine.training.devices import arithmetic
from recombine.training.tables import DistinctExamples

Evaluation = dict[str, Tensor]
SCORES_VERSION = 1
"""Increment when the scores of a run change, so that datasets with scores are recomputed."""
EXACT = "donot_use_mm_for_euclid_dist"
"""Compute distances between codes directly, since a matrix product would lose precision."""
KEPT_BYTES = {"cpu": 2**28, "cuda": 2**32}
"""Maximum size in bytes of a grid's examples stored on a device; larger ones are rendered again for every member."""
EVALUATED = 20_000
"""Maximum number of grid points to evaluate; larger grids are sampled."""
COMPARED_POINTS, COMPARED_BYTES = 4096, 2**26
"""Images of a task without positions are compared with this many others at most, and with no more than these bytes."""
REGIONS = ("id", "ood")
"""Kept and held-out combinations, as in the names of scores."""
SAMPLE_SEED = 0
"""Sampling seed, fixed so that all members trained on a task are scored at the same points."""


class Evaluator:
    """Examples from a task's factor grid, rendered once for many members.

    `chunk` points are evaluated at a time, in strict float32. Grids of more than `points` points are sampled; members
    that share an evaluator must then share the hold-out.
    """

    def __init__(
        self, task: Task, device: torch.device, chunk: int = 32, points: int = EVALUATED, seed: int = SAMPLE_SEED
    ) -> None:
        self.task, self.device, self.chunk = task, device, chunk
        whole = bool(task.present.all()) and not samples(task, points)
        self.sample = None if whole else stratified_sample(task.held_out, points, seed, task.present)
        self.points = task.grid.points if self.sample is None else task.grid.rows(self.sample)
        bytes_needed = len(self.points) * (DistinctExamples(task, self.points).row_bytes + self.points[0].nbytes)
        self._kept = (
            self._rendered(self.points, device)
            if bytes_needed <= KEPT_BYTES.get(device.type, KEPT_BYTES["cpu"])
            else None
        )
        self.compared, self.targets = self._targets()
        blank = task.blank.to(device)
        self.blank = torch.cat([squared_error(blank.expand_as(goal), goal) for _, goal, _ in self.chunks()]).cpu()

    def _targets(self) -> tuple[Tensor, ComparedTargets | None]:
        """Return the evaluated points whose images outputs are compared with, evenly spaced, and those images."""
        if not self.task.known_by_image or self.task.direction != "decode":
            return torch.empty(0, dtype=torch.long), None
        fitting = COMPARED_BYTES // (torch.float32.itemsize * math.prod(self.task.image_shape))
        count = max(1, min(len(self.points), COMPARED_POINTS, fitting))
        chosen = torch.linspace(0, len(self.points) - 1, count).round().long().unique()
        images = torch.empty(len(chosen), math.prod(self.task.image_shape), device=self.device)
        for first, part in enumerate(chosen.split(self.chunk)):
            images[first * self.chunk :][: len(part)] = self.task.images(self.points[part]).flatten(1)
        return chosen, ComparedTargets(images)

    def _rendered(self, points: Tensor, device: torch.device) -> tuple[Tensor, ...]:
        return tuple(part.to(device) for part in (*self.task.examples(points), points))

    def chunks(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield chunks of inputs, targets and points, on the device."""
        if self._kept is not None:
            yield from zip(*(part.split(self.chunk) for part in self._kept), strict=True)
            return
        for points in self.points.split(self.chunk):
            yield self._rendered(points, self.device)

    @property
    def held_out(self) -> Tensor:
        """Whether each evaluated point is held out."""
        return self.task.held_out if self.sample is None else self.task.held_out[self.sample]

    def relative_targets(self, region: str) -> Iterator[Tensor]:
        """Yield the targets of a region in parts, `(row, pixel)`, relative to the background."""
        first = 0
        for _, targets, _ in self.chunks():
            inside = self.held_out[first : first + len(targets)].to(targets.device)
            first += len(targets)
            yield targets[inside if region == "ood" else ~inside].flatten(1).double() - float(self.task.background)

    def spread(self) -> dict[str, float]:
        """Return the mean squared difference of the targets from their mean image, by region, per pixel."""
        spread = {}
        for region in REGIONS:
            count, total, square = 0, torch.zeros(()), torch.zeros(())
            for rows in self.relative_targets(region):
                count, total, square = count + len(rows), total + rows.sum(0), square + rows.square().mean(1).sum()
            mean = total / max(count, 1)
            spread[region] = float(square / max(count, 1) - mean.square().mean())
        if min(spread.values()) <= 0:
            allowed = (
                "one with at least two different images, both held out and kept, since R² is relative to their mean"
            )
            raise InvalidValue("holdout", str(self.task.holdout), allowed)
        return spread

    @torch.no_grad()
    def of(self, forward: Callable[[Tensor], Tensor], held_out: Tensor) -> Evaluation:
        """Return `error`, `hit`, `blank` (the error of the blank output) and `held_out` per grid point.

        For a sampled grid, or one with missing combinations, `point` is the index of each point in the grid, and
        `weight` the number of points that it represents.
        """
        errors, hit, first = [], [], 0
        with arithmetic("float32"):
            for inputs, targets, points in self.chunks():
                outputs = forward(inputs)
                if outputs.shape != targets.shape:  # torch would broadcast silently
                    raise InvalidValue("forward", outputs, f"a function with outputs of shape {tuple(targets.shape)}")
                outputs = outputs.float()
                errors.append(squared_error(outputs, targets))
                of_places = self.targets is None
                hit.append(_hit(self.task, outputs, points) if of_places else self._is_nearest(outputs, first))
                first += len(outputs)
        evaluation = {"error": torch.cat(errors).cpu(), "blank": self.blank, "hit": torch.cat(hit).cpu()}
        if self.sample is None:
            return {**evaluation, "held_out": held_out}
        present = self.task.present
        if len(self.sample) < int(present.sum()) and not torch.equal(held_out, self.task.held_out):
            raise InvalidValue("held_out", held_out, "the hold-out for which points were sampled")
        inside = held_out[self.sample]
        regions = (held_out & present, inside), (~held_out & present, ~inside)
        held, kept = (whole.sum().double() / drawn.sum() for whole, drawn in regions)
        return {**evaluation, "held_out": inside, "point": self.sample, "weight": torch.where(inside, held, kept)}

    def _is_nearest(self, outputs: Tensor, first: int) -> Tensor:
        """Return whether each output is nearest to its own image, or NaN for points that are not compared."""
        assert self.targets is not None
        own = ((self.compared >= first) & (self.compared < first + len(outputs))).nonzero().flatten()
        rows, own = (self.compared[own] - first).to(outputs.device), own.to(outputs.device)
        hit = torch.full((len(outputs),), torch.nan, device=outputs.device)
        hit[rows] = (self.targets.nearest(outputs[rows].flatten(1), own) == own).float()
        return hit


def samples(task: Task, points: int = EVALUATED) -> bool:
    """Return whether a task has more examples than are evaluated, so that its grid is sampled."""
    return int(task.present.sum()) > points


def evaluate(
    task: Task,
    forward: Callable[[Tensor], Tensor],
    device: torch.device,
    chunk: int = 32,
    *,
    points: int = EVALUATED,
    seed: int = SAMPLE_SEED,
) -> Evaluation:
    """Return one member's error and hit at every grid point, or at a sample of a large grid.

    Parameters
    ----------
    task
        Task whose grid is evaluated.
    forward
        Function or module that maps a batch of inputs to a batch of outputs.
    device
        Device to evaluate on.
    chunk
        Grid points per batch.
    points
        Maximum number of points; larger grids are sampled, stratified by hold-out.
    seed
        Seed for sampling.

    Returns
    -------
    `error`, `hit`, `blank` (the error of the blank output) and `held_out`, one value per grid point; for a sample also
    `point`, the index in the grid, and `weight`, the number of points represented.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1")
    >>> evaluation = rc.evaluate(spec.task, spec.module(), torch.device("cpu"))
    >>> evaluation["error"].shape, int(evaluation["held_out"].sum())
    (torch.Size([64]), 25)
    """
    return Evaluator(task, device, chunk, points, seed).of(forward, task.held_out)


def _hit(task: Task, outputs: Tensor, points: Tensor) -> Tensor:
    """Return whether each output shows the right position, or counts as right for a task without positions."""
    if not task.position_factors:
        return task.is_right(outputs, points)
    axes = [task.grid.names.index(name) for name in task.position_factors]
    if task.direction == "decode":
        if len(task.image_shape) == 3:
            return hits(extreme_pixel(contrast(outputs, task.background)), points[:, axes])
        return hits(extreme_pixel(outputs, "bright" if task.background == 0 else "dark"), points[:, axes])
    return hits(_read_code(task, outputs)[:, axes], points[:, axes])


def _read_code(task: Task, codes: Tensor) -> Tensor:
    """Decode codes to the factor values with the nearest code."""
    columns = []
    for factor, block in zip(task.grid.factors, codes.split(task.code_sizes, dim=-1), strict=True):
        values = factor.values.to(codes.device)
        known = task.encoding.code(values, factor).float()
        columns.append(values[torch.cdist(block, known, compute_mode=EXACT).argmin(dim=-1)])
    return torch.stack(columns, dim=-1)


def scores(evaluation: Evaluation) -> dict[str, float]:
    """Return mean error, error relative to blank outputs, and accuracy on held-out (`ood`) and all other (`id`) points.

    Parameters
    ----------
    evaluation
        Result of `evaluate`.

    Returns
    -------
    `id_mse`, `id_over_blank`, `id_accuracy`, and the same with `ood`.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> task = rc.BumpTask(size=8)
    >>> blank = rc.evaluate(task, lambda codes: torch.zeros(len(codes), 8, 8), torch.device("cpu"))
    >>> rc.scores(blank)["ood_over_blank"]
    1.0
    """
    return {name: estimate.value.item() for name, estimate in _estimates(evaluation).items()}


def standard_errors(evaluation: Evaluation) -> dict[str, float]:
    """Return the standard error of each score due to sampling; 0 if the whole grid was evaluated."""
    return {name: estimate.standard_error.item() for name, estimate in _estimates(evaluation).items()}


def _estimates(evaluation: Evaluation) -> dict[str, Estimate]:
    """Return each score with its standard error."""
    held_out = evaluation["held_out"].bool()
    weight = evaluation.get("weight", torch.ones(len(held_out), dtype=torch.float64))
    estimates: dict[str, Estimate] = {}
    for name, region in (("id", ~held_out), ("ood", held_out)):
        error, blank, hit = (evaluation[part].double()[region] for part in ("error", "blank", "hit"))
        population = round(weight[region].sum().item())
        estimates[f"{name}_mse"] = mean_estimate(error, population)
        estimates[f"{name}_over_blank"] = ratio_estimate(error, blank, population)
        # points whose images were not compared have no hit
        estimates[f"{name}_accuracy"] = mean_estimate(hit[~hit.isnan()], population)
    return estimates
