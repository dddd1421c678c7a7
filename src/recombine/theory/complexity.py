"""Compositional complexity of functions (Eq. 13, 15–17): how many products of single-factor functions make them up.

Conventions
-----------
Values over a factor grid are flat over its points, with any batch axes in front; every output is a function of its own,
as the paper has it. Errors are relative: the norm of what is left over that of the values. The function that is 0 has
rank 0, any other that is a product, a constant too, rank 1.

`epsilon_rank` (Eq. 17) is the least rank with an error of at most ε, `exact_rank` (Eq. 16) that with next to none. With
noise neither means much: any rank fits a little better than the one before. `rank_curve` therefore leaves entries out
in turn, predicts them from the others (`left_out`), and chooses the smallest rank whose left-out error is not surely
larger than the best one's; how far that choice moves when a fold is missing says how sure it is.

Three factors or more have functions that fewer products come as near to as one likes, with ever larger terms that
cancel: x + y + z has rank 3, and [(1 + d·x)(1 + d·y)(1 + d·z) − 1] / d, two products, goes to it with d. Their ε-rank
is below their rank for any ε that a search can reach.

Known answers: planted sums of R products are found to have rank R, with noise and with holes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import checked, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.choosing import FOLDS, chosen_range
from recombine.theory.cp import RESTARTS, counted_values, partial_mask, several_factors
from recombine.theory.least_ranks import least_ranks
from recombine.theory.left_out import IMPROVEMENT, STEPS, left_out_errors
from recombine.theory.search import Search

EXACT_ERROR = 1e-6
"""Relative error below which a rank is exact."""
LEAST = 1e-4
"""Relative error of left-out entries that are predicted as well as can be told."""
NO_WORSE = 0.02
"""Share of the best left-out squared error by which a smaller rank may be worse, however clearly."""


@dataclass(frozen=True, eq=False)
class RankCurve:
    """Errors against rank, and the rank that they choose."""

    ranks: tuple[int, ...]
    """From 0 on."""
    error: Float[Tensor, "*batch rank"]
    """Relative, of the entries that were fitted."""
    left_out: Float[Tensor, "*batch rank"]
    """Relative, of entries that were not; root mean square over folds."""
    chosen: Int[Tensor, "*batch"]
    low: Int[Tensor, "*batch"]
    """The smallest choice that leaving one fold out leads to."""
    high: Int[Tensor, "*batch"]


@checked
def epsilon_rank(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    largest: int = 8,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*batch"]:
    """The least number of products with a relative error of at most ε (Eq. 17).

    Parameters
    ----------
    values
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    epsilon
        Largest relative error.
    largest
        Largest rank to try.
    mask
        Entries that count; all by default.
    restarts
        Starts of every search.

    Returns
    -------
    Tensor
        Of each problem; −1 where it is larger than `largest`.

    Examples
    --------
    >>> x, y = torch.meshgrid(torch.arange(5.0), torch.arange(5.0), indexing="ij")
    >>> epsilon_rank(torch.stack([x * y, x + y, (x - y).abs()]).flatten(1), (5, 5), 0.1).tolist()
    [1, 2, 3]
    """
    shape = several_factors(shape, values.shape[-1])
    number("epsilon", epsilon, above=0, at_most=1)
    whole_number("largest", largest)
    whole_number("restarts", restarts)
    values, counted = counted_values(values, mask), partial_mask(mask, values)
    ranks = least_ranks(
        values.reshape(-1, values.shape[-1]), shape, epsilon, min(largest, values.shape[-1]), counted, restarts
    )
    return ranks.reshape(values.shape[:-1])


@checked
def exact_rank(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    *,
    largest: int = 8,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = 2 * RESTARTS,
) -> Int[Tensor, "*batch"]:
    """The number of products that a function is a sum of (Eq. 16).

    Parameters
    ----------
    values
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    largest
        Largest rank to try.
    mask
        Entries that count; all by default.
    restarts
        Starts of every search.

    Returns
    -------
    Tensor
        Of each problem; −1 where it is larger than `largest`.

    Examples
    --------
    >>> exact_rank(torch.eye(4).flatten(), (4, 4)).item()
    4
    """
    return epsilon_rank(values, shape, EXACT_ERROR, largest=largest, mask=mask, restarts=restarts)


@checked
def rank_curve(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    *,
    largest: int = 8,
    mask: Bool[Tensor, " point"] | None = None,
    folds: int = FOLDS,
    restarts: int = 1,
    seed: int = 0,
) -> RankCurve:
    """Errors against rank, of entries that were fitted and of entries that were left out, and the rank they choose.

    Parameters
    ----------
    values
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    largest
        Largest rank to try.
    mask
        Entries that there are; all by default.
    folds
        Parts of the entries that are left out in turn.
    restarts
        Starts of every search; the first continues the sum of one product less.
    seed
        Of the folds and the random starts.

    Returns
    -------
    RankCurve
        Over ranks from 0 to `largest`.

    Examples
    --------
    >>> x, y = torch.meshgrid(torch.arange(9.0), torch.arange(9.0), indexing="ij")
    >>> noise = torch.randn(81, generator=torch.Generator().manual_seed(0))
    >>> rank_curve((x + y).flatten() + 0.2 * noise, (9, 9), largest=4).chosen.item()
    2
    """
    shape = several_factors(shape, values.shape[-1])
    whole_number("largest", largest)
    whole_number("folds", folds, at_least=3)
    whole_number("restarts", restarts)
    whole_number("seed", seed, at_least=0)
    values = counted_values(values, mask)
    problems = values.double().reshape(-1, values.shape[-1])
    there = torch.ones(values.shape[-1], dtype=torch.bool) if mask is None else mask.cpu()
    if int(there.sum()) < folds:
        raise InvalidValue("mask", f"{int(there.sum())} entries", f"at least as many as folds ({folds})")
    ranks = tuple(range(min(largest, values.shape[-1]) + 1))
    left = left_out_errors(problems, shape, ranks, there, folds, restarts, seed)
    batch = values.shape[:-1]
    chosen, low, high = (own.reshape(batch) for own in chosen_range(left.clamp(min=LEAST**2), NO_WORSE))
    fitted = _fitted_errors(problems, shape, ranks, there.to(problems.device), restarts, seed)
    return RankCurve(ranks, fitted.reshape(*batch, -1), left.mean(dim=0).sqrt().reshape(*batch, -1), chosen, low, high)


def _fitted_errors(
    problems: Tensor, shape: tuple[int, ...], ranks: tuple[int, ...], there: Tensor, restarts: int, seed: int
) -> Tensor:
    """Relative errors of entries that are fitted: `[problem, rank]`; each rank starts from the one below."""
    entries = problems * there
    scale = entries.norm(dim=-1, keepdim=True)
    entries = entries / torch.where(scale > 0, scale, 1.0)
    if len(shape) == 2 and bool(there.all()):
        values = torch.linalg.svdvals(entries.unflatten(-1, shape)).square()
        values = torch.nn.functional.pad(values, (0, len(ranks)))
        return torch.stack([values[:, rank:].sum(dim=-1).sqrt() for rank in ranks], dim=-1)
    errors, functions = [entries.norm(dim=-1)], None
    for rank in ranks[1:]:
        search = Search(shape, rank, STEPS, IMPROVEMENT, seed)
        functions, error, _ = search.best(entries, restarts, there, first=functions)
        errors.append(error)
    return torch.stack(errors, dim=-1)
