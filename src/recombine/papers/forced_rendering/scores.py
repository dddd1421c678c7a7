"""Scores shared by several studies: the fit to the training examples, and errors inside the hold-out.

Conventions: errors are relative to that of a blank image, separately for bumps and stripes, and the larger is reported,
because stripes are so much brighter that they would dominate a joint mean. Every distinct example counts once. Accuracy
covers bumps only, because a stripe has no position along one of its axes, and is NaN if there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import distance_inside, extreme_pixel, hits, interior, squared_error
from recombine.reproduction.measuring import Batch
from recombine.tasks import Task


def training_fit(batch: Batch, outputs: Tensor | None = None) -> dict[str, Tensor]:
    """Return `training_over_blank` and `training_accuracy` per run; pass `outputs` at all grid points to save time."""
    task = batch.task
    stripes = batch.outputs(task.isolated_values()) if task.isolated else None
    everywhere = batch.outputs(task.grid.points) if outputs is None else outputs
    return fit_of_outputs(task, [run.spec.seed for run in batch.runs], everywhere, stripes)


def fit_of_outputs(task: Task, seeds: Sequence[int], outputs: Tensor, stripes: Tensor | None) -> dict[str, Tensor]:
    """Return the same scores, computed from outputs at all grid points `[member, point, y, x]` and for stripes."""
    points = task.grid.points
    used = torch.stack([_used(task, seed) for seed in seeds])
    over = _over_blank(task, outputs, points, used)
    places = points[:, [task.grid.names.index(name) for name in task.position_factors]]
    located = hits(extreme_pixel(outputs, "bright" if task.background == 0 else "dark"), places)
    if stripes is not None:
        values = task.isolated_values()
        over = torch.fmax(over, _over_blank(task, stripes, values, torch.ones(len(seeds), len(values))))
    return {"training_over_blank": over, "training_accuracy": _mean(located, used)}


def _used(task: Task, seed: int) -> Tensor:
    """Return a mask of the grid points in a seed's training set."""
    values = task.training_values(seed)
    bumps = values[values.isfinite().all(dim=1)]
    nearest = task.grid.nearest(bumps)
    used = torch.zeros(task.grid.size, dtype=torch.bool)
    used[nearest[(task.grid.points[nearest] == bumps).all(dim=1)]] = True
    return used


def _over_blank(task: Task, outputs: Tensor, values: Tensor, used: Tensor) -> Tensor:
    """Return each member's mean error, relative to that of a blank image, over the rows it uses; NaN without any."""
    targets = task.examples(values).targets
    blank = squared_error(task.blank.expand_as(targets), targets)
    return _mean(squared_error(outputs, targets), used) / _mean(blank, used)


def _mean(values: Tensor, used: Tensor) -> Tensor:
    """Return the mean over the rows that each member uses."""
    return (values.double() * used).sum(dim=-1) / used.sum(dim=-1)


DISTANCE_DIMS = {f"distance_{name}": ("distance",) for name in ("mse", "over_blank", "accuracy")}
"""Dimensions of the scores by distance; the first entry is at 1 px from the kept (not held-out) region."""
DISTANCE_METRICS = ("distance_inside", "interior")


def errors_by_distance(batch: Batch) -> dict[str, np.ndarray]:
    """Return scores in the interior of the hold-out (`interior_…`) and by distance from the kept region."""
    held_out, shape = batch.task.held_out, batch.task.grid.shape
    distance = distance_inside(held_out, shape)
    regions = [interior(held_out, shape), *(distance == step for step in range(1, int(distance.max()) + 1))]
    weights = np.stack([region.numpy() / region.sum().item() for region in regions], axis=1)
    error, blank, hit = (batch.stored(name) @ weights for name in ("error", "blank", "hit"))
    scores = {"mse": error, "over_blank": error / blank, "accuracy": hit}
    inner = {f"interior_{name}": values[:, 0] for name, values in scores.items()}
    return {**inner, **{f"distance_{name}": values[:, 1:] for name, values in scores.items()}}
