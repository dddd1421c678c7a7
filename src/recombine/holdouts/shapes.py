"""Hold-outs that have a shape: boxes, corners, crosses and Ls."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.holdouts.base import CENTER_FRACTION, HOLDOUTS, Holdout, Pattern
from recombine.holdouts.bounds import Bound, centred, joined, per_factor, require_order, within, within_count

CORNER_START = 12 / 32
"""Where the corner of the low-rank study begins, as a share of each factor's values."""
ARM_FRACTION = 8 / 28
"""Width of the arms of the published cross, as a share of each factor's values."""


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

    @checked
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

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        if self.fraction is not None and (self.low is not None or self.high is not None):
            raise InvalidValue("holdout.fraction", self.fraction, "either a fraction or bounds, not both")
        low, high = centred(self.fraction or CENTER_FRACTION, grid)
        return self.replace(
            low=low if self.low is None else self.low,
            high=high if self.high is None else self.high,
            fraction=None,
        )

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        box = self.written_out(grid)
        low, high = per_factor("low", box.low, grid), per_factor("high", box.high, grid)
        require_order("high", low, high)
        return within(low, high, grid)


@HOLDOUTS.register
class Corner(Pattern):
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
    start: Bound | None = None
    """Where the corner begins, itself held out."""
    side: Literal["high", "low"] = "high"
    """`high`: positions start … last are held out; `low`: positions 0 … start."""

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        return self if self.start is not None else self.replace(start=corner_start(self.side, grid))

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        start = per_factor("start", self.written_out(grid).start, grid)
        first, last = (0,) * len(grid.shape), tuple(count - 1 for count in grid.shape)
        low, high = (start, last) if self.side == "high" else (first, start)
        return within(low, high, grid)


def corner_start(side: str, grid: FactorGrid) -> Bound:
    """Where the corner begins that nobody gave."""
    starts = [max(1, round(CORNER_START * count)) for count in grid.shape]
    if side == "low":
        starts = [count - 1 - start for count, start in zip(grid.shape, starts, strict=True)]
    return joined(starts)


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

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        arms, box = centred(ARM_FRACTION, grid), centred(CENTER_FRACTION, grid)
        defaults = {"arm_low": arms[0], "arm_high": arms[1], "low": box[0], "high": box[1]}
        return self.replace(**{name: value for name, value in defaults.items() if getattr(self, name) is None})

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        cross = self.written_out(grid)
        arm_low, arm_high = per_factor("arm_low", cross.arm_low, grid), per_factor("arm_high", cross.arm_high, grid)
        low, high = per_factor("low", cross.low, grid), per_factor("high", cross.high, grid)
        require_order("arm_high", arm_low, arm_high)
        require_order("high", low, high)
        outside_arms = len(grid.shape) - within_count(arm_low, arm_high, grid)
        return within(low, high, grid) & (outside_arms <= 1)


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

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        low, high = centred(CENTER_FRACTION, grid)
        bounds = self.replace(low=low if self.low is None else self.low, high=high if self.high is None else self.high)
        if self.notch is not None:
            return bounds
        lows, highs = per_factor("low", bounds.low, grid), per_factor("high", bounds.high, grid)
        return bounds.replace(notch=joined([(a + b + 1) // 2 for a, b in zip(lows, highs, strict=True)]))

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        ell = self.written_out(grid)
        low, high = per_factor("low", ell.low, grid), per_factor("high", ell.high, grid)
        notch = per_factor("notch", ell.notch, grid)
        require_order("high", low, high)
        if not all(a < n <= b for a, n, b in zip(low, notch, high, strict=True)):
            raise InvalidValue("holdout.notch", ell.notch, f"above low ({ell.low}) and at most high ({ell.high})")
        return within(low, high, grid) & ~within(notch, high, grid)
