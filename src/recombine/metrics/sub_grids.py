"""Sub-grids: every combination of some values of each factor, for what needs a grid where the whole one is too large.

Values are drawn at random, without replacement and independently for each factor, so that every point of the grid is
as likely to be in a sub-grid as any other, and a mean over a sub-grid is right on average. Its points are not
independent of each other; how far a number may be off shows between several sub-grids (`repeated_estimate`).

A number that depends on how many points there are (an effective rank, PF_Coeff of a delta kernel) is that of a grid of
the sub-grid's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import checked, whole_number
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid, Form  # noqa: F401  in annotations of what is inherited
from recombine.streams import stream

FEWEST = 2
"""Values of a factor in a sub-grid, where it has so many; and held-out and kept points."""
MOST_PARTS = 10**4
"""Sub-grids that are drawn at a time."""
ATTEMPTS = 100
"""Draws of a sub-grid before it is taken without held-out points."""


@dataclass(frozen=True, kw_only=True)
class ThinnedFactor(Factor):
    """Some values of a factor, with positions and spacing of the whole one."""

    whole: Factor
    steps: tuple[int, ...]

    @classmethod
    def thinned(cls, whole: Factor, steps: Tensor) -> ThinnedFactor:
        """The factor with the values at these steps, in order."""
        values = whole.values[steps].tolist()
        ends = whole.name, values[0], values[-1], len(values), whole.form
        return cls(*ends, period=whole.period, whole=whole, steps=tuple(steps.tolist()))

    @property
    def spacing(self) -> float:
        return self.whole.spacing

    @cached_property
    def values(self) -> Float[Tensor, " value"]:
        return self.whole.values[list(self.steps)]

    def position(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.whole.position(values)


@dataclass(frozen=True)
class SubGrid:
    """A grid, and where its points lie in the one that it was drawn from."""

    grid: FactorGrid
    indices: Int[Tensor, " point"]


@checked
def sub_grid_shape(shape: tuple[int, ...], points: int) -> tuple[int, ...]:
    """Values of each factor in a sub-grid of at most so many points: as equal as can be, two at least.

    Parameters
    ----------
    shape
        Number of values of each factor.
    points
        Largest number of points, enough for two values of each factor.

    Returns
    -------
    tuple of int
        Number of values of each factor in the sub-grid.

    Examples
    --------
    >>> sub_grid_shape((100, 3, 100), 800)
    (16, 3, 16)
    """
    fewest = prod(min(FEWEST, count) for count in shape)
    whole_number("points", points)
    if points < fewest:
        raise InvalidValue("points", points, f"at least {fewest}, for two values of each of {len(shape)} factors")
    counts = [min(FEWEST, count) for count in shape]
    while True:
        open_factors = [
            k for k, count in enumerate(counts)
            if count < shape[k] and prod(counts) // count * (count + 1) <= points
        ]  # fmt: skip
        if not open_factors:
            return tuple(counts)
        counts[min(open_factors, key=lambda k: counts[k])] += 1


@checked
def draw_sub_grids(
    grid: FactorGrid, points: int, parts: int, seed: int = 0, held_out: Bool[Tensor, " point"] | None = None
) -> list[SubGrid]:
    """Independent random sub-grids.

    Parameters
    ----------
    grid
        The whole grid.
    points
        Largest number of points of each sub-grid.
    parts
        How many sub-grids.
    seed
        Of the draws.
    held_out
        True where a point is held out: a sub-grid without two points on either side is drawn again, a hundred times.

    Returns
    -------
    list of SubGrid
        The last draw of each, be it without held-out points.

    Examples
    --------
    >>> whole = FactorGrid((Factor("x", 0, 99, 100), Factor("y", 0, 99, 100)))
    >>> [part.grid.shape for part in draw_sub_grids(whole, 64, 2)]
    [(8, 8), (8, 8)]
    """
    whole_number("parts", parts, at_most=MOST_PARTS)
    whole_number("seed", seed, at_least=0)
    if held_out is not None and held_out.shape != (grid.size,):
        raise InvalidValue("held_out", tuple(held_out.shape), f"one truth value for each of {grid.size} points")
    shape = sub_grid_shape(grid.shape, points)
    return [_drawn(grid, shape, stream(seed, "sub-grid", part), held_out) for part in range(parts)]


def _drawn(grid: FactorGrid, shape: tuple[int, ...], generator: torch.Generator, held_out: Tensor | None) -> SubGrid:
    for _ in range(ATTEMPTS):
        steps = [
            torch.randperm(factor.count, generator=generator)[:count].sort().values
            for factor, count in zip(grid.factors, shape, strict=True)
        ]
        drawn = _sub_grid(grid, steps)
        if held_out is None or has_both_sides(held_out[drawn.indices]):
            break
    return drawn


def _sub_grid(grid: FactorGrid, steps: Sequence[Tensor]) -> SubGrid:
    """The combinations of these values of each factor."""
    indices = torch.zeros(1, dtype=torch.int64)
    for factor, own in zip(grid.factors, steps, strict=True):
        indices = (indices[:, None] * factor.count + own).flatten()
    thinned = (ThinnedFactor.thinned(factor, own) for factor, own in zip(grid.factors, steps, strict=True))
    return SubGrid(FactorGrid(tuple(thinned)), indices)


@checked
def gap_free_sub_grid(grid: FactorGrid, present: Bool[Tensor, " point"]) -> SubGrid:
    """A sub-grid all of whose points are present: values that lack most are left out until nothing is missing.

    Parameters
    ----------
    grid
        The whole grid.
    present
        True where a point is present.

    Returns
    -------
    SubGrid
        With two values of each factor at least, where it has so many.

    Examples
    --------
    >>> whole = FactorGrid((Factor("x", 0, 2, 3), Factor("y", 0, 3, 4)))
    >>> gap_free_sub_grid(whole, torch.arange(12) != 5).grid.shape
    (3, 3)
    """
    if present.shape != (grid.size,):
        raise InvalidValue("present", tuple(present.shape), f"one truth value for each of {grid.size} points")
    lacking = ~present.cpu().reshape(grid.shape)
    axes = range(lacking.ndim)
    counts = [lacking.movedim(axis, 0).reshape(grid.shape[axis], -1).sum(dim=1) for axis in axes]
    kept = [torch.ones(count, dtype=torch.bool) for count in grid.shape]
    while max(int(own.max()) for own in counts):
        sizes = [int(own.sum()) for own in kept]
        axis = max(axes, key=lambda k: int(counts[k].max()) * sizes[k])  # the largest share of its points
        worst = int(counts[axis].argmax())
        gaps = lacking.select(axis, worst)
        for other in axes:
            at = other - (other > axis)
            counts[other] -= gaps.movedim(at, 0).reshape(grid.shape[other], -1).sum(dim=1) if other != axis else 0
        counts[axis][worst], kept[axis][worst] = 0, False
        gaps.zero_()
    if any(int(own.sum()) < min(FEWEST, len(own)) for own in kept):
        allowed = "data with all combinations of at least two values of each factor"
        raise InvalidValue("data", f"{int(present.sum())} of {grid.size} combinations", allowed)
    return _sub_grid(grid, [torch.nonzero(own).flatten() for own in kept])


def points_at(grid: FactorGrid, indices: Tensor | None) -> Float[Tensor, "point factor"]:
    """Factor values at some points of a grid, all by default, without those of the others."""
    if indices is None:
        return grid.points
    steps = steps_at(grid, indices)
    return torch.stack([factor.values[steps[:, k]] for k, factor in enumerate(grid.factors)], dim=1)


def steps_at(grid: FactorGrid, indices: Tensor) -> Int[Tensor, "point factor"]:
    """Which value of each factor some points of a grid have; `torch.unravel_index` would load a compiler."""
    left, columns = indices.cpu(), []
    for count in reversed(grid.shape):
        columns.append(left % count)
        left = left // count
    return torch.stack(columns[::-1], dim=1)


def has_both_sides(held_out: Tensor) -> bool:
    """Whether enough points are held out, and enough are not."""
    held = int(held_out.sum())
    return FEWEST <= held <= len(held_out) - FEWEST
