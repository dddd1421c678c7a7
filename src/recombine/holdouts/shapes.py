"""Hold-outs that have a shape: boxes, corners, crosses and Ls; and those that are said by what they keep.

The latter are the training supports of the literature on compositional generalization (Wiedemer et al. 2023,
"Compositional generalization from first principles": diagonal, orthogonal; Lachapelle et al. 2023, "Additive decoders
for latent variables identification and Cartesian-product extrapolation": L-shaped), for any number of factors.

Known answers, for two factors of N values: `diagonal` with bandwidth 0 keeps N combinations, `orthogonal` 2N − 1, and
`L_shaped` holds out what `corner` does. For n factors `orthogonal` keeps 1 + n(N − 1), and `L_shaped` with a block of
b values keeps bⁿ + n(N − b)bⁿ⁻¹.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Any, Literal, Self

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import LARGEST_GRID, FactorGrid
from recombine.holdouts.base import CENTER_FRACTION, HOLDOUTS, Holdout, Pattern

CORNER_START = 12 / 32
"""Where the corner of the low-rank study begins, as a share of each factor's values."""
ARM_FRACTION = 8 / 28
"""Width of the arms of the published cross, as a share of each factor's values."""
BAND_FRACTION = 1 / 4
"""Bandwidth as a share of the longest factor's values, unless it is given."""
ROUNDING = 1e-9
"""Differences of positions that count as none."""

Bound = int | tuple[int, ...]


def per_factor(field: str, bound: Bound | None, grid: FactorGrid) -> tuple[int, ...]:
    """One bound per factor, each inside the grid."""
    assert bound is not None  # written out
    bounds = bound if isinstance(bound, tuple) else (bound,) * len(grid.shape)
    if len(bounds) != len(grid.shape):
        raise InvalidValue(f"holdout.{field}", bound, f"one number, or {len(grid.shape)} (one per factor)")
    for value, count in zip(bounds, grid.shape, strict=True):
        if not 0 <= value < count:
            raise InvalidValue(f"holdout.{field}", bound, f"0 to {count - 1}, inside the grid")
    return bounds


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


def interval(
    pattern: Pattern, grid: FactorGrid, lower: str = "low", upper: str = "high"
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The bounds in two fields of a hold-out, one per factor, the upper ones not below the lower ones."""
    low, high = (per_factor(field, getattr(pattern, field), grid) for field in (lower, upper))
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise InvalidValue(f"holdout.{upper}", joined(list(high)), f"at least the lower bound {joined(list(low))}")
    return low, high


def centred(
    grid: FactorGrid, fraction: float = CENTER_FRACTION, lower: str = "low", upper: str = "high"
) -> dict[str, Bound]:
    """Bounds, by two fields, of a centred box that spans this share of every factor."""
    spans = [max(1, round(fraction * count)) for count in grid.shape]
    lows = [(count - span + 1) // 2 for count, span in zip(grid.shape, spans, strict=True)]
    return {lower: joined(lows), upper: joined([low + span - 1 for low, span in zip(lows, spans, strict=True)])}


@HOLDOUTS.register
class Nothing(Holdout):
    """Every combination is kept.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> int(rc.Nothing().mask(grid).sum())
    0
    """

    kind: Literal["none"] = "none"

    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return torch.zeros(grid.shape, dtype=torch.bool)


@HOLDOUTS.register
class Center(Pattern):
    """A box `[low, high]` in every factor; centred, with 17/28 of each factor, unless bounds are given.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Center(low=1, high=3).mask(grid).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 1, 1, 1, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["center"] = "center"
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Span of the centred box as a share of each factor, instead of bounds."""

    def written_out(self, grid: FactorGrid) -> Self:
        if self.fraction is not None and (self.low is not None or self.high is not None):
            raise InvalidValue("holdout.fraction", self.fraction, "either a fraction or bounds, not both")
        return super().written_out(grid).replace(fraction=None)

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        return centred(grid, self.fraction or CENTER_FRACTION)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return within(*interval(self.written_out(grid), grid), grid)


class _Beyond(Pattern):
    """What is held out depends on how many factors lie at or beyond `start`."""

    start: Bound | None = None
    """Where a factor's values that count begin."""
    side: Literal["high", "low"] = "high"
    """`high`: positions start … last count; `low`: positions 0 … start."""

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        starts = [max(1, round(CORNER_START * count)) for count in grid.shape]
        if self.side == "low":
            starts = [count - 1 - start for count, start in zip(grid.shape, starts, strict=True)]
        return {"start": joined(starts)}

    def beyond(self, grid: FactorGrid) -> Int[Tensor, " ..."]:
        """How many coordinates of each point lie at or beyond `start`."""
        start = per_factor("start", self.written_out(grid).start, grid)
        first, last = (0,) * len(grid.shape), tuple(count - 1 for count in grid.shape)
        return within_count(start, last, grid) if self.side == "high" else within_count(first, start, grid)


@HOLDOUTS.register
class Corner(_Beyond):
    """All factors at or beyond `start`: a box in the corner of the largest (or smallest) values.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Corner(start=3).mask(grid).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1],
            [0, 0, 0, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["corner"] = "corner"

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return self.beyond(grid) == len(grid.shape)


@HOLDOUTS.register
class Cross(Pattern):
    """A plus sign: points of the box `[low, high]` with at most one coordinate outside the arms' band.

    The published cross runs through the whole image and so removes whole factor values; it is
    `cross:10:17:0:27` together with `allow_unseen`.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Cross(arm_low=2, arm_high=2, low=1, high=3).mask(grid).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["cross"] = "cross"
    arm_low: Bound | None = None
    """Lowest position inside the arms."""
    arm_high: Bound | None = None
    """Highest position inside the arms."""
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        return centred(grid, ARM_FRACTION, "arm_low", "arm_high") | centred(grid)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        cross = self.written_out(grid)
        outside_arms = len(grid.shape) - within_count(*interval(cross, grid, "arm_low", "arm_high"), grid)
        return within(*interval(cross, grid), grid) & (outside_arms <= 1)


@HOLDOUTS.register
class Ell(Pattern):
    """An L: the box `[low, high]` without its upper part `[notch, high]`.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Ell(low=1, high=3, notch=2).mask(grid).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 1, 0, 0, 0],
            [0, 1, 0, 0, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["L"] = "L"
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""
    notch: Bound | None = None
    """Where the part that is cut out of the box begins."""

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        box = centred(grid)
        given = {"low": self.low, "high": self.high}
        ends = [per_factor(name, box[name] if bound is None else bound, grid) for name, bound in given.items()]
        return {**box, "notch": joined([(a + b + 1) // 2 for a, b in zip(*ends, strict=True)])}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        ell = self.written_out(grid)
        low, high = interval(ell, grid)
        notch = per_factor("notch", ell.notch, grid)
        if not all(a < n <= b for a, n, b in zip(low, notch, high, strict=True)):
            raise InvalidValue("holdout.notch", ell.notch, f"above low ({ell.low}) and at most high ({ell.high})")
        return within(low, high, grid) & ~within(notch, high, grid)


@HOLDOUTS.register
class Diagonal(Pattern):
    """A band along the diagonal is kept: where the positions of all factors differ by `bandwidth` at most.

    Factors of fewer values than the longest are stretched to its length, so that the diagonal runs from corner to
    corner; those of a single value are passed over.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Diagonal(bandwidth=1).mask(grid).int()
    tensor([[0, 0, 1, 1, 1],
            [0, 0, 0, 1, 1],
            [1, 0, 0, 0, 1],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["diagonal"] = "diagonal"
    bandwidth: Annotated[int, Field(ge=0, le=LARGEST_GRID)] | None = None
    """Largest difference between kept positions, in steps of the longest factor; 0 keeps the diagonal alone."""

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        longest = max(grid.shape)
        # A factor of few values has wide steps, and a band that is narrower than one can pass beside a value.
        widest = ceil(max((longest - 1) / (count - 1) if count > 1 else 0 for count in grid.shape))
        return {"bandwidth": max(round(BAND_FRACTION * longest), widest)}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        longest, bandwidth = max(grid.shape), self.written_out(grid).bandwidth or 0
        least, most = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        for axis, count in enumerate(grid.shape):
            if count > 1:
                position = along(torch.arange(count) * ((longest - 1) / (count - 1)), axis, grid)
                least, most = torch.minimum(least, position), torch.maximum(most, position)
        return (most - least > bandwidth + ROUNDING).expand(grid.shape)


@HOLDOUTS.register
class Orthogonal(Pattern):
    """One factor is varied at a time: kept is where at most one factor differs from a base point.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.Orthogonal(base=2).mask(grid).int()
    tensor([[1, 1, 0, 1, 1],
            [1, 1, 0, 1, 1],
            [0, 0, 0, 0, 0],
            [1, 1, 0, 1, 1],
            [1, 1, 0, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["orthogonal"] = "orthogonal"
    base: Bound | None = None
    """Position of the base point; the middle unless it is given."""

    def usual(self, grid: FactorGrid) -> dict[str, Any]:
        return {"base": joined([count // 2 for count in grid.shape])}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        base = per_factor("base", self.written_out(grid).base, grid)
        return len(grid.shape) - within_count(base, base, grid) > 1


@HOLDOUTS.register
class LShaped(_Beyond):
    """An L-shaped support is kept: where at most one factor lies outside the block in the corner of the lowest values.

    `corner` holds out where all factors are outside; for two factors that is the same.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 4, 5), rc.Factor("y", 0, 4, 5)))
    >>> rc.LShaped(start=2).mask(grid).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 1, 1, 1],
            [0, 0, 1, 1, 1],
            [0, 0, 1, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["L_shaped"] = "L_shaped"

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return self.beyond(grid) > 1
