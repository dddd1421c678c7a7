"""Alternating least squares for sums of products, for many grids of values at once: the way into a search.

A sweep fits the functions of one factor after another, the others held. It costs little, gains much at first and next
to nothing later on, where `search` takes over. A trace of ridge keeps values of a factor that have few entries from
running off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

TRACE = 1e-4
"""Least ridge, of the mean diagonal of the normal equations of a factor."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Products over all points, in the grid's order: `[…, point, rank]`."""
    return reduce(lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).flatten(-3, -2), factors)


@dataclass(frozen=True, eq=False)
class Problems:
    """Grids of values, some entries of which may be missing."""

    shape: tuple[int, ...]
    entries: Tensor
    """`[problem, point]`, 0 where there is none."""
    counted: Tensor | None
    """1 for entries that there are: `[problem, point]`, or `[1, point]` if it is the same for all; None: everywhere."""
    ridge: Tensor | None = None
    """Share of its functions' squares that is added to each problem's squared error."""

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, places: Tensor) -> Problems:
        counted, ridge = self.counted, self.ridge
        if counted is not None and len(counted) > 1:
            counted = counted[places]
        return Problems(self.shape, self.entries[places], counted, None if ridge is None else ridge[places])

    def unfolded(self, values: Tensor, *axes: int) -> Tensor:
        """Values over the grid by those of some factors and all others: `[problem, point, point]`."""
        grid = values.unflatten(-1, self.shape).movedim([1 + axis for axis in axes], list(range(1, 1 + len(axes))))
        return grid.reshape(len(values), math.prod(self.shape[axis] for axis in axes), -1)

    def left(self, functions: Sequence[Tensor]) -> Tensor:
        """What a sum of products leaves of the entries that there are."""
        left = self.entries - khatri_rao(functions).sum(dim=-1)
        return left if self.counted is None else left * self.counted


def swept(problems: Problems, functions: Sequence[Tensor], sweeps: int) -> list[Tensor]:
    """The functions after so many sweeps."""
    current = list(functions)
    for _ in range(sweeps):
        for axis in range(len(current)):
            current[axis] = _fitted(problems, current, axis)
        current = balanced(current)
    return current


def balanced(functions: Sequence[Tensor]) -> list[Tensor]:
    """The same products, the norm of each shared evenly by its factors."""
    norms = [own.norm(dim=-2, keepdim=True) for own in functions]
    share = reduce(torch.mul, norms) ** (1 / len(norms))
    return [own * (share / torch.where(norm > 0, norm, 1.0)) for own, norm in zip(functions, norms, strict=True)]


def _fitted(problems: Problems, functions: Sequence[Tensor], axis: int) -> Tensor:
    """The functions of one factor that fit best, those of the others held."""
    rank = functions[0].shape[-1]
    rest = [own for k, own in enumerate(functions) if k != axis]
    others = khatri_rao(rest)
    right = problems.unfolded(problems.entries, axis) @ others
    if problems.counted is None:
        normal = reduce(torch.mul, [own.mT @ own for own in rest])
        return torch.cholesky_solve(right.mT, _root(normal, problems.ridge)).mT
    one, other = torch.triu_indices(rank, rank, device=others.device)
    upper = problems.unfolded(problems.counted, axis) @ (others[..., one] * others[..., other])
    normal = upper.new_empty(*upper.shape[:-1], rank, rank)
    normal[..., one, other] = upper
    normal[..., other, one] = upper
    return torch.cholesky_solve(right[..., None], _root(normal, problems.ridge))[..., 0]


def _root(normal: Tensor, ridge: Tensor | None) -> Tensor:
    """Cholesky factors of normal equations with a ridge, and a trace of one in any case."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    mean = diagonal.flatten(1).mean(dim=-1)
    shift = TRACE * torch.where(mean > 0, mean, 1.0)
    shift = shift if ridge is None else shift + ridge
    diagonal += shift.reshape(-1, *(1,) * (diagonal.ndim - 1))
    factor, _ = torch.linalg.cholesky_ex(normal)
    return factor
