"""Interactions between factors in a kernel, which locate it between memorisation and factorization (A.4, A.5).

A Gram matrix K over a factor grid is expanded by the functional ANOVA of its rows and columns (Eq. 32–35). For a set S
of factors, A_S averages over every factor not in S and subtracts the mean along every factor in S; the A_S are
orthogonal projections that sum to the identity. The term for S is A_S K A_S, its coefficient θ_S is its Frobenius norm,
and its weight is θ² (default) or |θ|. The empty set (a constant) carries no information and is left out.

The delta kernel has rank 1, which A.4 calls "purely factorized" (`recombine.theory.ranks.kernel_rank`), but memorises
in the sense of A.5. Its PF_Coeff is not 0 but Σ_i (N_i − 1) / (Π_i N_i − 1), or 2 / (N + 1) for two factors with N
values. `above_delta` rescales PF_Coeff to 0 for the delta kernel and 1 for additive kernels; it can be negative.

Known answers: an additive kernel k_x(x, x′) + k_y(y, y′) has all of its weight in single-factor terms; with squared
weights, the delta kernel has a fraction (N − 1) / (N + 1) in the two-factor term on an N × N grid. The binary kernel
(logical OR), 1 − Π(1 − δ_i), has squared weights proportional to Π_{i ∉ S} (N_i − 1), so on an N × M grid, the fraction
in single-factor terms is (N + M − 2) / (N + M − 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import prod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.errors import InvalidValue

Weight = Literal["square", "absolute"]


def _subsets(factors: int) -> Iterator[tuple[int, ...]]:
    """Yield all non-empty sets of factors, smallest first."""
    for order in range(1, factors + 1):
        yield from combinations(range(factors), order)


def _projected(kernel: Tensor, inside: tuple[int, ...], factors: int, first: int) -> Tensor:
    """Apply A_S to the axes `first` … `first + factors − 1`."""
    for factor in range(factors):
        mean = kernel.mean(dim=first + factor, keepdim=True)
        kernel = kernel - mean if factor in inside else mean
    return kernel


def interaction_weights(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], weight: Weight = "square"
) -> dict[tuple[int, ...], Float[Tensor, "*member"]]:
    """Return the weight (θ² or |θ|) of each non-empty set of factors in a kernel over a grid, keyed by factor indices.

    >>> {inside: round(value.item(), 6) for inside, value in interaction_weights(torch.eye(4), (2, 2)).items()}
    {(0,): 1.0, (1,): 1.0, (0, 1): 1.0}
    """
    points, lead, factors = gram.shape[-1], gram.ndim - 2, len(shape)
    paired = gram.double().unflatten(-1, shape).unflatten(lead, shape)
    weights = {}
    for inside in _subsets(factors):
        term = _projected(_projected(paired, inside, factors, lead), inside, factors, lead + factors)
        # averaged axes have length 1, since the term is constant along them
        repeats = points**2 / term[(0,) * lead].numel()
        square = term.square().flatten(lead).sum(dim=-1) * repeats
        weights[inside] = {"square": square, "absolute": square.sqrt()}[weight]
    return weights


def partial_factorization(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    weight: Weight = "square",
    *,
    family: Iterable[Iterable[int]] | None = None,
) -> Float[Tensor, "*member"]:
    """Return PF_Coeff (Eq. 33, 35), the fraction of weight in single-factor terms or in a family of sets of factors.

    The result is NaN for a constant kernel.

    >>> round(partial_factorization(torch.eye(4), (2, 2)).item(), 6)
    0.666667
    >>> round(partial_factorization(torch.eye(4), (2, 2), family=[{0}, {0, 1}]).item(), 6)
    0.666667
    """
    sets = list(_subsets(len(shape)))
    chosen = sets[: len(shape)] if family is None else [tuple(sorted(own)) for own in family]
    if not chosen or not set(chosen) <= set(sets):
        raise InvalidValue("family", family, f"non-empty sets of factors from 0 to {len(shape) - 1}")
    weights = interaction_weights(gram, shape, weight)
    total = torch.stack(list(weights.values())).sum(dim=0)
    low = torch.stack([value for inside, value in weights.items() if inside in chosen]).sum(dim=0)
    return low / torch.where(total > 0, total, torch.nan)


def above_delta(single_factor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rescale PF_Coeff to 0 for the delta kernel and 1 for additive kernels; NaN on a grid with a single point."""
    delta = sum(count - 1 for count in shape) / max(1, prod(shape) - 1)
    return (single_factor - delta) / (1 - delta) if delta < 1 else torch.full_like(single_factor, torch.nan)


def landmarks(shape: tuple[int, ...], *, bump: float = 1.0) -> dict[str, Float[Tensor, ""]]:
    """Return `above_delta` of well-known kernels, as landmarks in a figure.

    `delta`: δ in every factor (memorisation); `additive`: the sum of one δ per factor; `or`: 1 if any factor is equal;
    `broad`: the product of Gaussians half as wide as the longest factor; `bump`: the Gram matrix of ideal bumps whose
    standard deviation is `bump` grid steps, Π exp(−d²/4s²).

    >>> {name: round(place.item(), 2) + 0.0 for name, place in landmarks((6, 6)).items()}
    {'delta': 0.0, 'additive': 1.0, 'or': 0.87, 'broad': 0.99, 'bump': 0.71}
    """
    places = torch.cartesian_prod(*(torch.arange(count) for count in shape)).double()
    steps = places[:, None, :] - places[None, :, :]
    equal = (steps == 0).double()
    kernels = {
        "delta": equal.prod(dim=-1),
        "additive": equal.sum(dim=-1),
        "or": 1 - (1 - equal).prod(dim=-1),
        "broad": torch.exp(-(steps**2).sum(dim=-1) / max(shape) ** 2),
        "bump": torch.exp(-(steps**2).sum(dim=-1) / (4 * bump**2)),
    }
    return {name: above_delta(partial_factorization(kernel, shape), shape) for name, kernel in kernels.items()}
