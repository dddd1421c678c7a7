"""Hold-outs in the shape of boxes, corners, crosses and Ls, and hold-outs defined by the support that is kept.

The supports are those of Wiedemer et al. 2023, "Compositional generalization from first principles" (diagonal,
orthogonal), and Lachapelle et al. 2023, "Additive decoders for latent variables identification and Cartesian-product
extrapolation" (L-shaped), for any number of factors.

Known answers, for two factors of N values: `diagonal` with bandwidth 0 keeps N combinations, `orthogonal` keeps 2N − 1,
and `L_shaped` equals `corner`. For n factors, `orthogonal` keeps 1 + n(N − 1), and `L_shaped` with a block of b values
per factor keeps bⁿ + n(N − b)bⁿ⁻¹.
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
from recombine.holdouts.base import (
    CENTER_FRACTION,
    HOLDOUTS,
    Bound,
    Holdout,
    Pattern,
    along,
    axes_of,
    centred,
    interval,
    joined,
    per_factor,
    within,
    within_count,
)
from recombine.records import ADDED

CORNER_START = 12 / 32
"""Default start of the corner, as a fraction of each factor's values."""
ARM_FRACTION = 8 / 28
"""Default width of the cross's arms, as a fraction of each factor's values."""
BAND_FRACTION = 1 / 4
"""Default bandwidth, as a fraction of the number of values of the longest factor."""
ROUNDING = 1e-9
"""Tolerance for differences between positions."""

Blocks = Annotated[tuple[Annotated[int, Field(ge=1)], ...] | None, ADDED]


@HOLDOUTS.register
class Nothing(Holdout):
    """No hold-out: every combination is kept.

    Examples
    --------
    >>> import recombine as rc
    >>> int(rc.BumpTask(size=5, holdout=rc.Nothing()).held_out.sum())
    0
    """

    kind: Literal["none"] = "none"

    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return torch.zeros(grid.shape, dtype=torch.bool)


@HOLDOUTS.register
class Center(Pattern):
    """A box `[low, high]` in every factor; by default centred, spanning 17/28 of each factor.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Center(low=1, high=3)).held_out.reshape(5, 5).int()
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
    """Fraction of each factor's values spanned by a centred box; replaces the bounds."""

    def filled(self, grid: FactorGrid) -> Self:
        if self.fraction is not None and (self.low is not None or self.high is not None):
            raise InvalidValue("holdout.fraction", self.fraction, "omitted if bounds are given")
        return super().filled(grid).replace(fraction=None)

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        return centred(grid, self.fraction or CENTER_FRACTION)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return within(*interval(self.filled(grid), grid), grid)


class _Beyond(Pattern):
    """Base class of hold-outs that count how many factors lie at or beyond `start`."""

    start: Bound | None = None
    """Position of each factor at which the held-out side begins."""
    side: Literal["high", "low"] = "high"
    """Which side is held out: positions from start to the last (high), or from 0 to start (low)."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        starts = [max(1, round(CORNER_START * count)) for count in grid.shape]
        if self.side == "low":
            starts = [count - 1 - start for count, start in zip(grid.shape, starts, strict=True)]
        return {"start": joined(starts)}

    def beyond(self, grid: FactorGrid) -> Int[Tensor, " ..."]:
        """Return how many coordinates of each point lie at or beyond `start`."""
        start = per_factor("start", self.filled(grid).start, grid)
        first, last = (0,) * len(grid.shape), tuple(count - 1 for count in grid.shape)
        return within_count(start, last, grid) if self.side == "high" else within_count(first, start, grid)


@HOLDOUTS.register
class Corner(_Beyond):
    """A box in the corner of the largest (or smallest) values: all factors at or beyond `start`.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Corner(start=3)).held_out.reshape(5, 5).int()
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
    """A plus sign: points of the box `[low, high]` with at most one coordinate outside the arms.

    A cross through the whole grid, such as `cross:10:17:0:27`, removes factor values and needs `allow_unseen`.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Cross(arm_low=2, arm_high=2, low=1, high=3)).held_out.reshape(5, 5).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["cross"] = "cross"
    arm_low: Bound | None = None
    """Lowest position of the arms, for each factor."""
    arm_high: Bound | None = None
    """Highest position of the arms, for each factor."""
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        return centred(grid, ARM_FRACTION, "arm_low", "arm_high") | centred(grid)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        cross = self.filled(grid)
        outside_arms = len(grid.shape) - within_count(*interval(cross, grid, "arm_low", "arm_high"), grid)
        return within(*interval(cross, grid), grid) & (outside_arms <= 1)


@HOLDOUTS.register
class Ell(Pattern):
    """An L shape: the box `[low, high]` without its upper corner `[notch, high]`.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Ell(low=1, high=3, notch=2)).held_out.reshape(5, 5).int()
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
    """Lowest position of the corner cut out of the box."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        box = centred(grid)
        given = {"low": self.low, "high": self.high}
        ends = [per_factor(name, box[name] if bound is None else bound, grid) for name, bound in given.items()]
        return {**box, "notch": joined([(a + b + 1) // 2 for a, b in zip(*ends, strict=True)])}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        ell = self.filled(grid)
        low, high = interval(ell, grid)
        notch = per_factor("notch", ell.notch, grid)
        if not all(a < n <= b for a, n, b in zip(low, notch, high, strict=True)):
            raise InvalidValue("holdout.notch", ell.notch, f"above low ({ell.low}) and at most high ({ell.high})")
        return within(low, high, grid) & ~within(notch, high, grid)


@HOLDOUTS.register
class Diagonal(Pattern):
    """A hold-out that keeps a band along the diagonal, where all factors' positions differ by at most `bandwidth`.

    Factors with fewer values than the longest are stretched to its length, so that the diagonal runs from corner to
    corner; factors with a single value are ignored.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Diagonal(bandwidth=1)).held_out.reshape(5, 5).int()
    tensor([[0, 0, 1, 1, 1],
            [0, 0, 0, 1, 1],
            [1, 0, 0, 0, 1],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["diagonal"] = "diagonal"
    bandwidth: Annotated[int, Field(ge=0, le=LARGEST_GRID)] | None = None
    """Largest difference between positions that is kept, in steps of the longest factor; 0 keeps only the diagonal."""
    blocks: Blocks = None
    """Numbers of consecutive factors in each block, all equal, such as 5,5 for two sprites: the first factors of all
    blocks are compared, then the second, and so on. Default: all factors are compared."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        longest = max(grid.shape)
        # A factor with few values has wide steps; a band narrower than a step could miss one of its values.
        widest = ceil(max((longest - 1) / (count - 1) if count > 1 else 0 for count in grid.shape))
        return {"bandwidth": max(round(BAND_FRACTION * longest), widest)}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        longest, bandwidth = max(grid.shape), self.filled(grid).bandwidth or 0
        blocks = axes_of(self.blocks, grid)
        if len({len(block) for block in blocks}) > 1:
            raise InvalidValue("holdout.blocks", self.blocks, "blocks of equal size")
        held = torch.zeros(grid.shape, dtype=torch.bool)
        for axes in zip(*blocks, strict=True):
            least, most = torch.tensor(torch.inf), torch.tensor(-torch.inf)
            for axis in axes:
                if (count := grid.shape[axis]) > 1:
                    position = along(torch.arange(count) * ((longest - 1) / (count - 1)), axis, grid)
                    least, most = torch.minimum(least, position), torch.maximum(most, position)
            held |= most - least > bandwidth + ROUNDING
        return held


@HOLDOUTS.register
class Orthogonal(Pattern):
    """A hold-out that keeps combinations in which at most one factor differs from a base point.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Orthogonal(base=2)).held_out.reshape(5, 5).int()
    tensor([[1, 1, 0, 1, 1],
            [1, 1, 0, 1, 1],
            [0, 0, 0, 0, 0],
            [1, 1, 0, 1, 1],
            [1, 1, 0, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["orthogonal"] = "orthogonal"
    base: Bound | None = None
    """Position of the base point. Default: the middle of the grid."""
    blocks: Blocks = None
    """Numbers of consecutive factors in each block, such as 5,5 for two sprites, of which at most one differs from the
    base point, in any of its factors. Default: every factor is a block."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        return {"base": joined([count // 2 for count in grid.shape])}

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        base = per_factor("base", self.filled(grid).base, grid)
        elsewhere = torch.zeros(grid.shape, dtype=torch.int16)
        for block in axes_of(self.blocks, grid):
            here = torch.ones(grid.shape, dtype=torch.bool)
            for axis in block:
                here &= along(torch.arange(grid.shape[axis]) == base[axis], axis, grid)
            elsewhere += ~here
        return elsewhere > 1


@HOLDOUTS.register
class LShaped(_Beyond):
    """A hold-out that keeps an L-shaped support, where at most one factor lies outside the block of lowest values.

    `corner` holds out combinations in which all factors are outside; for two factors, the two hold-outs are equal.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.LShaped(start=2)).held_out.reshape(5, 5).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 1, 1, 1],
            [0, 0, 1, 1, 1],
            [0, 0, 1, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["L_shaped"] = "L_shaped"

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return self.beyond(grid) > 1


@HOLDOUTS.register
class Orthotopic(Pattern):
    """A hold-out of the combinations in which more than `count` factors lie at or beyond `start`.

    `orthotopic:1` equals `L_shaped`.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpsTask(factors=("x=4", "y=4", "size=4"), holdout=rc.Orthotopic(count=2, start=3))
    >>> int(task.held_out.sum())
    1
    """

    kind: Literal["orthotopic"] = "orthotopic"
    count: Annotated[int, Field(ge=1)] = 1
    """Largest number of factors at or beyond `start` that is kept."""
    start: Bound | None = None
    """Threshold of each factor. Default: 12/32 of its values."""

    def defaults(self, grid: FactorGrid) -> dict[str, Any]:
        return LShaped().defaults(grid)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        if self.count >= len(grid.shape):
            raise InvalidValue("holdout.count", self.count, f"1 to {len(grid.shape) - 1}, less than all factors")
        return LShaped(start=self.filled(grid).start).beyond(grid) > self.count
