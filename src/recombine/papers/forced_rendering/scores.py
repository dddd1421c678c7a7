"""Scores shared by several studies: the fit to the training examples, and errors inside the hold-out.

A run's stored scores are over all kept (not held-out) and all held-out combinations. If a network is trained on few of
the kept combinations, or on stripes alone, its error on all of them does not show whether it learnt. `training_fit`
does, and `samples.learnt` uses it if it is in the Dataset.

Conventions: errors are relative to a blank image's, separately for bumps and stripes, and the larger of the two counts,
because stripes are so much brighter that they would dominate a joint mean. Every distinct example counts once. Accuracy
is over bumps only, because a stripe has no position along one of its axes, and NaN if there are none.
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
    """Return each run's `training_over_blank` and `training_accuracy`; `outputs` at all grid points save time."""
    task = batch.task
    stripes = batch.outputs(task.isolated_values()) if task.isolated else None
    everywhere = batch.outputs(task.grid.points) if outputs is None else outputs
    return fit_of_outputs(task, [run.spec.seed for run in batch.runs], everywhere, stripes)


def fit_of_outputs(task: Task, seeds: Sequence[int], outputs: Tensor, stripes: Tensor | None) -> dict[str, Tensor]:
    """Return the same from outputs at all grid points, `[member, point, y, x]`, and outputs for stripes."""
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
    """Return which grid points are in a seed's training set."""
    values = task.training_values(seed)
    bumps = values[values.isfinite().all(dim=1)]
    nearest = task.grid.nearest(bumps)
    used = torch.zeros(task.grid.size, dtype=torch.bool)
    used[nearest[(task.grid.points[nearest] == bumps).all(dim=1)]] = True
    return used


def _over_blank(task: Task, outputs: Tensor, values: Tensor, used: Tensor) -> Tensor:
    """Return each member's mean error, relative to a blank image's, over the rows it uses; NaN if it uses none."""
    targets = task.examples(values).targets
    blank = squared_error(task.blank.expand_as(targets), targets)
    return _mean(squared_error(outputs, targets), used) / _mean(blank, used)


def _mean(values: Tensor, used: Tensor) -> Tensor:
    """Return the mean over the rows that each member uses."""
    return (values.double() * used).sum(dim=-1) / used.sum(dim=-1)


DISTANCE_DIMS = {f"distance_{name}": ("distance",) for name in ("mse", "over_blank", "accuracy")}
"""Dimensions of the scores by distance; the first entry is for 1 px from the kept region."""
DISTANCE_METRICS = ("distance_inside", "interior")


def errors_by_distance(batch: Batch) -> dict[str, np.ndarray]:
    """Return scores in the interior of the hold-out, `[member]`, and by distance from the kept region.

    Scores are `mse`, `over_blank` and `accuracy`, prefixed with `interior_` (`[member]`) or `distance_` (`[member,
    distance]`). A blank image's error is computed over the same combinations.
    """
    task = batch.task
    distance = distance_inside(task.held_out, task.grid.shape)
    inner = _means(batch, interior(task.held_out, task.grid.shape))
    around = [_means(batch, distance == step) for step in range(1, int(distance.max()) + 1)]
    return {
        **{f"interior_{name}": values for name, values in inner.items()},
        **{f"distance_{name}": np.stack([part[name] for part in around], axis=1) for name in inner},
    }


def _means(batch: Batch, region: Tensor) -> dict[str, np.ndarray]:
    """Return scores over the grid points in a region."""
    error, blank, hit = (
        batch.stored(name)[:, region.numpy()].astype(float).mean(axis=1) for name in ("error", "blank", "hit")
    )
    return {"mse": error, "over_blank": error / blank, "accuracy": hit}
