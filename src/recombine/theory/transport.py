"""A network as a transport of the factors' distribution (§3.4): is it still a product of one per factor?

Conventions
-----------
All numbers come from a Gram matrix over the grid's points (`point_grams.centred_gram`), so that rotations of a stage,
shifts and a common scale change nothing, and 50 000 features cost one product.

Uniform values of all factors are a product distribution. What a stage pushes it to is a product in the
sense of blocks of coordinates, one per factor, if features are sums of functions of one factor each: then projections
onto the factors' main effects hold everything, and are independent. The blocks are not given, but the functional ANOVA
of the features over the grid finds them:

- `variance_shares`: share of the variance of all features together by set of factors; `additivity` is that of the
  sets of one factor, 1 where the stage is a sum of blocks. (PF_Coeff squares the same terms' kernels, so that strong
  directions count more; this counts variance. One neuron's shares are `recombine.metrics.neuron_tuning`.)
- `hole_dependence`: on kept points the factors are not independent any more, since the hole lacks some combinations.
  The distance correlation of the main effects' coordinates over kept points, mean over pairs of factors, says by how
  much in the stage's own geometry: 0 if kept points are themselves a product, 1 for a diagonal. It changes along a
  network as far as main effects are stretched or merged, and is to be compared with that of the factors themselves.
  Main effects are those of the whole grid: a network is evaluated there, and only so are they coordinates of a factor.

Whether the hole stays open is `holes`.

Known answers: block codes have additivity 1, the delta kernel 2 / (N + 1) on N × N points; kept points that are a
product (the whole grid, a box, a grid without some values) have dependence 0, a diagonal 1.
"""

from __future__ import annotations

from itertools import combinations
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, grid_shape
from recombine.errors import InvalidValue
from recombine.theory.cp import several_factors
from recombine.theory.point_grams import squared_distances

ROUNDING = 1e-6
"""Distances that differ by less than this share of the usual one between any two images are equal."""


@checked
def variance_shares(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...]
) -> dict[tuple[int, ...], Float[Tensor, "*member"]]:
    """Share of a stage's variance over the grid by set of factors (functional ANOVA).

    Parameters
    ----------
    gram
        Products of features at the grid's points, in its order.
    shape
        Number of values of each factor.

    Returns
    -------
    dict of Tensor
        By the set's indices of factors, 1 together; NaN for a stage that does not vary.

    Examples
    --------
    >>> {inside: round(share.item(), 6) for inside, share in variance_shares(torch.eye(4), (2, 2)).items()}
    {(0,): 0.333333, (1,): 0.333333, (0, 1): 0.333333}
    """
    shape = grid_shape(shape, gram.shape[-1])
    finite("gram", gram)
    sets = [inside for order in range(len(shape) + 1) for inside in combinations(range(len(shape)), order)]
    means = {inside: _mean_square(gram.double(), shape, inside) for inside in sets}
    variances = {
        inside: sum(
            (-1) ** (len(inside) - order) * means[part]
            for order in range(len(inside) + 1) for part in combinations(inside, order)
        )
        for inside in sets[1:]
    }  # fmt: skip
    total = means[sets[-1]] - means[()]
    varies = total > ROUNDING**2 * means[sets[-1]]
    total = torch.where(varies, total, torch.nan)
    return {inside: torch.as_tensor(variance).clamp(min=0) / total for inside, variance in variances.items()}


@checked
def additivity(gram: Float[Tensor, "*member point point"], shape: tuple[int, ...]) -> Float[Tensor, "*member"]:
    """Share of a stage's variance over the grid that is a sum of functions of one factor each.

    Parameters
    ----------
    gram
        Products of features at the grid's points, in its order.
    shape
        Number of values of each factor.

    Returns
    -------
    Tensor
        From 0 to 1; NaN for a stage that does not vary.

    Examples
    --------
    >>> points = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    >>> round(additivity(points @ points.T, (3, 3)).item(), 6)
    1.0
    """
    shares = variance_shares(gram, shape)
    return torch.stack([share for inside, share in shares.items() if len(inside) == 1]).sum(dim=0)


@checked
def hole_dependence(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Float[Tensor, "*member"]:
    """Distance correlation between the factors' main effects over kept points, mean over pairs of factors.

    Parameters
    ----------
    gram
        Products of features at the grid's points, in its order.
    shape
        Number of values of each factor, two factors or more.
    held_out
        True where a point is held out.

    Returns
    -------
    Tensor
        From 0 to 1; a pair one of which has no main effect has 0.

    Examples
    --------
    >>> points = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    >>> gram, middle = points @ points.T, torch.arange(9) == 4
    >>> [round(hole_dependence(gram, (3, 3), held_out).item(), 3) for held_out in (middle & False, middle)]
    [0.0, 0.081]
    """
    shape = several_factors(shape, gram.shape[-1])
    finite("gram", gram)
    kept = kept_points(held_out)
    places = grid_places(shape)[kept].to(gram.device)
    usual = squared_distances(gram.double()).mean(dim=(-2, -1))
    effects = []
    for factor in range(len(shape)):
        distance = squared_distances(_main_effect(gram.double(), shape, factor)).sqrt()
        values = places[:, factor]
        effects.append(_doubly_centred(distance[..., values[:, None], values]))
    pairs = [_correlation(first, second, ROUNDING**2 * usual) for first, second in combinations(effects, 2)]
    return torch.stack(pairs).mean(dim=0)


def kept_points(held_out: Tensor) -> Tensor:
    """Indices of kept points, of which there is at least one."""
    kept = torch.nonzero(~held_out.cpu()).flatten()
    if not len(kept):
        raise InvalidValue("held_out", "every point", "at least one kept point")
    return kept


def grid_places(shape: tuple[int, ...]) -> Tensor:
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
