"""Means over a grid that is too large to visit, from some of its points, and how far off they may be.

Conventions
-----------
Points are drawn without replacement, from the held-out ones and from the kept ones apart (stratified), so that a small
hold-out has as many as it needs: half of them each, or all where there are fewer. A mean over a region is then the mean
over its points that were drawn, and its standard error s / √n · √(1 − n / N): nothing where the whole region was
drawn. A ratio of two means is the ratio of their estimates, with the standard error of the residuals,
over − ratio · under (linearised). What is measured on independent parts of a grid has their mean, and s / √parts.

The half-width of an interval is Student's t for the degrees of freedom times the standard error.

Known answers: all points give the mean itself with error 0; over repeated draws the estimate lies within the 95 %
half-width of the whole mean in about 95 % of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import checked, number, whole_number
from recombine.errors import InvalidValue
from recombine.streams import stream

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: Float[Tensor, "*shape"]
    standard_error: Float[Tensor, "*shape"]
    freedom: int
    """Degrees of freedom of the standard error."""

    def half_width(self, confidence: float = CONFIDENCE) -> Float[Tensor, "*shape"]:
        """How far the number may be off, at this confidence; NaN where nothing says."""
        return self.standard_error * quantile(self.freedom, confidence)


def quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors an interval reaches to either side; infinity without degrees of freedom."""
    from scipy.special import stdtrit

    number("confidence", confidence, above=0, at_most=1)
    return float(stdtrit(freedom, (1 + confidence) / 2)) if freedom > 0 else float("inf")


@checked
def stratified_sample(
    held_out: Bool[Tensor, " point"], points: int, seed: int = 0, present: Bool[Tensor, " point"] | None = None
) -> Int[Tensor, " sample"]:
    """Some points of a grid, as many held-out as kept ones where there are enough.

    Parameters
    ----------
    held_out
        True where a point is held out.
    points
        How many to draw; all where the grid has no more.
    seed
        Of the draw.
    present
        True where a point may be drawn; all by default.

    Returns
    -------
    Tensor
        Indices of the points, in the grid's order.

    Examples
    --------
    >>> held_out = torch.arange(100) < 10
    >>> sample = stratified_sample(held_out, 40)
    >>> len(sample), int(held_out[sample].sum())
    (40, 10)
    """
    whole_number("points", points)
    whole_number("seed", seed, at_least=0)
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


@checked
def mean_estimate(values: Float[Tensor, "*member sample"], population: int) -> Estimate:
    """Mean over a population of points, from some of them.

    Parameters
    ----------
    values
        One number per point that was drawn.
    population
        Points that they were drawn from.

    Returns
    -------
    Estimate
        One mean per member; NaN without points, with an error of NaN for a lone point of several.

    Examples
    --------
    >>> estimate = mean_estimate(torch.tensor([1.0, 3.0]), 2)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    count = _count(values, population)
    return Estimate(values.double().mean(dim=-1), _error(values.double(), count, population), count - 1)


@checked
def ratio_estimate(
    over: Float[Tensor, "*member sample"], under: Float[Tensor, "*member sample"], population: int
) -> Estimate:
    """Ratio of two means over a population of points, from some of them.

    Parameters
    ----------
    over, under
        One number each per point that was drawn.
    population
        Points that they were drawn from.

    Returns
    -------
    Estimate
        One ratio per member.

    Examples
    --------
    >>> estimate = ratio_estimate(torch.tensor([2.0, 6.0]), torch.tensor([1.0, 3.0]), 100)
    >>> estimate.value.item(), estimate.standard_error.item()
    (2.0, 0.0)
    """
    count = _count(over, population)
    below = under.double().mean(dim=-1)
    ratio = over.double().mean(dim=-1) / below
    residual = over.double() - ratio[..., None] * under.double()
    return Estimate(ratio, _error(residual, count, population) / below.abs(), count - 1)


@checked
def repeated_estimate(values: Float[Tensor, "part ..."]) -> Estimate:
    """Mean over independent parts of a grid of what was measured on each of them.

    Parameters
    ----------
    values
        Numbers of each part; NaN or infinity where a part has none.

    Returns
    -------
    Estimate
        Means over the parts that have a number.

    Examples
    --------
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


def _count(values: Tensor, population: int) -> int:
    whole_number("population", population, at_least=0)
    if values.shape[-1] > population:
        raise InvalidValue("population", population, f"at least {values.shape[-1]}, the points that were drawn")
    return int(values.shape[-1])


def _error(values: Tensor, count: int, population: int) -> Tensor:
    """Standard error of the mean of values that were drawn without replacement."""
    if count == population:
        return torch.zeros_like(values.sum(dim=-1)) if count else torch.full_like(values.sum(dim=-1), torch.nan)
    if count < 2:
        return torch.full_like(values.sum(dim=-1), torch.nan)
    return values.std(dim=-1) * ((1 - count / population) / count) ** 0.5
