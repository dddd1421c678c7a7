"""Sums of products of single-factor functions (Eq. 13, 15, 30): CP decompositions of grids of values, in batches.

Conventions
-----------
Values over a factor grid are flat over its points, in the grid's order, with any batch axes in front: outputs, members.
A decomposition of rank R is Σ_r λ_r Π_i φ_i^(r)(x_i), each φ a unit vector over the values of a factor, λ ≥ 0 and
falling. It is not unique for two factors, and seldom is it otherwise.

Two factors without missing entries: the singular value decomposition, which is exact and the best there is. Otherwise a
damped Gauss–Newton search (`search`) from several starts, of which the best is kept. Entries that `mask` leaves out
have no say at all; a value of a factor that has no entry keeps what it started with.

Known answers: a planted sum of R products has error 0 at rank R and not below; two factors agree with the SVD; masking
nothing changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, grid_shape, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.search import Search, khatri_rao

RESTARTS = 4
ITERATIONS = 200
TOLERANCE = 1e-5
"""Share of the squared error below which an improvement, from one step to the next, counts as none."""


@dataclass(frozen=True, eq=False)
class CPDecomposition:
    """A sum of products for every problem of a batch."""

    weights: Float[Tensor, "*batch rank"]
    """Not negative, falling."""
    factors: tuple[Float[Tensor, "*batch _ rank"], ...]
    """For each factor, its unit functions."""
    error: Float[Tensor, "*batch"]
    """Norm of what is left over that of the values, where there are entries; 0 for values that are 0."""
    converged: Bool[Tensor, "*batch"]
    """Whether the search ended before it was cut off."""

    @property
    def values(self) -> Float[Tensor, "*batch point"]:
        """The sum, at every point of the grid."""
        return (khatri_rao(self.factors) * self.weights[..., None, :]).sum(dim=-1)


@checked
def cp_decomposition(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    rank: int,
    *,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = RESTARTS,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> CPDecomposition:
    """The best sum of `rank` products that was found for each grid of values.

    Parameters
    ----------
    values
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    rank
        Products in the sum.
    mask
        Entries that count; all by default.
    restarts
        Starts of which the best is kept; a problem that is solved exactly starts no more.
    iterations
        Steps of one search at most.
    tolerance
        A search ends when a step improves the squared error by less than this share of it.
    seed
        Of the random starts.

    Returns
    -------
    CPDecomposition
        One per problem of the batch.

    Examples
    --------
    >>> x, y = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
    >>> [round(cp_decomposition((x + y).flatten(), (3, 4), rank).error.item(), 3) for rank in (1, 2)]
    [0.112, 0.0]
    """
    shape = several_factors(shape, values.shape[-1])
    whole_number("rank", rank, at_most=values.shape[-1])
    whole_number("restarts", restarts)
    whole_number("iterations", iterations)
    number("tolerance", tolerance, above=0)
    whole_number("seed", seed, at_least=0)
    values = counted_values(values, mask)
    problems = values.double().reshape(-1, values.shape[-1])
    chosen = partial_mask(mask, problems)
    if len(shape) == 2 and chosen is None:
        solved = _by_singular_values(problems, shape, rank)
    else:
        scale = (problems if chosen is None else problems * chosen).abs().amax(dim=-1, keepdim=True)
        scale = torch.where(scale > 0, scale, 1.0)
        search = Search(shape, rank, iterations, tolerance, seed)
        solved = _normalised(*search.best(problems / scale, restarts, chosen), scale)
    return _reshaped(solved, values.shape[:-1])


def partial_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The mask, refused if nothing counts; None if everything does."""
    if mask is None or bool(mask.all()):
        return None
    if not bool(mask.any()):
        raise InvalidValue("mask", "no entry", "at least one entry that counts")
    return mask.to(like.device)


def counted_values(values: Tensor, mask: Tensor | None) -> Tensor:
    """The values, 0 in place of what the mask leaves out, NaN or not; refused if those that count are not finite."""
    counted = values if mask is None else torch.where(mask.to(values.device), values, 0.0)
    finite("values", counted)
    return counted


def several_factors(shape: Sequence[int], points: int) -> tuple[int, ...]:
    """The shape of a grid of at least two factors."""
    if len(tuple(shape)) < 2:
        raise InvalidValue("shape", tuple(shape), "two or more factors: a function of one is a product already")
    return grid_shape(shape, points)


def _by_singular_values(values: Tensor, shape: tuple[int, ...], rank: int) -> CPDecomposition:
    u, s, vh = torch.linalg.svd(values.unflatten(-1, shape), full_matrices=False)
    kept = min(rank, s.shape[-1])
    weights, rows, columns = (
        torch.nn.functional.pad(part[..., :kept], (0, rank - kept)) for part in (s, u, vh.mT)
    )  # fmt: skip
    scale = s.norm(dim=-1)
    error = torch.where(scale > 0, s[..., kept:].norm(dim=-1) / torch.where(scale > 0, scale, 1.0), 0.0)
    return CPDecomposition(weights, (rows, columns), error, torch.ones_like(error, dtype=torch.bool))


def _normalised(factors: list[Tensor], error: Tensor, converged: Tensor, scale: Tensor) -> CPDecomposition:
    """Unit functions and falling weights."""
    norms = [factor.norm(dim=-2, keepdim=True) for factor in factors]
    units = [factor / torch.where(norm > 0, norm, 1.0) for factor, norm in zip(factors, norms, strict=True)]
    weights, order = (reduce(torch.mul, norms)[..., 0, :] * scale).sort(dim=-1, descending=True)
    ordered = tuple(unit.gather(-1, order[..., None, :].expand_as(unit)) for unit in units)
    return CPDecomposition(weights, ordered, error, converged)


def _reshaped(solved: CPDecomposition, batch: Sequence[int]) -> CPDecomposition:
    """With the batch axes of what was asked."""
    return CPDecomposition(
        solved.weights.reshape(*batch, -1),
        tuple(factor.reshape(*batch, *factor.shape[-2:]) for factor in solved.factors),
        solved.error.reshape(batch), solved.converged.reshape(batch),
    )  # fmt: skip
