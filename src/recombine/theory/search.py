"""Damped Gauss–Newton (Levenberg–Marquardt) steps towards sums of products, for many grids of values at once.

Every problem of a batch has its own damping: a step that lowers its error is taken and the damping falls, one that does
not is dropped and it rises. Problems that have settled leave the batch. Starts are singular vectors of the unfolded
grid, then random functions. Alternating least squares, the usual way, takes hundreds of sweeps where this takes tens of
steps, and ends more often in a sum that is not the best; a step costs one solve of the size of all functions together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from torch import Tensor

EXACT = 1e-9
"""Relative error below which a problem is solved."""
FIRST_DAMPING = 1.0
"""Of the mean diagonal of the normal equations."""
DAMPINGS = (1e-14, 1e6)
"""Bounds; a problem whose damping has reached the upper one has settled."""
LOWER, RAISE = 0.2, 4.0
"""What a step does to the damping, taken or dropped."""
MEMORY = 1 << 27
"""Bytes of derivatives that are held at a time."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Products over all points, in the grid's order: `[…, point, rank]`."""
    return reduce(lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).flatten(-3, -2), factors)


@dataclass(frozen=True, eq=False)
class Search:
    """Sums of `rank` products over a grid, some entries of which may be missing."""

    shape: tuple[int, ...]
    rank: int
    mask: Tensor | None
    iterations: int
    tolerance: float
    seed: int

    def best(self, values: Tensor, restarts: int) -> tuple[list[Tensor], Tensor, Tensor]:
        """Of every problem the start that ended with the smallest relative error, and whether it converged."""
        count, device = len(values), values.device
        entries = values if self.mask is None else values * self.mask
        factors = torch.zeros(count, self.parameters, dtype=values.dtype, device=device)
        error = torch.full((count,), math.inf, dtype=values.dtype, device=device)
        converged = torch.zeros(count, dtype=torch.bool, device=device)
        generator = torch.Generator().manual_seed(self.seed)
        for start in range(restarts):
            places = torch.nonzero(error > EXACT).flatten()
            if not len(places):
                break
            began = self._singular(values[places]) if start == 0 else self._random(len(places), values, generator)
            for part in places.split(self._at_once):
                first, began = began[: len(part)], began[len(part) :]
                found, left, settled = self._descended(entries[part], first)
                better = left < error[part]
                chosen = part[better]
                factors[chosen], error[chosen], converged[chosen] = found[better], left[better], settled[better]
        return list(self._functions(factors)), error, converged

    @property
    def parameters(self) -> int:
        """Numbers that a problem is solved for."""
        return self.rank * sum(self.shape)

    @property
    def _at_once(self) -> int:
        """Problems whose normal equations fit into memory together."""
        return max(1, MEMORY // (8 * (self.parameters**2 + math.prod(self.shape) * self.rank**2)))

    def _functions(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Functions of each factor, `[problem, value, rank]`, from all numbers of a problem."""
        parts = flat.split([self.rank * size for size in self.shape], dim=-1)
        return tuple(part.unflatten(-1, (size, self.rank)) for part, size in zip(parts, self.shape, strict=True))

    def _random(self, count: int, like: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(count, self.parameters, generator=generator, dtype=like.dtype)
        return drawn.to(like.device) / self.rank ** (1 / len(self.shape))

    def _singular(self, values: Tensor) -> Tensor:
        """Leading singular vectors of every unfolding, missing entries 0; where there are too few, noise."""
        entries = (values if self.mask is None else values * self.mask).unflatten(-1, self.shape)
        started = self._random(len(values), values, torch.Generator().manual_seed(self.seed + 1))
        functions = self._functions(started)
        for axis, own in enumerate(functions):
            unfolded = entries.movedim(1 + axis, 1).flatten(2)
            vectors = torch.linalg.eigh(unfolded @ unfolded.mT).eigenvectors.flip(-1)[..., : self.rank]
            own[..., : vectors.shape[-1]] = vectors + 0.1 * own[..., : vectors.shape[-1]]
        return started

    @cached_property
    def _counted(self) -> Tensor | None:
        """1 for entries that there are, over the grid."""
        return None if self.mask is None else self.mask.double().unflatten(0, self.shape)

    def _sums(self, flat: Tensor) -> Tensor:
        return khatri_rao(self._functions(flat)).sum(dim=-1)

    def _left(self, entries: Tensor, flat: Tensor) -> Tensor:
        """What the sum of products leaves of the entries that there are."""
        left = entries - self._sums(flat)
        return left if self.mask is None else left * self.mask

    def _others(self, functions: Sequence[Tensor], *without: int) -> Tensor:
        """Products of all factors but some, over their own grid: `[problem, point, rank]`."""
        rest = [own for k, own in enumerate(functions) if k not in without]
        return khatri_rao(rest) if rest else functions[0].new_ones(len(functions[0]), 1, self.rank)

    def _paired(self, functions: Sequence[Tensor], *axes: int) -> Tensor:
        """Sums over the entries at each value of some factors of r's times s's product of the others: `[…, r, s]`."""
        if self._counted is None:
            grams = [own.mT @ own for k, own in enumerate(functions) if k not in axes]
            ones = functions[0].new_ones(len(functions[0]), self.rank, self.rank)
            return reduce(torch.mul, grams, ones)[(slice(None), *(None,) * len(axes))]
        others = self._others(functions, *axes)
        pairs = (others[..., :, None] * others[..., None, :]).flatten(-2)
        sizes = tuple(self.shape[axis] for axis in axes)
        counted = self._counted.movedim(axes, tuple(range(len(axes)))).reshape(math.prod(sizes), -1)
        return (counted @ pairs).unflatten(-1, (self.rank, self.rank)).unflatten(1, sizes)

    def _normal(self, functions: Sequence[Tensor]) -> Tensor:
        """Derivatives by all numbers times one another, summed over entries: `[problem, parameter, parameter]`."""
        count, rank = len(functions[0]), self.rank
        normal = functions[0].new_zeros(count, self.parameters, self.parameters)
        begins = [rank * sum(self.shape[:k]) for k in range(len(self.shape))]
        for i, size in enumerate(self.shape):
            own = normal[:, begins[i] : begins[i] + rank * size, begins[i] : begins[i] + rank * size]
            blocks = self._paired(functions, i).expand(count, size, rank, rank)
            own.unflatten(2, (size, rank)).unflatten(1, (size, rank)).diagonal(dim1=1, dim2=3).copy_(
                blocks.permute(0, 2, 3, 1)
            )
            for j in range(i + 1, len(self.shape)):
                weights = self._paired(functions, i, j)  # [problem, a, b, r, s]
                block = weights * functions[j][:, None, :, :, None] * functions[i][:, :, None, None, :]
                block = block.permute(0, 1, 3, 2, 4).reshape(count, rank * size, rank * self.shape[j])
                normal[:, begins[i] : begins[i] + rank * size, begins[j] : begins[j] + rank * self.shape[j]] = block
                normal[:, begins[j] : begins[j] + rank * self.shape[j], begins[i] : begins[i] + rank * size] = block.mT
        return normal

    def _gradient(self, left: Tensor, functions: Sequence[Tensor]) -> Tensor:
        """Derivatives by all numbers times what is left, summed over entries: `[problem, parameter]`."""
        grid = left.unflatten(-1, self.shape)
        parts = [
            (grid.movedim(1 + axis, 1).flatten(2) @ self._others(functions, axis)).flatten(1)
            for axis in range(len(self.shape))
        ]
        return torch.cat(parts, dim=-1)

    def _descended(self, entries: Tensor, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Steps until every problem has settled: numbers, relative errors, and whether it did."""
        count = len(entries)
        scale = entries.norm(dim=-1)
        scale = torch.where(scale > 0, scale, 1.0)
        result = flat.clone()
        losses = self._left(entries, flat).square().sum(dim=-1)
        settled = torch.zeros(count, dtype=torch.bool, device=entries.device)
        active = torch.arange(count, device=entries.device)
        damping = torch.full((count,), FIRST_DAMPING, dtype=entries.dtype, device=entries.device)
        for _ in range(self.iterations):
            tried = result[active] + self._step(entries[active], result[active], damping[active])
            new = self._left(entries[active], tried).square().sum(dim=-1)
            old = losses[active]
            better = new < old
            places = active[better]
            result[places], losses[places] = tried[better], new[better]
            damping[active] = (damping[active] * torch.where(better, LOWER, RAISE)).clamp(*DAMPINGS)
            little = better & (old - new <= self.tolerance * old)
            done = little | (damping[active] >= DAMPINGS[1]) | (losses[active].sqrt() <= 0.1 * EXACT * scale[active])
            settled[active] = done
            active = active[~done]
            if not len(active):
                break
        return result, losses.sqrt() / scale, settled

    def _step(self, entries: Tensor, flat: Tensor, damping: Tensor) -> Tensor:
        functions = self._functions(flat)
        normal = self._normal(functions)
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        mean = diagonal.mean(dim=-1, keepdim=True)
        shift = damping[:, None] * torch.where(mean > 0, mean, 1.0) + torch.finfo(entries.dtype).eps * mean
        diagonal += shift
        factor, failed = torch.linalg.cholesky_ex(normal)
        step = torch.cholesky_solve(self._gradient(self._left(entries, flat), functions)[..., None], factor)[..., 0]
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)
