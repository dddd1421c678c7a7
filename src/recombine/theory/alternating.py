"""Alternating least squares for sums of products, for many grids of values at once: the way into a search.

A sweep fits the functions of one factor after another, the others held. It costs little. For many problems a few are
enough; for others they gain next to nothing long before the end, and there `search` takes over. A trace of ridge keeps
values of a factor that have few entries from running off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

TRACE = 1e-6
"""Least ridge, of the mean diagonal of the normal equations of a factor."""

BLOCK = 4
"""Sweeps from one look at the squared error to the next."""
SAFE = 0.5
"""Largest ratio of gains, from one look to the next, by which those to come are guessed."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Products over all points, in the grid's order: `[…, point, rank]`."""
    return reduce(lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).flatten(-3, -2), factors)


def summed(functions: Sequence[Tensor]) -> Tensor:
    """Sums of products over all points: `[…, point]`."""
    return (khatri_rao(functions[:-1]) @ functions[-1].mT).flatten(-2)


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
        left = self.entries - summed(functions)
        return left if self.counted is None else left * self.counted

    def loss(self, functions: Sequence[Tensor]) -> Tensor:
        """The squared error, a ridge included."""
        squared = self.left(functions).square().sum(dim=-1)
        if self.ridge is None:
            return squared
        return squared + self.ridge * sum(own.square().sum(dim=(-2, -1)) for own in functions)


def swept(
    problems: Problems, functions: Sequence[Tensor], sweeps: int, tolerance: float
) -> tuple[list[Tensor], Tensor]:
    """The functions after so many sweeps, and which problems seem to be done.

    Sweeps gain by a ratio that hardly changes. A problem leaves when all gains to come, by its ratio, are less than a
    share of its squared error. On a plateau that is mistaken, and a step of `search` has the last word.
    """
    result = [own.clone() for own in functions]
    loss = problems.loss(result)
    gain = torch.zeros_like(loss)
    settled = torch.zeros_like(loss, dtype=torch.bool)
    active = torch.arange(len(problems), device=loss.device)
    for _ in range(-(-sweeps // BLOCK)):
        own, current = problems[active], [part[active] for part in result]
        for _sweep in range(BLOCK):
            current = _sweep_once(own, current)
        for whole, part in zip(result, current, strict=True):
            whole[active] = part
        new = own.loss(current)
        now = loss[active] - new
        ratio = now / gain[active]
        loss[active], gain[active] = new, now
        done = (ratio >= 0) & (ratio < SAFE) & (now * ratio <= tolerance * new * (1 - ratio))
        settled[active] = done
        active = active[~done]
        if not len(active):
            break
    return result, settled


def _sweep_once(problems: Problems, functions: list[Tensor]) -> list[Tensor]:
    for axis in range(len(functions)):
        functions = [*functions[:axis], _fitted(problems, functions, axis), *functions[axis + 1 :]]
    return balanced(functions)


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
