"""Which orders of interaction a kernel is made of (Appendix A.5, Eq. 32–35).

Conventions
-----------
A Gram matrix K over a factor grid is expanded by the functional ANOVA of its rows and columns. For a set S of factors,
A_S averages over every factor outside S and takes the mean off along every factor inside; the A_S are orthogonal
projections that sum to the identity. The term of S is A_S K A_S, its coefficient θ_S the Frobenius norm, its weight
θ² (default) or |θ|. The empty set, a constant, carries no information about any factor and is left out.

PF_Coeff is the weight in terms of at most `order` factors, as a share of all; or in the terms of any family of sets.
Over all orders it is a curve that rises to 1, as cumulative explained variance does.

Known answers: an additive kernel k_x(x, x′) + k_y(y, y′) has 1 in single-factor terms; the delta kernel δ_x δ_y (pure
memorisation) has (N − 1) / (N + 1) in the top one on an N × N grid with squared weights, nearly all. The binary (OR)
kernel 1 − Π(1 − δ_i) has squared weights in proportion to Π_{i ∉ S} (N_i − 1), since 1 − δ_i is N_i − 1 times the mean
less what deviates from it: (N + M − 2) / (N + M − 1) in single factors on an N × M grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import combinations
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked, finite, fits, grid_shape, whole_number
from recombine.errors import InvalidValue

Weight = Literal["square", "absolute"]


def subsets(factors: int) -> Iterator[tuple[int, ...]]:
    """Every set of factors but the empty one, small ones first."""
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
    finite("gram", gram)
    lead, factors = gram.ndim - 2, len(shape)
    paired = gram.double().unflatten(-1, shape).unflatten(lead, shape)
    weights = {}
    for inside in subsets(factors):
        term = _projected(_projected(paired, inside, factors, lead), inside, factors, lead + factors)
        # Averaged axes have length 1; the term itself repeats along them.
        repeats = points**2 / term[(0,) * lead].numel() if lead else points**2 / term.numel()
        square = term.square().flatten(lead).sum(dim=-1) * repeats
        weights[inside] = square if weight == "square" else square.sqrt()
    return weights


@checked
def partial_factorization(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    order: int = 1,
    weight: Weight = "square",
    *,
    family: Collection[Any] | None = None,
) -> Float[Tensor, "*member"]:
    """PF_Coeff (Eq. 33, 35): share of the weight in terms of at most `order` factors, or in a family of terms.

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
    family
        Sets of indices of factors whose terms count, instead of those of an order.

    Returns
    -------
    Tensor
        One number per member; NaN for a constant kernel.

    Examples
    --------
    >>> round(partial_factorization(torch.eye(4), (2, 2)).item(), 6)
    0.666667
    >>> round(partial_factorization(torch.eye(4), (2, 2), family=[{0}, {0, 1}]).item(), 6)
    0.666667
    """
    chosen = chosen_terms(len(shape), order, family)
    return share_of_terms(interaction_weights(gram, shape, weight), chosen)


@checked
def factorization_curve(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], weight: Weight = "square"
) -> Float[Tensor, "*member order"]:
    """PF_Coeff of all terms of at most 1, 2 … factors: the family of explained fractions (Eq. 33).

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
    Tensor
        One number per order, rising to 1; NaN for a constant kernel.

    Examples
    --------
    >>> [round(value, 6) for value in factorization_curve(torch.eye(8), (2, 2, 2)).tolist()]
    [0.428571, 0.857143, 1.0]
    """
    weights = interaction_weights(gram, shape, weight)
    orders = range(1, len(shape) + 1)
    return torch.stack([share_of_terms(weights, chosen_terms(len(shape), order)) for order in orders], dim=-1)


def share_of_terms(weights: Mapping[tuple[int, ...], Tensor], chosen: Collection[tuple[int, ...]]) -> Tensor:
    """The weight of some terms as a share of all; NaN where there is none."""
    total = torch.stack(list(weights.values())).sum(dim=0)
    low = torch.stack([value for inside, value in weights.items() if inside in chosen]).sum(dim=0)
    return low / torch.where(total > 0, total, torch.nan)


def chosen_terms(factors: int, order: int, family: Any = None) -> set[tuple[int, ...]]:
    """The sets of factors that count: those of at most `order` factors, or a family."""
    if family is None:
        whole_number("order", order, at_most=factors)
        return {inside for inside in subsets(factors) if len(inside) <= order}
    if order != 1:
        raise InvalidValue("order", order, "1, or no family: which terms count is either an order or a family")
    allowed = f"sets of factors from 0 to {factors - 1}, at least one set, none of them empty or there twice"
    sets = [_set_of_factors(own, factors) for own in family] if _is_plain(family) else None
    if not sets or None in sets or len(set(sets)) < len(sets):
        raise InvalidValue("family", family, allowed)
    return {inside for inside in sets if inside is not None}


def _is_plain(given: Any) -> bool:
    """Whether something is a list, a tuple, a set or the like: no text, mapping or tensor."""
    return isinstance(given, (Sequence, Set)) and not isinstance(given, (str, bytes))


def _set_of_factors(given: Any, factors: int) -> tuple[int, ...] | None:
    """The factors of a set in order, or nothing where it is not one."""
    if not _is_plain(given):
        return None
    inside = list(given)
    if not inside or not fits(inside, list[int]) or len(set(inside)) < len(inside):
        return None
    return tuple(sorted(map(int, inside))) if min(inside) >= 0 and max(inside) < factors else None
