"""A network as a transport of the factors' distribution (§3.4): is it still a product, and does its hole stay open?

Conventions
-----------
All numbers come from a Gram matrix over the grid's points (`projections.both_grams`), so that rotations of a stage,
shifts and a common scale change nothing, and 50 000 features cost one product.

Uniform values of all factors are a product distribution. What a stage pushes it to is a product in the sense of blocks
of coordinates, one per factor, if features are sums of functions of one factor each: then projections onto the factors'
main effects hold everything, and are independent. The blocks are not given, but the functional ANOVA of the features
over the grid finds them:

- `additivity`: share of the variance of all features together in main effects, 1 where the stage is a sum of blocks.
  (PF_Coeff squares the same terms' kernels, so that strong directions count more; this counts variance. One neuron's
  shares are `recombine.metrics.neuron_tuning`.)
- `hole_dependence`: on kept points the factors are not independent any more, since the hole lacks some combinations.
  The distance correlation of the main effects' coordinates over kept points, mean over pairs of factors, says by how
  much in the stage's own geometry: 0 if kept points are themselves a product, 1 for a diagonal. It changes along a
  network as far as main effects are stretched or merged, and is to be compared with that of the factors themselves.
  Main effects are those of the whole grid: a network is evaluated there, and only so are they coordinates of a factor.

Persistent homology would search for a hole in a cloud of points. Here the grid is known, and so is the hole's place, so
that it is enough to ask how wide it is and whether something else lies in it (`hole_geometry`):

- `openness`: the distance of a held-out point's image to the nearest kept image, over the shortest way from it to a
  kept point in factor space, a step along factor i having the length u_i that is the median over neighbouring kept
  points' images. 1: the hole is as wide as in factor space; 0: held-out points are mapped onto kept ones.
- `misplaced`: whether the image lies within half a usual step (the shortest u_i that is not 0) of that of a kept point
  that is far from it in factor space, more than twice as far as the nearest kept one. A usual step stands for the
  distance to its own neighbours, since where a whole region is put elsewhere neighbours go with it.

Lengths are chords. A code that is curved has a lower openness than 1 with nothing collapsed: a one-hot code, in which
all values are equally far apart, has 1/d at a point d steps inside. Compare stages with the input.

Known answers: block codes have additivity 1, the delta kernel 2 / (N + 1) on N × N points; kept points that are a
product (the whole grid, a box, a grid without some values) have dependence 0, a diagonal 1. An isometric embedding has
openness 1 and nothing misplaced, also if factors have different scales; held-out points that are mapped onto the hole's
edge have openness 0; onto points far from it, 0 and all misplaced.
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
"""Distances that differ by less than this share of the usual one between any two images are equal."""
FAR = 2.0
"""How many times as far as the nearest kept point a kept point is far."""
NEAR = 0.5
"""In usual steps between neighbours' images."""


def additivity(gram: Float[Tensor, "*member point point"], shape: tuple[int, ...]) -> Float[Tensor, "*member"]:
    """Share of a stage's variance over the grid that is a sum of functions of one factor each; NaN if it does not vary.

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
    """Distance correlation between the factors' main effects over kept points, mean over pairs of factors.

    A pair one of which has no main effect has 0.

    >>> points = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    >>> gram, middle = points @ points.T, torch.arange(9) == 4
    >>> [round(hole_dependence(gram, (3, 3), held_out).item(), 3) for held_out in (middle & False, middle)]
    [0.0, 0.081]
    """
    refuse_not_finite("gram", gram)
    kept = _kept(held_out)
    places = _places(shape)[kept].to(gram.device)
    usual = squared_distances(gram.double()).mean(dim=(-2, -1))
    effects = []
    for factor in range(len(shape)):
        distance = squared_distances(_main_effect(gram.double(), shape, factor)).sqrt()
        values = places[:, factor]
        effects.append(_doubly_centred(distance[..., values[:, None], values]))
    pairs = [_correlation(first, second, ROUNDING**2 * usual) for first, second in combinations(effects, 2)]
    return torch.stack(pairs).mean(dim=0)


@dataclass(frozen=True)
class Hole:
    """What a stage makes of the hole that a hold-out leaves."""

    openness: Float[Tensor, "*member held"]
    """At each held-out point, in the grid's order."""
    misplaced: Bool[Tensor, "*member held"]


def hole_geometry(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Hole:
    """How wide the hole is that a hold-out leaves, and which held-out points lie elsewhere.

    >>> line = torch.arange(5.0)[:, None]
    >>> inside = torch.tensor([False, True, True, True, False])
    >>> [round(value, 6) for value in hole_geometry(line @ line.T, (5,), inside).openness.tolist()]
    [1.0, 1.0, 1.0]
    """
    refuse_not_finite("gram", gram)
    kept = _kept(held_out)
    held = torch.nonzero(held_out.cpu()).flatten()
    if not len(held):
        raise InvalidValue("held_out", "no point", "a mask of at least one point")
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
    far = ways > FAR**2 * way[..., None] + floor[..., None]
    step = torch.where(units > floor, units, torch.inf).amin(dim=-1, keepdim=True)
    elsewhere = torch.where(far, images, torch.inf).amin(dim=-1)
    return Hole(openness, elsewhere < step * NEAR**2)


def _step_lengths(squared: Tensor, shape: tuple[int, ...], held_out: Tensor) -> Tensor:
    """Median squared distance of neighbours' images along each factor, of kept ones where some are neighbours.

    Held-out points that collapse would otherwise shorten the unit in which their collapse is measured.
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
    """Indices of kept points, of which there is at least one."""
    kept = torch.nonzero(~held_out.cpu()).flatten()
    if not len(kept):
        raise InvalidValue("held_out", "every point", "at least one kept point")
    return kept


def _places(shape: tuple[int, ...]) -> Tensor:
    """Each point's integer positions."""
    return torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(prod(shape), len(shape))


def _mean_square(gram: Tensor, shape: tuple[int, ...], inside: tuple[int, ...]) -> Tensor:
    """Mean over the grid of the squared norm of the features' mean over all factors outside a set."""
    paired = gram.unflatten(-1, shape).unflatten(-1 - len(shape), shape)
    rows = [chr(ord("a") + factor) for factor in range(len(shape))]
    columns = [name if factor in inside else name.upper() for factor, name in enumerate(rows)]
    outside = prod(count for factor, count in enumerate(shape) if factor not in inside)
    return torch.einsum(f"...{''.join(rows + columns)}->...", paired) / (prod(shape) * outside)


def _main_effect(gram: Tensor, shape: tuple[int, ...], factor: int) -> Tensor:
    """Products of a factor's main effects, value by value."""
    factors = len(shape)
    paired = gram.unflatten(-1, shape).unflatten(-1 - factors, shape)
    others = [k - 2 * factors for k in range(factors) if k != factor]
    return paired.mean(dim=[*others, *(k + factors for k in others)])


def _doubly_centred(distance: Tensor) -> Tensor:
    rows, columns = distance.mean(dim=-1, keepdim=True), distance.mean(dim=-2, keepdim=True)
    return distance - rows - columns + distance.mean(dim=(-2, -1), keepdim=True)


def _correlation(first: Tensor, second: Tensor, floor: Tensor) -> Tensor:
    """Distance correlation of doubly centred distances; 0 where one of them is rounding."""
    covariance = (first * second).mean(dim=(-2, -1)).clamp(min=0)
    variances = [own.square().mean(dim=(-2, -1)) for own in (first, second)]
    varies = (variances[0] > floor) & (variances[1] > floor)
    scale = (variances[0] * variances[1]).sqrt()
    return torch.where(varies, covariance / torch.where(varies, scale, 1.0), 0.0).sqrt()
