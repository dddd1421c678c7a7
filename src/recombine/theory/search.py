"""Damped Gauss–Newton (Levenberg–Marquardt) steps towards sums of products, for many grids of values at once.

Every problem of a batch has its own damping: a step that lowers its error is taken and the damping falls, one that does
not is dropped and it rises. Problems that have settled leave the batch. Starts are singular vectors of the unfolded
grid, then random functions, each after a few sweeps of alternating least squares (`alternating`). That alone, the usual
way, takes hundreds of sweeps where this takes tens of steps, and ends more often in a sum that is not the best; but a
step costs one solve of the size of all functions together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from recombine.theory.alternating import Problems, khatri_rao, swept

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

Found = tuple[list[Tensor], Tensor, Tensor]
"""Functions of every factor, `[problem, value, rank]`; relative errors; and whether searches ended by themselves."""


@dataclass(frozen=True, eq=False)
class Search:
    """Sums of `rank` products over grids."""

    shape: tuple[int, ...]
    rank: int
    iterations: int
    tolerance: float
    seed: int
    sweeps: int = SWEEPS
    enough: float = EXACT
    """Relative error at which a problem is solved."""

    def best(
        self,
        values: Tensor,
        restarts: int,
        mask: Tensor | None = None,
        *,
        first: Sequence[Tensor] | None = None,
        ridge: Tensor | None = None,
    ) -> Found:
        """Of every problem the start that ended with the smallest relative error, a ridge included.

        `mask` is over points, or over problems and points. `first` are functions to start from; where they are of one
        product less, a product of what they leave is added.
        """
        counted = None if mask is None else mask.to(values).reshape(-1, values.shape[-1])
        problems = Problems(self.shape, values if counted is None else values * counted, counted, ridge)
        functions = [values.new_zeros(len(values), size, self.rank) for size in self.shape]
        error = values.new_full((len(values),), math.inf)
        converged = torch.zeros_like(error, dtype=torch.bool)
        generator = torch.Generator().manual_seed(self.seed)
        for start in range(restarts):
            places = torch.nonzero(error > self.enough).flatten()
            if not len(places):
                break
            drawn = self._random(values, generator)
            for part in places.split(self._at_once):
                own = problems[part]
                if start:
                    began = [noise.expand(len(own), -1, -1) for noise in drawn]
                elif first is None:
                    began = self._singular(own, drawn)
                else:
                    began = self._continued(own, [whole[part] for whole in first])
                found, left, settled = self._descended(own, began)
                better = left < error[part]
                chosen = part[better]
                for whole, new in zip(functions, found, strict=True):
                    whole[chosen] = new[better]
                error[chosen], converged[chosen] = left[better], settled[better]
        return functions, error, converged

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
            vectors = _singular_vectors(problems, problems.entries, axis)[..., : self.rank]
            more = noise[..., vectors.shape[-1] :].expand(len(problems), -1, -1)
            functions.append(torch.cat([vectors + 0.1 * noise[..., : vectors.shape[-1]], more], dim=-1))
        return functions

    def _continued(self, problems: Problems, first: list[Tensor]) -> list[Tensor]:
        """Functions of as many products as they are; to one less the singular vectors of what it leaves are added."""
        if first[0].shape[-1] == self.rank:
            return first
        left = problems.left(first)
        added = [_singular_vectors(problems, left, axis)[..., :1] for axis in range(len(first))]
        return [torch.cat(pair, dim=-1) for pair in zip(first, added, strict=True)]

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
        settled = losses.sqrt() <= target
        active = torch.nonzero(~settled).flatten()
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
            settled[active] = done
            active = active[~done]
        return self._functions(result), losses.sqrt() / scale, settled

    def _step(self, problems: Problems, flat: Tensor, damping: Tensor) -> Tensor:
        functions = self._functions(flat)
        normal = self._normal(problems, functions)
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        mean = diagonal.mean(dim=-1, keepdim=True)
        shift = damping[:, None] * torch.where(mean > 0, mean, 1.0) + torch.finfo(flat.dtype).eps * mean
        diagonal += shift if problems.ridge is None else shift + problems.ridge[:, None]
        factor, failed = torch.linalg.cholesky_ex(normal)
        gradient = self._gradient(problems, problems.left(functions), functions)
        if problems.ridge is not None:
            gradient = gradient - problems.ridge[:, None] * flat
        step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)


def _singular_vectors(problems: Problems, values: Tensor, axis: int) -> Tensor:
    """Of the values unfolded along a factor, the largest first: `[problem, value, vector]`."""
    unfolded = problems.unfolded(values, axis)
    return torch.linalg.eigh(unfolded @ unfolded.mT).eigenvectors.flip(-1)
