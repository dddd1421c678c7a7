"""Numbers over a grid that is too large to visit, from some of its points, and how far off they may be.

Conventions
-----------
Points are drawn without replacement, from the held-out ones and from the kept ones apart (stratified), so that a small
hold-out has as many as it needs: half of them each, or all where there are fewer. A mean over a region is then the mean
over its points that were drawn, and its standard error s / √n · √(1 − n / N): nothing where the whole region was
drawn. A ratio of two means is the ratio of their estimates, with the standard error of the residuals,
over − ratio · under (linearised). What is measured on independent parts of a grid has their mean, and s / √parts. The
half-width of an interval is Student's t for the degrees of freedom times the standard error.

A *sub-grid* is every combination of some values of each factor, for what needs a grid. Values are drawn at random,
without replacement and independently for each factor, so that every point of the grid is as likely to be in a sub-grid
as any other, and a mean over a sub-grid is right on average. Its points are not independent of each other; how far a
number may be off shows between several sub-grids (`repeated_estimate`). A number that depends on how many points there
are (an effective rank, PF_Coeff of a delta kernel) is that of a grid of the sub-grid's size.

Known answers: all points give the mean itself with error 0; over repeated draws the estimate lies within the 95 %
half-width of the whole mean in about 95 % of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid, Form  # noqa: F401  in annotations of what is inherited
from recombine.streams import stream

CONFIDENCE = 0.95
FEWEST = 2
"""Values of a factor in a sub-grid, where it has so many; and held-out and kept points."""
ATTEMPTS = 100
"""Draws of a sub-grid before it is taken without held-out points."""


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: Float[Tensor, "*shape"]
    standard_error: Float[Tensor, "*shape"]
    freedom: int
    """Degrees of freedom of the standard error."""


def quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors an interval reaches to either side; infinity without degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) if freedom > 0 else float("inf")


def stratified_sample(
    held_out: Bool[Tensor, " point"], points: int, seed: int = 0, present: Bool[Tensor, " point"] | None = None
) -> Int[Tensor, " sample"]:
    """Indices of some points of a grid, in its order: as many held-out as kept ones where there are enough.

    All points where the grid has no more; of those that are `present` alone, where that is given.

    >>> held_out = torch.arange(100) < 10
    >>> sample = stratified_sample(held_out, 40)
    >>> len(sample), int(held_out[sample].sum())
    (40, 10)
    """
    if present is not None:
        places = torch.nonzero(present.cpu()).flatten()
        return places[stratified_sample(held_out.cpu()[places], points, seed)]
    if points >= len(held_out):
        return torch.arange(len(held_out))
    regions = [torch.nonzero(region).flatten() for region in (held_out.cpu(), ~held_out.cpu())]
    held = min(len(regions[0]), max(points // 2, points - len(regions[1])))
    generator = stream(seed, "sampled points")
    drawn = [
        region[torch.randperm(len(region), generator=generator)[:count]]
        for region, count in zip(regions, (held, points - held), strict=True)
    ]
    return torch.cat(drawn).sort().values


def mean_estimate(values: Float[Tensor, "*member sample"], population: int) -> Estimate:
    """Mean over a population of points, from some of them, drawn without replacement.

    NaN without points, with an error of NaN for a lone point of several.

    >>> estimate = mean_estimate(torch.tensor([1.0, 3.0]), 2)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    count = values.shape[-1]
    return Estimate(values.double().mean(dim=-1), _error(values.double(), count, population), count - 1)


def ratio_estimate(
    over: Float[Tensor, "*member sample"], under: Float[Tensor, "*member sample"], population: int
) -> Estimate:
    """Ratio of two means over a population of points, from some of them.

    >>> estimate = ratio_estimate(torch.tensor([2.0, 6.0]), torch.tensor([1.0, 3.0]), 100)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    count = over.shape[-1]
    below = under.double().mean(dim=-1)
    ratio = over.double().mean(dim=-1) / below
    residual = over.double() - ratio[..., None] * under.double()
    return Estimate(ratio, _error(residual, count, population) / below.abs(), count - 1)


def repeated_estimate(values: Float[Tensor, "part ..."]) -> Estimate:
    """Mean over independent parts of a grid of what was measured on each, of those that have a (finite) number.

    >>> estimate = repeated_estimate(torch.tensor([1.0, 3.0]))
    >>> estimate.value.item(), round(estimate.standard_error.item(), 6)
    (2.0, 1.0)
    """
    numbers = torch.where(values.isfinite(), values.double(), torch.nan)
    count = (~numbers.isnan()).sum(dim=0)
    mean = numbers.nanmean(dim=0)
    square = (numbers - mean).square().nansum(dim=0)
    deviation = (square / torch.where(count > 1, count - 1, torch.nan)).sqrt()
    return Estimate(mean, deviation / count.sqrt(), len(values) - 1)


def _error(values: Tensor, count: int, population: int) -> Tensor:
    """Standard error of the mean of values that were drawn without replacement."""
    if count > population:
        raise InvalidValue("population", population, f"at least {count}, the points that were drawn")
    if count == population:
        return torch.zeros_like(values.sum(dim=-1)) if count else torch.full_like(values.sum(dim=-1), torch.nan)
    if count < 2:
        return torch.full_like(values.sum(dim=-1), torch.nan)
    return values.std(dim=-1) * ((1 - count / population) / count) ** 0.5


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


def sub_grid_shape(shape: tuple[int, ...], points: int) -> tuple[int, ...]:
    """Values of each factor in a sub-grid of at most so many points: as equal as can be, two at least.

    >>> sub_grid_shape((100, 3, 100), 800)
    (16, 3, 16)
    """
    fewest = prod(min(FEWEST, count) for count in shape)
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


def draw_sub_grids(
    grid: FactorGrid, points: int, parts: int, seed: int = 0, held_out: Bool[Tensor, " point"] | None = None
) -> list[SubGrid]:
    """So many independent random sub-grids, of at most so many points each.

    One without two points on either side of a hold-out is drawn again, up to `ATTEMPTS` times.

    >>> whole = FactorGrid((Factor("x", 0, 99, 100), Factor("y", 0, 99, 100)))
    >>> [part.grid.shape for part in draw_sub_grids(whole, 64, 2)]
    [(8, 8), (8, 8)]
    """
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
    indices = torch.from_numpy(np.ravel_multi_index(np.ix_(*(own.numpy() for own in steps)), grid.shape).flatten())
    thinned = (ThinnedFactor.thinned(factor, own) for factor, own in zip(grid.factors, steps, strict=True))
    return SubGrid(FactorGrid(tuple(thinned)), indices)


def gap_free_sub_grid(grid: FactorGrid, present: Bool[Tensor, " point"]) -> SubGrid:
    """A sub-grid all of whose points are present: values that lack most are left out until nothing is missing.

    >>> whole = FactorGrid((Factor("x", 0, 2, 3), Factor("y", 0, 3, 4)))
    >>> gap_free_sub_grid(whole, torch.arange(12) != 5).grid.shape
    (3, 3)
    """
    lacking, kept = ~present.cpu().reshape(grid.shape), [torch.arange(count) for count in grid.shape]
    while bool(lacking.any()):
        missing = [lacking.movedim(k, 0).reshape(size, -1).sum(dim=1) for k, size in enumerate(lacking.shape)]
        shares = [int(own.max()) * len(own) for own in missing]  # of a value's points, times the size of the grid
        axis = shares.index(max(shares))
        others = torch.arange(len(missing[axis])) != missing[axis].argmax()
        kept[axis] = kept[axis][others]
        lacking = lacking.index_select(axis, torch.nonzero(others).flatten())
    if any(len(own) < min(FEWEST, count) for own, count in zip(kept, grid.shape, strict=True)):
        given = f"{int(present.sum())} of {grid.size} combinations"
        raise InvalidValue("data", given, "all combinations of at least two values of each factor")
    return _sub_grid(grid, kept)


def points_at(grid: FactorGrid, indices: Tensor | None) -> Float[Tensor, "point factor"]:
    """Factor values at some points of a grid, all by default, without those of the others."""
    if indices is None:
        return grid.points
    steps = steps_at(grid, indices)
    return torch.stack([factor.values[steps[:, k]] for k, factor in enumerate(grid.factors)], dim=1)


def steps_at(grid: FactorGrid, indices: Tensor) -> Int[Tensor, "point factor"]:
    """Which value of each factor some points of a grid have; `torch.unravel_index` would load a compiler."""
    return torch.from_numpy(np.stack(np.unravel_index(indices.cpu().numpy(), grid.shape), axis=1))


def has_both_sides(held_out: Tensor) -> bool:
    """Whether enough points are held out, and enough are not."""
    held = int(held_out.sum())
    return FEWEST <= held <= len(held_out) - FEWEST
