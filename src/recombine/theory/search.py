"""Searches for sums of products, for many grids of values at once: damped Gauss–Newton (Levenberg–Marquardt) steps.

Every problem of a batch has its own damping: a step that lowers its error is taken and the damping falls, one that does
not is dropped and it rises. Problems that have settled leave the batch. Starts are singular vectors of the unfolded
grid, then random functions, each after a few sweeps of alternating least squares: the functions of one factor after
another are fitted, the others held. Sweeps cost little, and for many problems a few are enough. Alone they take
hundreds where this takes tens of steps, and end more often in a sum that is not the best; but a step costs one solve of
the size of all functions together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

TRACE = 1e-6
"""Least ridge, of the mean diagonal of a factor's normal equations: few entries of a value must not let it run off."""
BLOCK = 4
"""Sweeps from one look at the squared error to the next."""
SAFE = 0.5
"""Largest ratio of gains, from one look to the next, by which those to come are guessed."""
EXACT = 1e-9
"""Relative error that is next to none."""
SWEEPS = 24
"""Of alternating least squares at most, before the first step."""
FIRST_DAMPING, LAST_DAMPING = 0.1, 1e-4
"""Of the mean diagonal of the normal equations; the second where sweeps seem to be done."""
DAMPINGS = (1e-14, 1e6)
"""Bounds; a problem whose damping has reached the upper one has settled."""
LOWER, RAISE = 0.2, 4.0
"""What a step does to the damping, taken or dropped."""
MEMORY = 1 << 27
"""Bytes of derivatives that are held at a time."""

Found = tuple[list[Tensor], Tensor]
"""Functions of every factor, `[problem, value, rank]`, and relative errors."""


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
    """`[1, point]`: 1 for entries that there are; None: everywhere."""

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, places: Tensor) -> Problems:
        return Problems(self.shape, self.entries[places], self.counted)

    def unfolded(self, values: Tensor, *axes: int) -> Tensor:
        """Values over the grid by those of some factors and all others: `[problem, point, point]`."""
        grid = values.unflatten(-1, self.shape).movedim([1 + axis for axis in axes], list(range(1, 1 + len(axes))))
        return grid.reshape(len(values), math.prod(self.shape[axis] for axis in axes), -1)

    def left(self, functions: Sequence[Tensor]) -> Tensor:
        """What a sum of products leaves of the entries that there are."""
        left = self.entries - (khatri_rao(functions[:-1]) @ functions[-1].mT).flatten(-2)
        return left if self.counted is None else left * self.counted

    def loss(self, functions: Sequence[Tensor]) -> Tensor:
        """The squared error."""
        return self.left(functions).square().sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Search:
    """Sums of `rank` products over grids."""

    shape: tuple[int, ...]
    rank: int
    iterations: int
    tolerance: float
    sweeps: int = SWEEPS
    enough: float = EXACT
    """Relative error at which a problem is solved."""

    def best(self, values: Tensor, restarts: int, mask: Tensor | None = None) -> Found:
        """Of every problem the start that ended with the smallest relative error at the points of a mask."""
        counted = None if mask is None else mask.to(values)[None]
        problems = Problems(self.shape, values if counted is None else values * counted, counted)
        functions = [values.new_zeros(len(values), size, self.rank) for size in self.shape]
        error = values.new_full((len(values),), math.inf)
        generator = torch.Generator().manual_seed(0)
        for start in range(restarts):
            places = torch.nonzero(error > self.enough).flatten()
            if not len(places):
                break
            drawn = self._random(values, generator)
            for part in places.split(self._at_once):
                own = problems[part]
                began = [noise.expand(len(own), -1, -1) for noise in drawn] if start else self._singular(own, drawn)
                found, left = self._descended(own, began)
                better = left < error[part]
                chosen = part[better]
                for whole, new in zip(functions, found, strict=True):
                    whole[chosen] = new[better]
                error[chosen] = left[better]
        return functions, error

    @property
    def parameters(self) -> int:
        """Numbers that a problem is solved for."""
        return self.rank * sum(self.shape)

    @property
    def _at_once(self) -> int:
        """Problems whose normal equations fit into memory together."""
        return max(1, MEMORY // (8 * (self.parameters**2 + math.prod(self.shape) * self.rank**2)))

    def _functions(self, flat: Tensor) -> list[Tensor]:
        """Functions of each factor, `[problem, value, rank]`, from all numbers of a problem."""
        parts = flat.split([self.rank * size for size in self.shape], dim=-1)
        return [part.unflatten(-1, (size, self.rank)) for part, size in zip(parts, self.shape, strict=True)]

    def _random(self, like: Tensor, generator: torch.Generator) -> list[Tensor]:
        """One start for all problems, so that none depends on its neighbours."""
        drawn = torch.randn(1, self.parameters, generator=generator, dtype=torch.float64)
        return self._functions(drawn.to(like) / self.rank ** (1 / len(self.shape)))

    def _singular(self, problems: Problems, drawn: Sequence[Tensor]) -> list[Tensor]:
        """Leading singular vectors of every unfolding, missing entries 0, and noise; where there are too few, noise."""
        functions = []
        for axis, noise in enumerate(drawn):
            unfolded = problems.unfolded(problems.entries, axis)
            vectors = torch.linalg.eigh(unfolded @ unfolded.mT).eigenvectors.flip(-1)[..., : self.rank]
            more = noise[..., vectors.shape[-1] :].expand(len(problems), -1, -1)
            functions.append(torch.cat([vectors + 0.1 * noise[..., : vectors.shape[-1]], more], dim=-1))
        return functions

    def _paired(self, problems: Problems, functions: Sequence[Tensor], *axes: int) -> Tensor:
        """Sums over the entries at each value of some factors of r's times s's product of the others: `[…, r, s]`."""
        rest = [own for k, own in enumerate(functions) if k not in axes]
        if problems.counted is None:
            ones = functions[0].new_ones(len(functions[0]), self.rank, self.rank)
            return reduce(torch.mul, [own.mT @ own for own in rest], ones)[(slice(None), *(None,) * len(axes))]
        others = khatri_rao(rest) if rest else functions[0].new_ones(len(functions[0]), 1, self.rank)
        pairs = (others[..., :, None] * others[..., None, :]).flatten(-2)
        summed = problems.unfolded(problems.counted, *axes) @ pairs
        return summed.unflatten(-1, (self.rank, self.rank)).unflatten(1, tuple(self.shape[axis] for axis in axes))

    def _normal(self, problems: Problems, functions: Sequence[Tensor]) -> Tensor:
        """Derivatives by all numbers times one another, summed over entries: `[problem, parameter, parameter]`."""
        count, rank = len(functions[0]), self.rank
        normal = functions[0].new_zeros(count, self.parameters, self.parameters)
        begins = [rank * sum(self.shape[:k]) for k in range(len(self.shape))]
        for i, size in enumerate(self.shape):
            own = normal[:, begins[i] : begins[i] + rank * size, begins[i] : begins[i] + rank * size]
            blocks = self._paired(problems, functions, i).expand(count, size, rank, rank)
            own.unflatten(2, (size, rank)).unflatten(1, (size, rank)).diagonal(dim1=1, dim2=3).copy_(
                blocks.permute(0, 2, 3, 1)
            )
            for j in range(i):  # the lower triangle is all that a Cholesky decomposition reads
                weights = self._paired(problems, functions, i, j)  # [problem, a, b, r, s]
                block = weights * functions[j][:, None, :, :, None] * functions[i][:, :, None, None, :]
                block = block.permute(0, 1, 3, 2, 4).reshape(count, rank * size, rank * self.shape[j])
                normal[:, begins[i] : begins[i] + rank * size, begins[j] : begins[j] + rank * self.shape[j]] = block
        return normal

    def _gradient(self, problems: Problems, left: Tensor, functions: Sequence[Tensor]) -> Tensor:
        """Derivatives by all numbers times what is left, summed over entries: `[problem, parameter]`."""
        return torch.cat([
            (problems.unfolded(left, axis) @ khatri_rao([*functions[:axis], *functions[axis + 1 :]])).flatten(1)
            for axis in range(len(self.shape))
        ], dim=-1)  # fmt: skip

    def _descended(self, problems: Problems, functions: Sequence[Tensor]) -> Found:
        """Sweeps, and steps until every problem has settled."""
        scale = problems.entries.norm(dim=-1)
        scale = torch.where(scale > 0, scale, 1.0)
        target = (self.enough if self.enough > EXACT else 0.1 * EXACT) * scale
        near, seem_done = swept(problems, functions, self.sweeps, self.tolerance)
        result = torch.cat([own.flatten(1) for own in near], dim=-1)
        losses = problems.loss(near)
        active = torch.nonzero(losses.sqrt() > target).flatten()
        damping = torch.where(seem_done, LAST_DAMPING, FIRST_DAMPING).to(losses)
        for _ in range(self.iterations):
            if not len(active):
                break
            own, old = problems[active], losses[active]
            tried = result[active] + self._step(own, result[active], damping[active])
            new = own.loss(self._functions(tried))
            better = new < old
            places = active[better]
            result[places], losses[places] = tried[better], new[better]
            damping[active] = (damping[active] * torch.where(better, LOWER, RAISE)).clamp(*DAMPINGS)
            little = better & (old - new <= self.tolerance * old)
            done = little | (damping[active] >= DAMPINGS[1]) | (losses[active].sqrt() <= target[active])
            active = active[~done]
        return self._functions(result), losses.sqrt() / scale

    def _step(self, problems: Problems, flat: Tensor, damping: Tensor) -> Tensor:
        functions = self._functions(flat)
        normal = self._normal(problems, functions)
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        mean = diagonal.mean(dim=-1, keepdim=True)
        shift = damping[:, None] * torch.where(mean > 0, mean, 1.0) + torch.finfo(flat.dtype).eps * mean
        diagonal += shift
        factor, failed = torch.linalg.cholesky_ex(normal)
        gradient = self._gradient(problems, problems.left(functions), functions)
        step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)


def swept(
    problems: Problems, functions: Sequence[Tensor], sweeps: int, tolerance: float
) -> tuple[list[Tensor], Tensor]:
    """The functions after so many sweeps, and which problems seem to be done.

    Sweeps gain by a ratio that hardly changes. A problem leaves when all gains to come, by its ratio, are less than a
    share of its squared error. On a plateau that is mistaken, and a damped step has the last word.
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
    # The same products, the norm of each shared evenly by its factors: normal equations stay well conditioned.
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
        return torch.cholesky_solve(right.mT, _root(normal)).mT
    one, other = torch.triu_indices(rank, rank, device=others.device)
    upper = problems.unfolded(problems.counted, axis) @ (others[..., one] * others[..., other])
    normal = upper.new_empty(*upper.shape[:-1], rank, rank)
    normal[..., one, other] = upper
    normal[..., other, one] = upper
    return torch.cholesky_solve(right[..., None], _root(normal))[..., 0]


def _root(normal: Tensor) -> Tensor:
    """Cholesky factors of normal equations with a trace of ridge."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    mean = diagonal.flatten(1).mean(dim=-1)
    shift = TRACE * torch.where(mean > 0, mean, 1.0)
    diagonal += shift.reshape(-1, *(1,) * (diagonal.ndim - 1))
    factor, _ = torch.linalg.cholesky_ex(normal)
    return factor
