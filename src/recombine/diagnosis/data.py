"""The part of a user's data on which a module is diagnosed: a grid that is small enough and has no gaps.

Measurements compare all pairs of points, so that of a large grid every second, third, … value of a factor is taken, of
the longest factors first. Where data lack combinations, the factor values that lack most are left out until none is
missing. The module gets the same inputs as ever: codes are those of the whole grid.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recombine.checks import whole_number
from recombine.data import factor_of
from recombine.diagnosis.arguments import encode_values, holdout_mask, valid_encoding
from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.stages import Encode
from recombine.tasks import ArrayTask

POINTS = 1024
"""Combinations on which a module is diagnosed, unless more are asked for."""


class Part(NamedTuple):
    """What `diagnose` takes, of some of the data."""

    grid: FactorGrid
    encode: Encode | Encoding | None
    held_out: Tensor
    targets: Tensor
    background: float
    notes: list[str]


def part_of(data: Any, encode: Any, holdout: Any, points: int) -> Part:
    """Grid, codes, hold-out and images of some of the data, an `ArrayTask` or a path."""
    whole_number("points", points, at_least=4)
    if isinstance(data, ArrayTask):
        task, encode = data, data.encoding if encode is None else encode
        held_out = task.held_out if holdout is None else holdout_mask(holdout, task.grid)
    else:
        task = ArrayTask(data=data, holdout="none")
        held_out = holdout_mask(holdout, task.grid)
    encoding = valid_encoding(encode)
    chosen = _without_gaps(_thinned(task.grid.shape, points), task)
    grid = _grid(task.grid, chosen)
    index = torch.from_numpy(np.ravel_multi_index(np.meshgrid(*chosen, indexing="ij"), task.grid.shape).ravel())
    whole = grid == task.grid
    note = f"data: {grid.size} of {int(task.present.sum())} combinations were measured"
    return Part(
        grid,
        encoding if whole else _on_part(encoding, task.grid, grid, chosen),
        held_out[index],
        task.render(task.grid.points[index]).flatten(1),
        task.background,
        [] if whole else [f"{note} ({', '.join(f'{f.name} {f.count}' for f in grid.factors)})"],
    )


def _thinned(shape: tuple[int, ...], points: int) -> list[np.ndarray]:
    """Positions of each factor, evenly spaced, with at most so many combinations."""
    strides = [1] * len(shape)

    def counts() -> list[int]:
        return [-(-size // stride) for size, stride in zip(shape, strides, strict=True)]

    while math.prod(counts()) > points:
        longest = max(range(len(shape)), key=lambda k: counts()[k])
        if counts()[longest] <= 2:
            raise InvalidValue("points", points, f"at least {2 ** len(shape)}, two values of each factor")
        strides[longest] += 1
    return [np.arange(0, size, stride) for size, stride in zip(shape, strides, strict=True)]


def _without_gaps(chosen: list[np.ndarray], task: ArrayTask) -> list[np.ndarray]:
    """The positions less those that lack most combinations, until none is missing."""
    present = task.present.reshape(task.grid.shape).numpy()[np.ix_(*chosen)]
    while not present.all():
        lacking = [(~present).mean(axis=tuple(a for a in range(present.ndim) if a != k)) for k in range(present.ndim)]
        axis = max(range(present.ndim), key=lambda k: float(lacking[k].max()))
        worst = int(lacking[axis].argmax())
        present = np.delete(present, worst, axis=axis)
        chosen = [np.delete(part, worst) if k == axis else part for k, part in enumerate(chosen)]
    if any(len(part) < 2 for part in chosen):
        allowed = "data with all combinations of at least two values of each factor"
        raise InvalidValue("data", f"{int(task.present.sum())} of {task.grid.size} combinations", allowed)
    return chosen


def _grid(grid: FactorGrid, chosen: list[np.ndarray]) -> FactorGrid:
    """The grid of some positions of each factor."""
    columns = zip(grid.factors, chosen, strict=True)
    return FactorGrid(tuple(factor_of(f.name, f.values.numpy()[part]).factor for f, part in columns))


def _on_part(
    encoding: Encode | Encoding | None, whole: FactorGrid, part: FactorGrid, chosen: list[np.ndarray]
) -> Encode:
    """The codes of the whole grid for values of a part of it; between two values, of what lies between."""
    levels = [f.values[torch.from_numpy(own)] for f, own in zip(whole.factors, chosen, strict=True)]

    def encode(values: Tensor) -> Tensor:
        columns = []
        for k, (factor, own) in enumerate(zip(part.factors, levels, strict=True)):
            own, position = own.to(values), factor.position(values[:, k])
            below = position.detach().floor().long().clamp(0, len(own) - 2)
            columns.append(own[below] + (position - below) * (own[below + 1] - own[below]))
        return encode_values(torch.stack(columns, dim=1), encoding, whole)

    return encode
