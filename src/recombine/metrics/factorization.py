"""Which orders of interaction a kernel is made of (Appendix A.5, Eq. 32–35).

Conventions
-----------
A Gram matrix K over a factor grid is expanded by the functional ANOVA of its rows and columns. For a set S of factors,
A_S averages over every factor outside S and takes the mean off along every factor inside; the A_S are orthogonal
projections that sum to the identity. The term of S is A_S K A_S, its coefficient θ_S the Frobenius norm, its weight
θ² (default) or |θ|. The empty set, a constant, carries no information about any factor and is left out.

PF_Coeff is the weight in terms of at most `order` factors, as a share of all.

Known answers: an additive kernel k_x(x, x′) + k_y(y, y′) has 1 in single-factor terms; the delta kernel δ_x δ_y (pure
memorisation) has (N − 1) / (N + 1) in the top one on an N × N grid with squared weights, nearly all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked, grid_shape, whole_number

Weight = Literal["square", "absolute"]


def _subsets(factors: int) -> Iterator[tuple[int, ...]]:
    for order in range(1, factors + 1):
        yield from combinations(range(factors), order)


def _projected(kernel: Tensor, inside: tuple[int, ...], factors: int, first: int) -> Tensor:
    """A_S applied to the axes `first` … `first + factors − 1`."""
    for factor in range(factors):
        mean = kernel.mean(dim=first + factor, keepdim=True)
        kernel = kernel - mean if factor in inside else mean
    return kernel


@checked
def interaction_weights(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], weight: Weight = "square"
) -> dict[tuple[int, ...], Float[Tensor, "*member"]]:
    """Weight of each set of factors in a kernel.

    Parameters
    ----------
    gram
        Gram matrix over the grid's points, in its order.
    shape
        Number of values of each factor.
    weight
        θ² or |θ|.

    Returns
    -------
    dict of Tensor
        One number per member by the set's indices of factors; the constant is left out.

    Examples
    --------
    >>> {inside: round(value.item(), 6) for inside, value in interaction_weights(torch.eye(4), (2, 2)).items()}
    {(0,): 1.0, (1,): 1.0, (0, 1): 1.0}
    """
    points = gram.shape[-1]
    shape = grid_shape(shape, points)
    lead, factors = gram.ndim - 2, len(shape)
    paired = gram.double().unflatten(-1, shape).unflatten(lead, shape)
    weights = {}
    for inside in _subsets(factors):
        term = _projected(_projected(paired, inside, factors, lead), inside, factors, lead + factors)
        # Averaged axes have length 1; the term itself repeats along them.
        repeats = points**2 / term[(0,) * lead].numel() if lead else points**2 / term.numel()
        square = term.square().flatten(lead).sum(dim=-1) * repeats
        weights[inside] = square if weight == "square" else square.sqrt()
    return weights


@checked
def partial_factorization(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], order: int = 1, weight: Weight = "square"
) -> Float[Tensor, "*member"]:
    """PF_Coeff (Eq. 33, 35): share of the weight in terms of at most `order` factors.

    Parameters
    ----------
    gram
        Gram matrix over the grid's points, in its order.
    shape
        Number of values of each factor.
    order
        Factors that a term may have.
    weight
        θ² or |θ|.

    Returns
    -------
    Tensor
        One number per member; NaN for a constant kernel.

    Examples
    --------
    >>> round(partial_factorization(torch.eye(4), (2, 2)).item(), 6)
    0.666667
    """
    whole_number("order", order, at_most=len(shape))
    weights = interaction_weights(gram, shape, weight)
    total = torch.stack(list(weights.values())).sum(dim=0)
    low = torch.stack([value for inside, value in weights.items() if len(inside) <= order]).sum(dim=0)
    return low / torch.where(total > 0, total, torch.nan)
