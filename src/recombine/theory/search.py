"""Levenberg–Marquardt search for sums of products, for many grids of values at once.

Every problem in a batch has its own damping: a step that lowers its error is accepted and decreases the damping; any
other step is rejected and increases it. Converged problems leave the batch. The first start consists of singular
vectors of the unfolded grid, and further starts are random. Each is refined by a few sweeps of alternating least
squares, which fit the functions of one factor at a time. Sweeps are cheap and often sufficient, but alone they may take
hundreds where tens of steps suffice, and end in local optima more often. A step solves for all functions jointly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK = 4
"""Sweeps between evaluations of the squared error."""
EXACT = 1e-9
"""Relative error that counts as 0."""
SWEEPS = 24
"""Maximum number of sweeps before the first step."""
DAMPINGS = (1e-14, 1e6)
"""Bounds on the damping; a problem that reaches the upper bound has converged."""
MEMORY = 1 << 27
"""Memory budget for derivatives, in bytes."""

Found = tuple[list[Tensor], Tensor]
"""The functions `[problem, value, rank]` of every factor, and the relative errors."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Return products `[…, point, rank]` over all points, in grid order."""
    return reduce(lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).flatten(-3, -2), factors)


@dataclass(frozen=True, eq=False)
class SumOfProducts:
    """Σ_r weight_r Π_i factor_i[:, r] for every problem in a batch, largest weights first."""

    weights: Float[Tensor, "*batch rank"]
    factors: tuple[Float[Tensor, "*batch _ rank"], ...]
    """The functions of each factor."""

    @property
    def values(self) -> Float[Tensor, "*batch point"]:
        """Return the sum at every point of the grid."""
        return (khatri_rao(self.factors) * self.weights[..., None, :]).sum(dim=-1)


def ordered(weights: Tensor, factors: Sequence[Tensor], batch: Sequence[int]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sort weights in descending order and factors accordingly, and restore the batch axes."""
    weights, order = weights.sort(dim=-1, descending=True, stable=True)
    factors = [part.gather(-1, order[..., None, :].expand_as(part)) for part in factors]
    return weights.reshape(*batch, -1), tuple(part.reshape(*batch, *part.shape[-2:]) for part in factors)


@dataclass(frozen=True, eq=False)
class Problems:
    """Grids of values, possibly with missing entries."""

    shape: tuple[int, ...]
    entries: Tensor
    """`[problem, point]`, 0 for missing entries."""
    counted: Tensor | None
    """`[1, point]`: 1 for entries that are present; None if all are."""

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, places: Tensor) -> Problems:
        return Problems(self.shape, self.entries[places], self.counted)

    def unfolded(self, values: Tensor, *axes: int) -> Tensor:
        """Unfold values along some factors to `[problem, combination of these, combination of the others]`."""
        grid = values.unflatten(-1, self.shape).movedim([1 + axis for axis in axes], list(range(1, 1 + len(axes))))
        return grid.reshape(len(values), math.prod(self.shape[axis] for axis in axes), -1)

    def left(self, functions: Sequence[Tensor]) -> Tensor:
        """Return the residuals of a sum of products, 0 for missing entries."""
        left = self.entries - (khatri_rao(functions[:-1]) @ functions[-1].mT).flatten(-2)
        return left if self.counted is None else left * self.counted

    def loss(self, functions: Sequence[Tensor]) -> Tensor:
        """Return the squared error."""
        return self.left(functions).square().sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Search:
    """A search for sums of `rank` products."""

    shape: tuple[int, ...]
    rank: int
    iterations: int
    tolerance: float
    sweeps: int = SWEEPS
    enough: float = EXACT
    """Relative error at which a problem counts as solved."""

    def best(self, values: Tensor, restarts: int, mask: Tensor | None = None) -> Found:
        """Return the best of several starts for every problem, judged by the relative error within a mask."""
        counted = None if mask is None else mask.to(values)[None]
        problems = Problems(self.shape, values if counted is None else values * counted, counted)
        functions = [values.new_zeros(len(values), size, self.rank) for size in self.shape]
        error = values.new_full((len(values),), math.inf)
        generator = torch.Generator().manual_seed(0)
        # number of problems whose normal equations fit into memory
        at_once = max(1, MEMORY // (8 * (self.parameters**2 + math.prod(self.shape) * self.rank**2)))
        for start in range(restarts):
            places = torch.nonzero(error > self.enough).flatten()
            if not len(places):
                break
            # one random start for all problems, so that results do not depend on the batch
            noise = torch.randn(1, self.parameters, generator=generator, dtype=torch.float64)
            drawn = self._functions(noise.to(values) / self.rank ** (1 / len(self.shape)))
            for part in places.split(at_once):
                own = problems[part]
                began = [each.expand(len(own), -1, -1) for each in drawn] if start else self._singular(own, drawn)
                refined, remaining = self._descended(own, began)
                better = remaining < error[part]
                chosen = part[better]
                for whole, new in zip(functions, refined, strict=True):
                    whole[chosen] = new[better]
                error[chosen] = remaining[better]
        return functions, error

    @property
    def parameters(self) -> int:
        """Number of unknowns per problem."""
        return self.rank * sum(self.shape)

    def _functions(self, flat: Tensor) -> list[Tensor]:
        """Unflatten parameters to the functions `[problem, value, rank]` of each factor."""
        parts = flat.split([self.rank * size for size in self.shape], dim=-1)
        return [part.unflatten(-1, (size, self.rank)) for part, size in zip(parts, self.shape, strict=True)]

    def _singular(self, problems: Problems, drawn: Sequence[Tensor]) -> list[Tensor]:
        """Return the leading singular vectors of every unfolding plus noise, or noise alone if there are too few."""
        functions = []
        for axis, noise in enumerate(drawn):
            unfolded = problems.unfolded(problems.entries, axis)
            vectors = torch.linalg.eigh(unfolded @ unfolded.mT).eigenvectors.flip(-1)[..., : self.rank]
            more = noise[..., vectors.shape[-1] :].expand(len(problems), -1, -1)
            functions.append(torch.cat([vectors + 0.1 * noise[..., : vectors.shape[-1]], more], dim=-1))
        return functions

    def _paired(self, problems: Problems, functions: Sequence[Tensor], *axes: int) -> Tensor:
        """Return `[…, r, s]`: the sum over entries of products r times s of other factors, for each value of these."""
        rest = [own for k, own in enumerate(functions) if k not in axes]
        if problems.counted is None:
            ones = functions[0].new_ones(len(functions[0]), self.rank, self.rank)
            return reduce(torch.mul, [own.mT @ own for own in rest], ones)[(slice(None), *(None,) * len(axes))]
        others = khatri_rao(rest) if rest else functions[0].new_ones(len(functions[0]), 1, self.rank)
        pairs = (others[..., :, None] * others[..., None, :]).flatten(-2)
        summed = problems.unfolded(problems.counted, *axes) @ pairs
        return summed.unflatten(-1, (self.rank, self.rank)).unflatten(1, tuple(self.shape[axis] for axis in axes))

    def _normal(self, problems: Problems, functions: Sequence[Tensor]) -> Tensor:
        """Return the lower triangle of JᵀJ, `[problem, parameter, parameter]`."""
        count, rank = len(functions[0]), self.rank
        normal = functions[0].new_zeros(count, self.parameters, self.parameters)
        begins = [rank * sum(self.shape[:k]) for k in range(len(self.shape))]
        for i, size in enumerate(self.shape):
            own = normal[:, begins[i] : begins[i] + rank * size, begins[i] : begins[i] + rank * size]
            blocks = self._paired(problems, functions, i).expand(count, size, rank, rank)
            own.unflatten(2, (size, rank)).unflatten(1, (size, rank)).diagonal(dim1=1, dim2=3).copy_(
                blocks.permute(0, 2, 3, 1)
            )
            for j in range(i):  # a Cholesky decomposition reads the lower triangle only
                weights = self._paired(problems, functions, i, j)  # [problem, a, b, r, s]
                block = weights * functions[j][:, None, :, :, None] * functions[i][:, :, None, None, :]
                block = block.permute(0, 1, 3, 2, 4).reshape(count, rank * size, rank * self.shape[j])
                normal[:, begins[i] : begins[i] + rank * size, begins[j] : begins[j] + rank * self.shape[j]] = block
        return normal

    def _descended(self, problems: Problems, functions: Sequence[Tensor]) -> Found:
        """Run sweeps, then take steps until every problem has converged."""
        scale = problems.entries.norm(dim=-1)
        scale = torch.where(scale > 0, scale, 1.0)
        target = (self.enough if self.enough > EXACT else 0.1 * EXACT) * scale
        near, seem_done = swept(problems, functions, self.sweeps, self.tolerance)
        result = torch.cat([own.flatten(1) for own in near], dim=-1)
        losses = problems.loss(near)
        active = torch.nonzero(losses.sqrt() > target).flatten()
        damping = torch.where(seem_done, 1e-4, 0.1).to(losses)  # relative to the mean diagonal
        for _ in range(self.iterations):
            if not len(active):
                break
            own, old = problems[active], losses[active]
            tried = result[active] + self._step(own, result[active], damping[active])
            new = own.loss(self._functions(tried))
            better = new < old
            places = active[better]
            result[places], losses[places] = tried[better], new[better]
            damping[active] = (damping[active] * torch.where(better, 0.2, 4.0)).clamp(*DAMPINGS)
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
        left = problems.left(functions)
        others = [khatri_rao([*functions[:axis], *functions[axis + 1 :]]) for axis in range(len(functions))]
        parts = [(problems.unfolded(left, axis) @ rest).flatten(1) for axis, rest in enumerate(others)]
        gradient = torch.cat(parts, dim=-1)  # Jᵀ times the residuals
        step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)


def swept(
    problems: Problems, functions: Sequence[Tensor], sweeps: int, tolerance: float
) -> tuple[list[Tensor], Tensor]:
    """Return the functions after several sweeps, and which problems appear to have converged.

    The gains from sweeps decay geometrically. A problem counts as converged if the extrapolated sum of its further
    gains is below a fraction of its squared error. This is wrong on a plateau, but damped steps continue from there.
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
        done = (ratio >= 0) & (ratio < 0.5) & (now * ratio <= tolerance * new * (1 - ratio))
        settled[active] = done
        active = active[~done]
        if not len(active):
            break
    return result, settled


def _sweep_once(problems: Problems, functions: list[Tensor]) -> list[Tensor]:
    for axis in range(len(functions)):
        functions = [*functions[:axis], _fitted(problems, functions, axis), *functions[axis + 1 :]]
    # distribute the norm of each product evenly over its factors, which keeps the normal equations well conditioned
    norms = [own.norm(dim=-2, keepdim=True) for own in functions]
    share = reduce(torch.mul, norms) ** (1 / len(norms))
    return [own * (share / torch.where(norm > 0, norm, 1.0)) for own, norm in zip(functions, norms, strict=True)]


def _fitted(problems: Problems, functions: Sequence[Tensor], axis: int) -> Tensor:
    """Return the least-squares functions of one factor, given those of the others."""
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
    """Return Cholesky factors of normal equations, with a small ridge to bound functions at values with few entries."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    mean = diagonal.flatten(1).mean(dim=-1)
    shift = 1e-6 * torch.where(mean > 0, mean, 1.0)
    diagonal += shift.reshape(-1, *(1,) * (diagonal.ndim - 1))
    factor, _ = torch.linalg.cholesky_ex(normal)
    return factor
