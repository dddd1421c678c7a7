"""Hold-outs that are said by what they keep: a band along the diagonal, one factor at a time, an L-shaped support.

The training supports of the literature on compositional generalization (Wiedemer et al. 2023, "Compositional
generalization from first principles": diagonal, orthogonal; Lachapelle et al. 2023, "Additive decoders for latent
variables identification and Cartesian-product extrapolation": L-shaped), for any number of factors.

Known answers, for two factors of N values: `diagonal` with bandwidth 0 keeps N combinations, `orthogonal` 2N − 1, and
`L_shaped` holds out what `corner` does. For n factors `orthogonal` keeps 1 + n(N − 1), and `L_shaped` with a block of
b values keeps bⁿ + n(N − b)bⁿ⁻¹.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from recombine.checks import checked
from recombine.factors import LARGEST_GRID, FactorGrid
from recombine.holdouts.base import HOLDOUTS, Pattern
from recombine.holdouts.bounds import Bound, along, joined, per_factor, within_count
from recombine.holdouts.shapes import corner_start

BAND_FRACTION = 1 / 4
"""Bandwidth as a share of the longest factor's values, unless it is given."""
ROUNDING = 1e-9
"""Differences of positions that count as none."""


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

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        if self.bandwidth is not None:
            return self
        longest = max(grid.shape)
        # A factor of few values has wide steps, and a band that is narrower than one can pass beside a value.
        widest = ceil(max((longest - 1) / (count - 1) if count > 1 else 0 for count in grid.shape))
        return self.replace(bandwidth=max(round(BAND_FRACTION * longest), widest))

    @checked
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

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        return self if self.base is not None else self.replace(base=joined([count // 2 for count in grid.shape]))

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        base = per_factor("base", self.written_out(grid).base, grid)
        return len(grid.shape) - within_count(base, base, grid) > 1


@HOLDOUTS.register
class LShaped(Pattern):
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
    start: Bound | None = None
    """Where a factor's values outside the block begin."""
    side: Literal["high", "low"] = "high"
    """`high`: positions start … last are outside; `low`: positions 0 … start."""

    @checked
    def written_out(self, grid: FactorGrid) -> Self:
        return self if self.start is not None else self.replace(start=corner_start(self.side, grid))

    @checked
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        start = per_factor("start", self.written_out(grid).start, grid)
        first, last = (0,) * len(grid.shape), tuple(count - 1 for count in grid.shape)
        low, high = (start, last) if self.side == "high" else (first, start)
        return within_count(low, high, grid) > 1
