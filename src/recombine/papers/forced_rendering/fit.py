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

import torch
from torch import Tensor

from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.reproduction.measuring import Batch
from recombine.tasks import Task


def training_fit(batch: Batch) -> dict[str, Tensor]:
    """Error over blank and accuracy of runs on their training examples.

    Parameters
    ----------
    batch
        Runs of a decoder of bumps, trained on grid points.

    Returns
    -------
    dict of Tensor
        `training_over_blank` and `training_accuracy`, one number per run.
    """
    task = batch.task
    alone = batch.outputs(task.isolated_values()) if task.isolated else None
    return fit_of_outputs(task, [run.spec.seed for run in batch.runs], batch.outputs(task.grid.points), alone)


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
