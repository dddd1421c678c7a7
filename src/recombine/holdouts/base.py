"""Base classes and registry of hold-outs, and a summary of their masks."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Self

import torch
from jaxtyping import Bool, Int
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.records import ADDED, Frozen, Registry, Variant

CENTER_FRACTION = 17 / 28
"""Fraction of each factor's values inside the default centred box."""
Bound = int | tuple[int, ...]
"""For every factor, or one for each."""
MOST_NAMED = 3
"""Maximum number of values listed in a summary."""


class HoldoutSummary(Frozen):
    """Combinations kept and held out, and the factor values that are never seen.

    Examples
    --------
    >>> import recombine as rc
    >>> print(rc.BumpTask(size=8, holdout="center:2:5").holdout_summary)
    48 combinations kept, 16 held out (x 2–5, y 2–5); every value is seen
    """

    kept: int
    """Number of combinations kept."""
    held_out: int
    """Number of combinations held out."""
    unseen: tuple[str, ...]
    """Factor values that occur in no kept combination, such as `x=3`."""
    absent: int = 0
    """Number of combinations without an example, which are neither kept nor held out."""
    where: str = ""
    """Held-out values, such as `x 2–5, y 2–5`; of other shapes than boxes, the first combinations."""

    @classmethod
    def of(cls, mask: Bool[Tensor, " ..."], grid: FactorGrid, present: Bool[Tensor, " point"] | None = None) -> Self:
        """Summarise a mask over the grid, which is True where held out; `present` marks points with an example."""
        if mask.shape not in (grid.shape, (grid.size,)):
            raise InvalidValue("mask", mask, f"a mask over the grid of shape {grid.shape}")
        available = torch.ones_like(mask) if present is None else present.reshape(mask.shape)
        held_out, kept, unseen = mask & available, (~mask & available).reshape(grid.shape), list[str]()
        for axis, factor in enumerate(grid.factors):
            seen = kept.movedim(axis, 0).flatten(1).any(dim=1) if kept.ndim > 1 else kept
            unseen += [f"{factor.name}={factor.label(k)}" for k in torch.nonzero(~seen).flatten().tolist()]
        absent, where = grid.size - int(available.sum()), _where(held_out, available, grid)
        return cls(kept=int(kept.sum()), held_out=int(held_out.sum()), unseen=tuple(unseen), absent=absent, where=where)

    def __str__(self) -> str:
        """Return a one-line summary."""
        unseen = f"never seen: {_first(self.unseen, len(self.unseen))}" if self.unseen else "every value is seen"
        absent, where = f", {self.absent} absent" if self.absent else "", f" ({self.where})" if self.where else ""
        return f"{self.kept} combinations kept, {self.held_out} held out{where}{absent}; {unseen}"


def _first(names: Sequence[str], count: int) -> str:
    """Return the first of `count` names, and how many more there are."""
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    return f"{listed(names[:MOST_NAMED])}{more}"


def _where(held_out: Tensor, available: Tensor, grid: FactorGrid) -> str:
    """Return the held-out values: those of each factor if the shape is a box, else the first combinations."""
    held, present = held_out.reshape(grid.shape), available.reshape(grid.shape)
    if not bool(held.any()):
        return ""
    bound = []  # factors on whose value it depends whether a combination is held out
    for axis, factor in enumerate(grid.factors):
        is_free = (held | ~present).all(dim=axis, keepdim=True) | ~held.any(dim=axis, keepdim=True)
        if bool(is_free.all()):
            held, present = (part.any(dim=axis, keepdim=True) for part in (held, present))
        else:
            bound.append((axis, factor))
    sides = [held.movedim(axis, 0).reshape(held.shape[axis], -1).any(dim=1) for axis, _ in bound]
    box = present
    for (axis, _), side in zip(bound, sides, strict=True):
        box = box & side.reshape([-1 if k == axis else 1 for k in range(held.ndim)])
    if torch.equal(box, held):
        return ", ".join(_side(factor, side) for (_, factor), side in zip(bound, sides, strict=True))
    points = torch.nonzero(held)
    shown = [
        " ".join(f"{own.name}={own.label(row[axis])}" for axis, own in bound) for row in points[:MOST_NAMED].tolist()
    ]
    return _first(shown, len(points))


def _side(factor: Factor, held: Bool[Tensor, " value"]) -> str:
    """Return the held-out values of a factor, such as `x 2–5`, `shape heart` or `x {0–5, 7–11}`."""
    runs: list[list[int]] = []
    for place in torch.nonzero(held).flatten().tolist():
        if runs and place == runs[-1][-1] + 1 and factor.form != "category":
            runs[-1].append(place)
        else:
            runs.append([place])
    texts = ["–".join(dict.fromkeys((factor.label(run[0]), factor.label(run[-1])))) for run in runs]
    return f"{factor.name} {texts[0]}" if len(texts) == 1 else f"{factor.name} {{{_first(texts, len(texts))}}}"


class Holdout(Variant):
    """Base class of rules that hold out combinations of a grid.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.HOLDOUTS.parse("center:6:22")
    Center(kind='center', factors=None, low=6, high=22, fraction=None)
    >>> rc.BumpTask(size=8, holdout="corner:5").held_out.sum()
    tensor(9)
    """

    @abstractmethod
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """Return a mask with the grid's shape, True where held out."""

    def resolved(self, grid: FactorGrid) -> Self:
        """Return a copy in which bounds that depend on the grid are filled in."""
        return self

    def summary(self, grid: FactorGrid) -> HoldoutSummary:
        """Return the combinations kept and held out, and the values that are never seen."""
        return HoldoutSummary.of(self.mask(grid), grid)


def _places(factors: Any) -> Any:
    """Convert strings of digits to positions, since no factor has such a name."""
    if not isinstance(factors, (list, tuple)):
        return factors
    return tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in factors)


SomeFactors = Annotated[tuple[str | int, ...] | None, BeforeValidator(_places)]
"""A selection of a grid's factors, by name or position; None means all."""


class Pattern(Holdout):
    """Base class of hold-outs over some factors; a subclass defines the mask over the grid of those factors."""

    factors: Annotated[SomeFactors, ADDED] = None
    """Factors it applies to, by name or position, e.g. x,angle or 0,2; bounds are in this order. Default: all."""

    @abstractmethod
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """Return the mask over the grid of the chosen factors, True where held out."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        """Return values for fields that are None, given the grid of the chosen factors."""
        return {}

    def filled(self, grid: FactorGrid) -> Self:
        """Return a copy in which defaults replace None, given the grid of the chosen factors."""
        missing = {name: value for name, value in self.defaults(grid).items() if getattr(self, name) is None}
        return self.replace(**missing) if missing else self

    def resolved(self, grid: FactorGrid) -> Self:
        """Return a copy with defaults filled in and factors given by name (None for all factors)."""
        chosen = self._chosen(grid)
        return self.filled(chosen).replace(factors=None if chosen.names == grid.names else chosen.names)

    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        pattern, axes = self.pattern(self._chosen(grid)), self._axes(grid)
        in_order = pattern.permute(sorted(range(len(axes)), key=axes.__getitem__))
        sides = [count if axis in axes else 1 for axis, count in enumerate(grid.shape)]
        return in_order.reshape(sides).expand(grid.shape).contiguous()

    def _axes(self, grid: FactorGrid) -> tuple[int, ...]:
        try:
            return grid.axes(self.factors)
        except InvalidValue as error:
            raise InvalidValue("holdout.factors", error.value, error.allowed) from None

    def _chosen(self, grid: FactorGrid) -> FactorGrid:
        return grid if self.factors is None else FactorGrid(tuple(grid.factors[axis] for axis in self._axes(grid)))


class Holdouts(Registry[Holdout]):
    """The registry of hold-outs, which also reads conditions such as `x>=8,y>=8`."""

    def parse(self, value: Any) -> Holdout:
        """Return an instance; text with a comparison in its first part is that of `where`."""
        is_condition = isinstance(value, str) and re.search("[<>]|[=!]=", value.partition(":")[0])
        return super().parse(f"where:{value}" if is_condition else value)


HOLDOUTS = Holdouts("holdout", Holdout)
AnyHoldout = Annotated[SerializeAsAny[Holdout], BeforeValidator(HOLDOUTS.parse)]


def axes_of(blocks: tuple[int, ...] | None, grid: FactorGrid) -> list[range]:
    """Return the axes of each block of consecutive factors; without sizes, every factor is a block."""
    sizes = blocks or (1,) * len(grid.shape)
    if sum(sizes) != len(grid.shape):
        raise InvalidValue("blocks", blocks, f"sizes whose sum is {len(grid.shape)}, the number of factors")
    ends = list(accumulate(sizes, initial=0))
    return [range(start, end) for start, end in pairwise(ends)]


def per_factor(field: str, bound: Bound | None, grid: FactorGrid) -> tuple[int, ...]:
    """Return one bound per factor, each inside the grid."""
    assert bound is not None  # already filled in
    bounds = bound if isinstance(bound, tuple) else (bound,) * len(grid.shape)
    if len(bounds) != len(grid.shape):
        raise InvalidValue(f"holdout.{field}", bound, f"one number, or {len(grid.shape)} (one per factor)")
    for value, count in zip(bounds, grid.shape, strict=True):
        if not 0 <= value < count:
            raise InvalidValue(f"holdout.{field}", bound, f"0 to {count - 1}, inside the grid")
    return bounds


def joined(bounds: list[int]) -> Bound:
    """Return bounds as one number if all are equal, otherwise as a tuple."""
    return bounds[0] if len(set(bounds)) == 1 else tuple(bounds)


def along(column: Tensor, axis: int, grid: FactorGrid) -> Tensor:
    """Reshape a vector with one element per value of a factor, so that it broadcasts over the grid."""
    return column.reshape([-1 if k == axis else 1 for k in range(len(grid.shape))])


def within_count(low: tuple[int, ...], high: tuple[int, ...], grid: FactorGrid) -> Int[Tensor, " ..."]:
    """Return how many coordinates of each point lie within the bounds (inclusive)."""
    inside = torch.zeros(grid.shape, dtype=torch.int16)
    for axis, (count, first, last) in enumerate(zip(grid.shape, low, high, strict=True)):
        positions = torch.arange(count)
        inside += along((positions >= first) & (positions <= last), axis, grid)
    return inside


def within(low: tuple[int, ...], high: tuple[int, ...], grid: FactorGrid) -> Bool[Tensor, " ..."]:
    """Return whether each point lies within the bounds in every coordinate."""
    return within_count(low, high, grid) == len(grid.shape)


def interval(
    pattern: Pattern, grid: FactorGrid, lower: str = "low", upper: str = "high"
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the lower and upper bounds given by two fields of a hold-out, with one value per factor."""
    low, high = (per_factor(field, getattr(pattern, field), grid) for field in (lower, upper))
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise InvalidValue(f"holdout.{upper}", joined(list(high)), f"at least the lower bound {joined(list(low))}")
    return low, high


def centred(
    grid: FactorGrid, fraction: float = CENTER_FRACTION, lower: str = "low", upper: str = "high"
) -> dict[str, Bound]:
    """Return the bounds, by field name, of a centred box that spans a fraction of every factor."""
    spans = [max(1, round(fraction * count)) for count in grid.shape]
    lows = [(count - span + 1) // 2 for count, span in zip(grid.shape, spans, strict=True)]
    return {lower: joined(lows), upper: joined([low + span - 1 for low, span in zip(lows, spans, strict=True)])}
