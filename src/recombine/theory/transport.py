"""How a network transports the distribution of factors (§3.4): is it still a product, and does its hole stay open?

All metrics are functions of a Gram matrix over the grid's points (`projections.both_grams`), so they are invariant to
rotations, shifts and scale.

Uniform factor values have a product distribution. Its image in a stage is a product over blocks of coordinates, one per
factor, if features are sums of single-factor functions (`additivity`): projections onto main effects are independent.

Over kept points (those not held out), the factors are dependent, since some combinations are missing. `hole_dependence`
measures this dependence in the stage: 0 if the kept points form a product, 1 for a diagonal. It changes between stages
if main effects, computed over the whole grid, are stretched or merged; compare it with that of the factors.

`hole_geometry` measures how wide the hole is and whether anything else lies in it:

- `openness`: the distance from a held-out point's activation to the nearest kept one, relative to the shortest distance
  to a kept point in factor space, where a step along factor i has length u_i, the median distance between activations
  of neighbouring kept points. At 1, the hole is as wide as in factor space; at 0, held-out points lie on kept ones.
- `misplaced`: whether the activation lies within half a step (the smallest non-zero u_i) of that of a distant kept
  point, which is more than twice as far away in factor space as the nearest kept point.

Lengths are chords. A curved code has an openness below 1 even without collapse: a one-hot code, whose values are all
equally far apart, has openness 1/d at a point d steps inside the hole. Compare stages with the input.

Known answers: block codes have additivity 1, and the delta kernel 2 / (N + 1) on N × N points; kept points that form a
product (the whole grid, a box, a grid without some values) have dependence 0, a diagonal has 1. An isometric embedding
has openness 1 and nothing misplaced, even if factors have different scales; held-out points that are mapped onto the
hole's edge have openness 0; if mapped onto distant points, they are also misplaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import refuse_not_finite, squared_distances

ROUNDING = 1e-6
"""Distances below this fraction of the RMS distance between points count as 0."""


def additivity(gram: Float[Tensor, "*member point point"], shape: tuple[int, ...]) -> Float[Tensor, "*member"]:
    """Return the fraction of a stage's variance explained by a sum of single-factor functions; NaN if it is constant.

    >>> points = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    >>> round(additivity(points @ points.T, (3, 3)).item(), 6)
    1.0
    """
    refuse_not_finite("gram", gram)
    factors = tuple(range(len(shape)))
    constant, everything = (_mean_square(gram.double(), shape, inside) for inside in ((), factors))
    total = everything - constant
    total = torch.where(total > ROUNDING**2 * everything, total, torch.nan)
    effects = torch.stack([_mean_square(gram.double(), shape, (factor,)) - constant for factor in factors])
    return (effects.clamp(min=0) / total).sum(dim=0)


def hole_dependence(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Float[Tensor, "*member"]:
    """Return the distance correlation between the factors' main effects at kept points, averaged over pairs of factors.

    Pairs in which a factor has no main effect count as 0.

    >>> points = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    >>> gram, middle = points @ points.T, torch.arange(9) == 4
    >>> [round(hole_dependence(gram, (3, 3), held_out).item(), 3) for held_out in (middle & False, middle)]
    [0.0, 0.081]
    """
    refuse_not_finite("gram", gram)
    kept = _kept(held_out)
    places = _places(shape)[kept].to(gram.device)
    usual = squared_distances(gram.double()).mean(dim=(-2, -1))
    factors, effects = len(shape), []
    paired = gram.double().unflatten(-1, shape).unflatten(-1 - factors, shape)
    for factor in range(factors):
        values = places[:, factor]
        others = [k - 2 * factors for k in range(factors) if k != factor]
        effect = paired.mean(dim=[*others, *(k + factors for k in others)])  # Gram matrix over the factor's values
        distance = squared_distances(effect).sqrt()[..., values[:, None], values]
        rows, columns = distance.mean(dim=-1, keepdim=True), distance.mean(dim=-2, keepdim=True)
        effects.append(distance - rows - columns + distance.mean(dim=(-2, -1), keepdim=True))
    pairs = [_correlation(first, second, ROUNDING**2 * usual) for first, second in combinations(effects, 2)]
    return torch.stack(pairs).mean(dim=0)


@dataclass(frozen=True)
class Hole:
    """Geometry of the hole that a hold-out leaves in a stage."""

    openness: Float[Tensor, "*member held"]
    """Openness at each held-out point, in grid order."""
    misplaced: Bool[Tensor, "*member held"]


def hole_geometry(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Hole:
    """Return the width of the hole that a hold-out leaves, and which held-out points are misplaced.

    >>> line = torch.arange(5.0)[:, None]
    >>> inside = torch.tensor([False, True, True, True, False])
    >>> [round(value, 6) for value in hole_geometry(line @ line.T, (5,), inside).openness.tolist()]
    [1.0, 1.0, 1.0]
    """
    refuse_not_finite("gram", gram)
    kept = _kept(held_out)
    held = torch.nonzero(held_out.cpu()).flatten()
    if not len(held):
        raise InvalidValue("held_out", "no point", "a mask with at least one held-out point")
    squared = squared_distances(gram.double())
    usual = squared.mean(dim=(-2, -1))
    places = _places(shape).to(gram.device)
    units = _step_lengths(squared, shape, held_out)
    steps = (places[held][:, None, :] - places[kept][None, :, :]).double().square()
    ways = torch.einsum("hkf,...f->...hk", steps, units)
    images = squared[..., held, :][..., kept]
    way, image = ways.amin(dim=-1), images.amin(dim=-1)
    floor = (ROUNDING**2 * usual)[..., None]
    apart = (image > floor) & (way > floor)
    openness = torch.where(apart, (image / torch.where(apart, way, 1.0)).sqrt(), 0.0)
    far = ways > 2**2 * way[..., None] + floor[..., None]  # more than twice as far as the nearest kept point
    step = torch.where(units > floor, units, torch.inf).amin(dim=-1, keepdim=True)
    elsewhere = torch.where(far, images, torch.inf).amin(dim=-1)
    return Hole(openness, elsewhere < step * 0.5**2)  # within half a step


def _step_lengths(squared: Tensor, shape: tuple[int, ...], held_out: Tensor) -> Tensor:
    """Return the median squared distance between neighbours' activations along each factor, at kept points if possible.

    Held-out points that collapse would shorten the unit in which their collapse is measured.
    """
    indices = torch.arange(prod(shape)).reshape(shape)
    lengths = []
    for factor, count in enumerate(shape):
        if count == 1:
            lengths.append(torch.zeros_like(squared[..., 0, 0]))
            continue
        first, second = (indices.narrow(factor, start, count - 1).flatten() for start in (0, 1))
        kept = ~(held_out.cpu()[first] | held_out.cpu()[second])
        chosen = kept if bool(kept.any()) else torch.ones_like(kept)
        lengths.append(squared[..., first[chosen], second[chosen]].median(dim=-1).values)
    return torch.stack(lengths, dim=-1)


def _kept(held_out: Tensor) -> Tensor:
    """Return the indices of the kept points; there must be at least one."""
    kept = torch.nonzero(~held_out.cpu()).flatten()
    if not len(kept):
        raise InvalidValue("held_out", "every point", "at least one kept point")
    return kept


def _places(shape: tuple[int, ...]) -> Tensor:
    """Return the integer grid positions of all points."""
    return torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(prod(shape), len(shape))


def _mean_square(gram: Tensor, shape: tuple[int, ...], inside: tuple[int, ...]) -> Tensor:
    """Return the mean square, over the grid, of the features averaged over all factors not in the given subset."""
    paired = gram.unflatten(-1, shape).unflatten(-1 - len(shape), shape)
    rows = [chr(ord("a") + factor) for factor in range(len(shape))]
    columns = [name if factor in inside else name.upper() for factor, name in enumerate(rows)]
    outside = prod(count for factor, count in enumerate(shape) if factor not in inside)
    return torch.einsum(f"...{''.join(rows + columns)}->...", paired) / (prod(shape) * outside)


def _correlation(first: Tensor, second: Tensor, floor: Tensor) -> Tensor:
    """Return the distance correlation of doubly centred distances; 0 if either consists of rounding errors."""
    covariance = (first * second).mean(dim=(-2, -1)).clamp(min=0)
    variances = [own.square().mean(dim=(-2, -1)) for own in (first, second)]
    varies = (variances[0] > floor) & (variances[1] > floor)
    scale = (variances[0] * variances[1]).sqrt()
    return torch.where(varies, covariance / torch.where(varies, scale, 1.0), 0.0).sqrt()
