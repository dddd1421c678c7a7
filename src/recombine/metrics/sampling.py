"""Estimates of metrics on a grid that is too large to evaluate completely, from a sample of its points.

*Points* are drawn without replacement and stratified: half from the held-out and half from the kept combinations (those
not held out), or all points of a region that has fewer. The standard error of a region's mean is s / √n · √(1 − n / N),
which is 0 if the whole region was drawn; that of a ratio of two means is estimated from its linearised residuals,
numerator − ratio · denominator.

A *sub-grid* contains all combinations of some values of each factor, for metrics that need a grid. The values are drawn
without replacement and independently for each factor, so a mean over a sub-grid is unbiased. Its points are not
independent, so the standard error is estimated from independent sub-grids as s / √parts. A metric that depends on the
number of points (such as an effective rank) has its value for a grid of the sub-grid's size.

Known answers: sampling all points gives the exact mean with error 0; about 95 % of the 95 % intervals contain the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid, Form  # noqa: F401  jaxtyping resolves inherited annotations here
from recombine.streams import stream

CONFIDENCE = 0.95
FEWEST = 2
"""Minimum number of values per factor (unless it has fewer), held-out points and kept points in a sub-grid."""
ATTEMPTS = 100
"""Maximum number of attempts to draw a sub-grid with held-out points."""
LIMIT = 4096
"""Size of the largest grid that is measured as a whole, and default sample size for larger ones."""
PARTS = 5
"""Number of sub-grids."""
SUFFIX = "_se"
"""Suffix of the names of variables that contain standard errors."""
SAMPLED = "points"
"""Attribute that records the number of sampled points if the grid was sampled."""


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: Float[Tensor, "*shape"]
    standard_error: Float[Tensor, "*shape"]
    freedom: int
    """Degrees of freedom of the standard error."""

    def error_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of a variable with this standard error; intervals are ± `quantile` standard errors."""
        return {"description": f"standard error of {name}, from sampled points", "quantile": quantile(self.freedom)}


def quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the half-width of a confidence interval in standard errors; infinite without degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) if freedom > 0 else float("inf")


def mean_estimate(values: Float[Tensor, "*member sample"], population: int) -> Estimate:
    """Estimate the mean over a population of points from a sample drawn without replacement.

    The mean is NaN if there are no points; the standard error is NaN for a single point from a larger population.

    >>> estimate = mean_estimate(torch.tensor([1.0, 3.0]), 2)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    return Estimate(values.double().mean(dim=-1), _error(values.double(), population), values.shape[-1] - 1)


def ratio_estimate(
    over: Float[Tensor, "*member sample"], under: Float[Tensor, "*member sample"], population: int
) -> Estimate:
    """Estimate the ratio of two means over a population of points from a sample drawn without replacement.

    >>> estimate = ratio_estimate(torch.tensor([2.0, 6.0]), torch.tensor([1.0, 3.0]), 100)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    below = under.double().mean(dim=-1)
    ratio = over.double().mean(dim=-1) / below
    residual = over.double() - ratio[..., None] * under.double()
    return Estimate(ratio, _error(residual, population) / below.abs(), over.shape[-1] - 1)


def repeated_estimate(values: Float[Tensor, "part ..."]) -> Estimate:
    """Estimate a mean from independent sub-grids, ignoring non-finite values.

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


def _error(values: Tensor, population: int) -> Tensor:
    """Return the standard error of the mean of values drawn without replacement."""
    count = values.shape[-1]
    if count > population:
        raise InvalidValue("population", population, f"at least {count}, the size of the sample")
    if count == population:
        return torch.full_like(values.sum(dim=-1), 0.0 if count else torch.nan)
    if count < 2:
        return torch.full_like(values.sum(dim=-1), torch.nan)
    return values.std(dim=-1) * ((1 - count / population) / count) ** 0.5


def stratified_sample(
    held_out: Bool[Tensor, " point"], points: int, seed: int = 0, present: Bool[Tensor, " point"] | None = None
) -> Int[Tensor, " sample"]:
    """Return sorted indices of sampled points, half of them held out if there are enough of each kind.

    Only points that are `present` (default: all) are sampled. If there are at most `points` of them, all are returned.

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


@dataclass(frozen=True, kw_only=True)
class ThinnedFactor(Factor):
    """A subset of a factor's values, with the positions and spacing of the full factor."""

    whole: Factor
    steps: tuple[int, ...]

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
    """A sub-grid, and the indices of its points in the full grid."""

    grid: FactorGrid
    indices: Int[Tensor, " point"]

    @classmethod
    def of(cls, grid: FactorGrid, steps: Sequence[Tensor]) -> SubGrid:
        """Return the sub-grid of all combinations of the values at these indices of each factor."""
        factors = []
        for whole, own in zip(grid.factors, steps, strict=True):
            values = whole.values[own].tolist()
            ends = whole.name, values[0], values[-1], len(values), whole.form
            factors.append(ThinnedFactor(*ends, period=whole.period, whole=whole, steps=tuple(own.tolist())))
        indices = np.ravel_multi_index(np.ix_(*(own.numpy() for own in steps)), grid.shape)
        return cls(FactorGrid(tuple(factors)), torch.from_numpy(indices.flatten()))


def sub_grid_shape(shape: tuple[int, ...], points: int) -> tuple[int, ...]:
    """Return the shape of the largest sub-grid with at most `points` points and sides as equal as possible.

    >>> sub_grid_shape((100, 3, 100), 800)
    (16, 3, 16)
    """
    counts = [min(FEWEST, count) for count in shape]
    if points < prod(counts):
        raise InvalidValue("points", points, f"at least {prod(counts)}, for two values of each of {len(shape)} factors")
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
    """Draw independent random sub-grids with at most `points` points each.

    With `held_out`, sub-grids are redrawn, up to `ATTEMPTS` times, until they have two held-out and two kept points.

    >>> whole = FactorGrid((Factor("x", 0, 99, 100), Factor("y", 0, 99, 100)))
    >>> [part.grid.shape for part in draw_sub_grids(whole, 64, 2)]
    [(8, 8), (8, 8)]
    """
    shape = sub_grid_shape(grid.shape, points)
    drawn = []
    for part in range(parts):
        generator = stream(seed, "sub-grid", part)
        for _ in range(ATTEMPTS):
            steps = [
                torch.randperm(factor.count, generator=generator)[:count].sort().values
                for factor, count in zip(grid.factors, shape, strict=True)
            ]
            sub_grid = SubGrid.of(grid, steps)
            if held_out is None or has_both_sides(held_out[sub_grid.indices]):
                break
        drawn.append(sub_grid)
    return drawn


def gap_free_sub_grid(grid: FactorGrid, present: Bool[Tensor, " point"]) -> SubGrid:
    """Return a sub-grid whose points are all present, by repeatedly removing the factor value with the most gaps.

    >>> whole = FactorGrid((Factor("x", 0, 2, 3), Factor("y", 0, 3, 4)))
    >>> gap_free_sub_grid(whole, torch.arange(12) != 5).grid.shape
    (3, 3)
    """
    gaps, kept = ~present.cpu().reshape(grid.shape), [torch.arange(count) for count in grid.shape]
    while bool(gaps.any()):
        missing = [gaps.movedim(k, 0).reshape(size, -1).sum(dim=1) for k, size in enumerate(gaps.shape)]
        # fraction of each value's points that are missing, multiplied by the grid's size to compare integers
        shares = [int(counts.max()) * len(counts) for counts in missing]
        axis = shares.index(max(shares))
        others = torch.arange(len(missing[axis])) != missing[axis].argmax()
        kept[axis] = kept[axis][others]
        gaps = gaps.index_select(axis, torch.nonzero(others).flatten())
    if any(len(steps) < min(FEWEST, count) for steps, count in zip(kept, grid.shape, strict=True)):
        given = f"{int(present.sum())} of {grid.size} combinations"
        raise InvalidValue("data", given, "all combinations of at least two values of each factor (bins merges values)")
    return SubGrid.of(grid, kept)


def has_both_sides(held_out: Tensor) -> bool:
    """Return whether there are enough held-out and kept points."""
    return FEWEST <= int(held_out.sum()) <= len(held_out) - FEWEST
