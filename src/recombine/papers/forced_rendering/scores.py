"""How well networks draw the examples that they were trained on.

Scores of a run are over kept and held-out combinations. Where a network is trained on few of the kept ones, or on
stripes alone, its error on all of them says nothing about whether it learnt. These numbers do; `samples.learnt` reads
them where a Dataset has them.

Conventions: errors are over that of a blank image, of bumps and of stripes each by themselves, and the larger of the
two counts: stripes are so much brighter that bumps would not be seen in a common mean. Every distinct example counts
once. Accuracy is that of the bumps; without any it is NaN, for a stripe has no place along one of its axes.
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
    """`training_over_blank` and `training_accuracy` of runs on their training examples, one number per run.

    `outputs` are those at all grid points, where they are known already.
    """
    task = batch.task
    alone = batch.outputs(task.isolated_values()) if task.isolated else None
    everywhere = batch.outputs(task.grid.points) if outputs is None else outputs
    return fit_of_outputs(task, [run.spec.seed for run in batch.runs], everywhere, alone)


def fit_of_outputs(task: Task, seeds: Sequence[int], outputs: Tensor, alone: Tensor | None) -> dict[str, Tensor]:
    """The same of outputs at all grid points, `[member, point, y, x]`, and for single factors, one member per seed."""
    points = task.grid.points
    used = torch.stack([_used(task, seed) for seed in seeds])
    over = _over_blank(task, outputs, points, used)
    places = points[:, [task.grid.names.index(name) for name in task.position_factors]]
    located = hits(extreme_pixel(outputs, "bright" if task.background == 0 else "dark"), places)
    if alone is not None:
        stripes = task.isolated_values()
        all_stripes = torch.ones(len(seeds), len(stripes), dtype=torch.bool)
        over = torch.fmax(over, _over_blank(task, alone, stripes, all_stripes))
    return {"training_over_blank": over, "training_accuracy": _mean(located, used)}


def _used(task: Task, seed: int) -> Tensor:
    """Which grid points are in a seed's training set."""
    values = task.training_values(seed)
    bumps = values[values.isfinite().all(dim=1)]
    nearest = task.grid.nearest(bumps)
    used = torch.zeros(task.grid.size, dtype=torch.bool)
    used[nearest[(task.grid.points[nearest] == bumps).all(dim=1)]] = True
    return used


def _over_blank(task: Task, outputs: Tensor, values: Tensor, used: Tensor) -> Tensor:
    """Mean error over that of a blank image, of the rows that each member uses; NaN where it uses none."""
    targets = task.examples(values).targets
    blank = squared_error(task.blank.expand_as(targets), targets)
    return _mean(squared_error(outputs, targets), used) / _mean(blank, used)


def _mean(values: Tensor, used: Tensor) -> Tensor:
    """Over the rows that each member uses."""
    return (values.double() * used).sum(dim=-1) / used.sum(dim=-1)


DISTANCE = ("distance",)
"""Dimension of what is kept by distance; the first entry is 1 px from the kept region."""
DISTANCE_DIMS = {"distance_mse": DISTANCE, "distance_over_blank": DISTANCE, "distance_accuracy": DISTANCE}
DISTANCE_METRICS = ("distance_inside", "interior")


def errors_by_distance(batch: Batch) -> dict[str, np.ndarray]:
    """Errors and accuracies in the interior of the hold-out, and at every distance from the kept region.

    `interior_mse`, `interior_over_blank` and `interior_accuracy` are `[member]`, the same with `distance` are `[member,
    distance]`, beginning beside the kept region. Errors over blank are over the blank image's in the same combinations.
    """
    task = batch.task
    distance = distance_inside(task.held_out, task.grid.shape)
    inner = _means(batch, interior(task.held_out, task.grid.shape))
    around = [_means(batch, distance == step) for step in range(1, int(distance.max()) + 1)]
    return {
        **{f"interior_{name}": values for name, values in inner.items()},
        **{f"distance_{name}": np.stack([part[name] for part in around], axis=1) for name in inner},
    }


def _means(batch: Batch, region: torch.Tensor) -> dict[str, np.ndarray]:
    """Scores over some of the grid's points."""
    error, blank, hit = (batch.stored(name)[:, region.numpy()].astype(float) for name in ("error", "blank", "hit"))
    return {
        "mse": error.mean(axis=1),
        "over_blank": error.mean(axis=1) / blank.mean(axis=1),
        "accuracy": hit.mean(axis=1),
    }
