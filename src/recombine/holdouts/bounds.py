"""Bounds of boxes on a grid: one number for all factors, or one per factor; both ends included."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid

Bound = int | tuple[int, ...]


def per_factor(field: str, bound: Bound | None, grid: FactorGrid) -> tuple[int, ...]:
    """One bound per factor, each inside the grid."""
    bounds = bound if isinstance(bound, tuple) else (bound,) * len(grid.shape)
    if len(bounds) != len(grid.shape):
        raise InvalidValue(f"holdout.{field}", bound, f"one number, or {len(grid.shape)} (one per factor)")
    for value, count in zip(bounds, grid.shape, strict=True):
        if value is None or not 0 <= value < count:
            raise InvalidValue(f"holdout.{field}", bound, f"0 to {count - 1}, inside the grid")
    return tuple(int(value) for value in bounds if value is not None)


def joined(bounds: list[int]) -> Bound:
    """The bounds as one number where all are equal."""
    return bounds[0] if len(set(bounds)) == 1 else tuple(bounds)


def along(column: Tensor, axis: int, grid: FactorGrid) -> Tensor:
    """Numbers for the values of one factor, as an array that broadcasts over the grid."""
    return column.reshape([-1 if k == axis else 1 for k in range(len(grid.shape))])


def within_count(low: tuple[int, ...], high: tuple[int, ...], grid: FactorGrid) -> Int[Tensor, " ..."]:
    """How many coordinates of each point lie between the bounds, both included."""
    inside = torch.zeros(grid.shape, dtype=torch.int16)
    for axis, (count, first, last) in enumerate(zip(grid.shape, low, high, strict=True)):
        positions = torch.arange(count)
        inside += along((positions >= first) & (positions <= last), axis, grid)
    return inside


def within(low: tuple[int, ...], high: tuple[int, ...], grid: FactorGrid) -> Bool[Tensor, " ..."]:
    """Whether each point lies between the bounds in every coordinate, both included."""
    return within_count(low, high, grid) == len(grid.shape)


def require_order(field: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
    """Refuse an upper bound below the lower one."""
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise InvalidValue(f"holdout.{field}", joined(list(high)), f"at least the lower bound {joined(list(low))}")


def centred(fraction: float, grid: FactorGrid) -> tuple[Bound, Bound]:
    """Bounds of a centred box that spans this share of every factor."""
    spans = [max(1, round(fraction * count)) for count in grid.shape]
    lows = [(count - span + 1) // 2 for count, span in zip(grid.shape, spans, strict=True)]
    return joined(lows), joined([low + span - 1 for low, span in zip(lows, spans, strict=True)])
