"""Compositional complexity (Eq. 13, 15–17, 29–31): how many products of single-factor functions sum to a function.

Values over a factor grid are flat vectors over its points, in grid order, with optional leading batch axes (outputs,
members). Every output is a separate function, as in the paper. A decomposition of rank R is Σ_r λ_r Π_i φ_i^(r)(x_i),
where each φ is a unit vector over the values of a factor, and λ ≥ 0 are in descending order. It is not unique for two
factors. Errors are relative: the norm of the residual divided by that of the values. The zero function has rank 0; any
other product, including a constant, has rank 1.

For two factors without missing entries, the decomposition is an exact SVD. Otherwise it is found by a search (`search`)
from several starts, of which the best is returned. Entries outside `mask` are ignored; functions keep their initial
values where there are no entries.

For three or more factors, some functions are limits of sums of fewer products, with ever larger terms that cancel: x +
y + z has rank 3, but [(1 + d·x)(1 + d·y)(1 + d·z) − 1] / d, a sum of two products, converges to it as d → 0. The ε-rank
of such functions is below their rank for any ε that a search can reach.

A Gram matrix over a grid is a function of n pairs (x_i, x_i′), and its rank is the smallest number of products
Π_i k_i(x_i, x_i′) that sum to it: for two factors, the operator-Schmidt rank.

The complexity of a learnt function is the ε-rank of each pixel of its images. Over kept (not held-out) points, entries
of the grid are missing, and a sum of products may take any value there. Dark pixels are mostly noise, which can have
any rank, so pixels are weighted by their fraction of the energy (sum of squares).

Known answers: a planted sum of R products has error 0 at rank R but not below, even with missing entries; results for
two factors agree with the SVD; an all-true mask changes nothing. Products of kernels, including the delta kernel, have
rank 1; additive kernels Σ_i k_i(x_i, x_i′) have rank n for n factors; the OR kernel 1 − Π_i (1 − δ_i) has rank 2 for
any n. Pixels of a Gaussian bump are products, with rank 1; a superposition of two images a(x) + b(y) on a held-out
block has rank 2; a constant block has rank 1, a zero block rank 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import chain

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import refuse_not_finite
from recombine.theory.search import EXACT, SWEEPS, Search, SumOfProducts, ordered

RESTARTS, PIXEL_RESTARTS = 4, 1
"""Number of starts of a search, in general and for searches that run once per pixel."""
ITERATIONS = 200
"""Maximum number of steps of a search."""
TOLERANCE = 1e-5
"""A search stops when the squared error improves by less than this fraction per step."""
EXACT_ERROR = 1e-6
"""Relative error below which a rank counts as exact."""
STEPS, SWEEPS_OF_TWO = 200, 40
"""Maximum number of steps of a search for ε, or of sweeps for two factors, which are far cheaper than steps."""
MORE = -1
"""Placeholder for a rank above the largest one tried."""


@dataclass(frozen=True, eq=False)
class CPDecomposition(SumOfProducts):
    """A sum of products of unit functions, with non-negative weights."""

    error: Float[Tensor, "*batch"]
    """Norm of the residual relative to that of the values, over entries inside the mask; 0 for zero values."""


def cp_decomposition(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    rank: int,
    *,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = RESTARTS,
) -> CPDecomposition:
    """Return the best rank-`rank` CP approximation of each grid of values over several random starts.

    Only entries inside the mask are used.

    >>> x, y = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
    >>> [round(cp_decomposition((x + y).flatten(), (3, 4), rank).error.item(), 3) for rank in (1, 2)]
    [0.112, 0.0]
    """
    values, chosen = _counted(values, mask)
    problems = values.double().reshape(-1, values.shape[-1])
    if len(shape) == 2 and chosen is None:
        weights, factors, error = _by_singular_values(problems, shape, rank)
    else:
        scale = (problems if chosen is None else problems * chosen).abs().amax(dim=-1, keepdim=True)
        scale = torch.where(scale > 0, scale, 1.0)
        search = Search(shape, rank, ITERATIONS, TOLERANCE)
        functions, error = search.best(problems / scale, restarts, chosen)
        norms = [own.norm(dim=-2, keepdim=True) for own in functions]
        factors = [own / torch.where(norm > 0, norm, 1.0) for own, norm in zip(functions, norms, strict=True)]
        weights = reduce(torch.mul, norms)[..., 0, :] * scale
    batch = values.shape[:-1]
    return CPDecomposition(*ordered(weights, factors, batch), error.reshape(batch))


def _counted(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the values, with 0 (even for NaN) outside the mask, and the mask, or None if it includes everything."""
    if mask is not None:
        if not bool(mask.any()):
            raise InvalidValue("mask", "no entry", "a mask with at least one entry")
        mask = mask.to(values.device)
        values = torch.where(mask, values, 0.0)
    refuse_not_finite("values", values)
    return values, None if mask is None or bool(mask.all()) else mask


def _by_singular_values(values: Tensor, shape: tuple[int, ...], rank: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return weights, functions and errors from the singular value decomposition."""
    u, s, vh = torch.linalg.svd(values.unflatten(-1, shape), full_matrices=False)
    kept = min(rank, s.shape[-1])
    weights, rows, columns = (
        torch.nn.functional.pad(part[..., :kept], (0, rank - kept)) for part in (s, u, vh.mT)
    )  # fmt: skip
    scale = s.norm(dim=-1)
    error = torch.where(scale > 0, s[..., kept:].norm(dim=-1) / torch.where(scale > 0, scale, 1.0), 0.0)
    return weights, [rows, columns], error


def epsilon_rank(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    largest: int = 8,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*batch"]:
    """Return the smallest number of products with a relative error of at most ε (Eq. 17); −1 if above `largest`.

    >>> x, y = torch.meshgrid(torch.arange(5.0), torch.arange(5.0), indexing="ij")
    >>> epsilon_rank(torch.stack([x * y, x + y, (x - y).abs()]).flatten(1), (5, 5), 0.1).tolist()
    [1, 2, 3]
    """
    values, counted = _counted(values, mask)
    ranks = least_ranks(
        values.reshape(-1, values.shape[-1]), shape, epsilon, min(largest, values.shape[-1]), counted, restarts
    )
    return ranks.reshape(values.shape[:-1])


def exact_rank(
    values: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    *,
    largest: int = 8,
    mask: Bool[Tensor, " point"] | None = None,
    restarts: int = 2 * RESTARTS,
) -> Int[Tensor, "*batch"]:
    """Return the smallest number of products that sum to a function (Eq. 16); −1 if above `largest`.

    >>> exact_rank(torch.eye(4).flatten(), (4, 4)).item()
    4
    """
    return epsilon_rank(values, shape, EXACT_ERROR, largest=largest, mask=mask, restarts=restarts)


def least_ranks(
    problems: Tensor, shape: tuple[int, ...], epsilon: float, largest: int, mask: Tensor | None, restarts: int
) -> Tensor:
    """Return the smallest rank of each problem; −1 if above `largest`, 0 for zero values."""
    entries = problems.double() if mask is None else problems.double() * mask
    scale = entries.abs().amax(dim=-1, keepdim=True)
    entries = entries / torch.where(scale > 0, scale, 1.0)
    bound = entries.norm(dim=-1) * epsilon
    if len(shape) == 2 and mask is None:
        ranks = _spectral_ranks(entries.unflatten(-1, shape), bound)
        return torch.where(ranks > largest, MORE, ranks)
    least = (scale[:, 0] > 0).long()  # lower bounds
    if len(shape) == 2 and mask is not None:
        matrices, present = entries.unflatten(-1, shape), mask.unflatten(0, shape)
        complete = (matrices[:, present.all(dim=1)], matrices[:, :, present.all(dim=0)])  # rows and columns
        for part in complete:
            least = torch.maximum(least, _spectral_ranks(part, bound)) if part.numel() else least
    ranks = torch.where(least == 0, 0, MORE)
    sweeps = SWEEPS_OF_TWO if len(shape) == 2 else SWEEPS
    tolerance = min(max(epsilon / 100, 1e-5), 1e-3)  # relative improvement below which a search stops
    for rank in range(1, largest + 1):
        places = torch.nonzero((ranks == MORE) & (least <= rank)).flatten()
        if len(places):
            search = Search(shape, rank, STEPS, tolerance, sweeps=sweeps, enough=max(epsilon, EXACT))
            _, error = search.best(entries[places], restarts, mask)
            ranks[places[error <= epsilon]] = rank
    return ranks


def _spectral_ranks(matrices: Tensor, bound: Tensor) -> Tensor:
    """Return the smallest ranks at which the residuals of matrices are within a bound, from their singular values."""
    squared = torch.linalg.svdvals(matrices).square()
    tails = squared.flip(-1).cumsum(dim=-1).flip(-1)
    return (tails.sqrt() > bound[:, None]).sum(dim=-1)


def kernel_decomposition(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], rank: int
) -> CPDecomposition:
    """Return the best sum of `rank` products of single-factor kernels (Eq. 30).

    Its factors are the kernels k_i, flat over pairs (x_i, x_i′).

    >>> additive = torch.kron(torch.eye(2), torch.ones(3, 3)) + torch.kron(torch.ones(2, 2), torch.eye(3))
    >>> [round(kernel_decomposition(additive, (2, 3), rank).error.item(), 2) for rank in (1, 2)]
    [0.21, 0.0]
    """
    pairs, sizes = over_pairs(gram, shape)
    return cp_decomposition(pairs, sizes, rank)


def kernel_rank(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    *,
    largest: int = 8,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*member"]:
    """Return the smallest number of products of single-factor kernels in a kernel (Eq. 31); −1 if above `largest`.

    >>> same_x, same_y = torch.kron(torch.eye(3), torch.ones(4, 4)), torch.kron(torch.ones(3, 3), torch.eye(4))
    >>> kernel_rank(torch.stack([same_x * same_y, same_x + same_y]), (3, 4)).tolist()
    [1, 2]
    """
    pairs, sizes = over_pairs(gram, shape)
    return epsilon_rank(pairs, sizes, EXACT_ERROR, largest=largest, restarts=restarts)


def over_pairs(gram: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Reshape a Gram matrix to a flat function of one pair of values per factor; also return the pair counts."""
    lead, factors = gram.ndim - 2, len(shape)
    paired = gram.double().unflatten(-1, shape).unflatten(lead, shape)
    order = chain.from_iterable((lead + k, lead + factors + k) for k in range(factors))
    return paired.permute(*range(lead), *order).flatten(lead), tuple(size**2 for size in shape)


@dataclass(frozen=True, eq=False)
class PixelRanks:
    """Ranks of pixels as functions of the factors, on a subset of grid points."""

    rank: Int[Tensor, "*member pixel"]
    """Rank of each pixel; −1 if above the largest rank tried, 0 for dark pixels."""
    energy: Float[Tensor, "*member pixel"]
    """Each pixel's fraction of the sum of squares; 0 if all pixels are dark."""
    largest: int

    @property
    def distribution(self) -> Float[Tensor, "*member rank"]:
        """Fraction of the energy in pixels with rank 0, 1, …, `largest`, and above."""
        place = torch.where(self.rank == MORE, self.largest + 1, self.rank)
        return torch.nn.functional.one_hot(place, self.largest + 2).mul(self.energy[..., None]).sum(dim=-2)

    @property
    def mean(self) -> Float[Tensor, "*member"]:
        """Mean rank weighted by energy; a lower bound, since ranks above `largest` count as `largest` + 1."""
        shares = self.distribution
        return (shares * torch.arange(self.largest + 2, device=shares.device)).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class RegionRanks:
    """Ranks over all points, kept points and held-out points."""

    everywhere: PixelRanks
    kept: PixelRanks
    held_out: PixelRanks


def learnt_complexity(
    outputs: Float[Tensor, "*member point pixel"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"],
    epsilon: float,
    *,
    largest: int = 8,
) -> RegionRanks:
    """Return the rank of each pixel of networks' outputs, or of the target, over all, kept and held-out points.

    A sum of products may have a relative error of up to ε; ranks up to `largest` are tried.

    >>> x, y = torch.meshgrid(torch.arange(1.0, 6.0), torch.arange(1.0, 7.0), indexing="ij")
    >>> held_out = ((x > 3) & (y > 3)).flatten()
    >>> superposed = torch.where(held_out, (x + y).flatten(), (x * y).flatten())[:, None]
    >>> ranks = learnt_complexity(superposed, (5, 6), held_out, 1e-6)
    >>> ranks.everywhere.mean.item(), ranks.kept.mean.item(), ranks.held_out.mean.item()
    (3.0, 1.0, 2.0)
    """
    if not bool(held_out.any()) or bool(held_out.all()):
        raise InvalidValue("held_out", f"{int(held_out.sum())} points", f"some but not all of {len(held_out)}")
    regions = (torch.ones_like(held_out), ~held_out, held_out)
    return RegionRanks(*(pixel_ranks(outputs, shape, region, epsilon, largest) for region in regions))


def pixel_ranks(
    images: Float[Tensor, "*member point pixel"],
    shape: tuple[int, ...],
    points: Bool[Tensor, " point"],
    epsilon: float,
    largest: int = 8,
) -> PixelRanks:
    """Return the rank of each pixel, viewed as a tensor over the factors, on a subset of grid points.

    >>> x, y = torch.meshgrid(torch.arange(1.0, 4.0), torch.arange(1.0, 5.0), indexing="ij")
    >>> pixel_ranks((x + y).reshape(-1, 1), (3, 4), torch.ones(12, dtype=torch.bool), 1e-6).rank.tolist()
    [2]
    """
    refuse_not_finite("images", images)
    if not bool(points.any()):
        raise InvalidValue("points", "none", "a mask with at least one point of the grid")
    points = points.to(images.device)
    inside = points.unflatten(0, shape)
    grid = tuple(int(inside.movedim(axis, 0).flatten(1).any(dim=1).sum()) for axis in range(len(shape)))
    is_grid = math.prod(grid) == int(points.sum())  # whether the points are all combinations of some values
    members = images.reshape(-1, *images.shape[-2:])
    ranks, energies = [], []
    for member in members:  # one by one, so that only one is in double precision at a time
        functions = member.mT.double()
        chosen = functions[:, points]
        scale = chosen.abs().max()
        energy = (chosen / torch.where(scale > 0, scale, 1.0)).square().sum(dim=-1)
        energies.append(energy / energy.sum().clamp(min=torch.finfo(energy.dtype).tiny))
        entries, sizes, mask = (chosen, grid, None) if is_grid else (functions, shape, points)
        ranks.append(least_ranks(entries, sizes, epsilon, largest, mask, PIXEL_RESTARTS))
    rank, share = (torch.stack(own).reshape(*images.shape[:-2], -1) for own in (ranks, energies))
    return PixelRanks(rank, share, largest)
