"""The least rank with an error of at most ε, for many functions at once, by as little searching as possible.

Two factors without missing entries: the singular values of each function say it. With missing entries, what is left of
the rows and columns that have none missing is a part of what is left of all, so that their singular values bound the
rank from below. From there ranks are tried one after another; a search ends as soon as its error is small enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recombine.theory.search import EXACT, SWEEPS, Search

STEPS, SWEEPS_OF_TWO = 200, 40
"""Of a search that does not come to ε, at most; sweeps of two factors cost far less than a step."""
IMPROVEMENTS = (1e-5, 1e-3)
"""Share of the squared error that a step must gain, or a search ends: a hundredth of ε, between these."""
MORE = -1
"""In the place of a rank that is larger than the largest that was tried."""


def least_ranks(
    problems: Tensor, shape: tuple[int, ...], epsilon: float, largest: int, mask: Tensor | None, restarts: int
) -> Tensor:
    """Of each problem; −1 where it is larger than `largest`, 0 where there is nothing."""
    entries = problems.double() if mask is None else problems.double() * mask
    scale = entries.abs().amax(dim=-1, keepdim=True)
    entries = entries / torch.where(scale > 0, scale, 1.0)
    bound = entries.norm(dim=-1) * epsilon
    if len(shape) == 2 and mask is None:
        ranks = spectral_ranks(entries.unflatten(-1, shape), bound)
        return torch.where(ranks > largest, MORE, ranks)
    least = (scale[:, 0] > 0).long()
    if len(shape) == 2 and mask is not None:
        least = torch.maximum(least, _lower_bounds(entries.unflatten(-1, shape), mask.unflatten(0, shape), bound))
    return _searched(entries, shape, epsilon, least, largest, mask, restarts)


def spectral_ranks(matrices: Tensor, bound: Tensor) -> Tensor:
    """The least ranks of matrices with a residual of at most a bound: how many singular values are before that tail."""
    squared = torch.linalg.svdvals(matrices).square()
    tails = squared.flip(-1).cumsum(dim=-1).flip(-1)
    return (tails.sqrt() > bound[:, None]).sum(dim=-1)


def _lower_bounds(matrices: Tensor, mask: Tensor, bound: Tensor) -> Tensor:
    """Ranks of rows without missing entries, and of columns."""
    parts = [matrices[:, mask.all(dim=1)], matrices[:, :, mask.all(dim=0)]]
    ranks = [spectral_ranks(part, bound) for part in parts if part.numel()]
    return torch.stack([torch.zeros_like(bound, dtype=torch.int64), *ranks]).amax(dim=0)


def _searched(
    entries: Tensor, shape: tuple[int, ...], epsilon: float, least: Tensor, largest: int, mask: Tensor | None,
    restarts: int,
) -> Tensor:  # fmt: skip
    """From the least rank that each problem may have upwards."""
    ranks = torch.where(least == 0, 0, MORE)
    sweeps = SWEEPS_OF_TWO if len(shape) == 2 else SWEEPS
    tolerance = min(max(epsilon / 100, IMPROVEMENTS[0]), IMPROVEMENTS[1])
    for rank in range(1, largest + 1):
        places = torch.nonzero((ranks == MORE) & (least <= rank)).flatten()
        if len(places):
            search = Search(shape, rank, STEPS, tolerance, seed=0, sweeps=sweeps, enough=max(epsilon, EXACT))
            _, error, _ = search.best(entries[places], restarts, mask)
            ranks[places[error <= epsilon]] = rank
    return ranks
