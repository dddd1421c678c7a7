"""Linear separation of activations into blocks of coordinates, one per factor (Eq. 24), and its score.

A *group* is a set of factors (possibly a single one) that acts as one factor, whose values are combinations of theirs.
A held-out point is scored if every group's value there also occurs at a kept point. If points are missing, the mean for
a value of one factor is confounded by the other factors, so `Design.effects` is the least-squares fit of a sum of one
function per group, each with mean 0 over its values.

Coordinates α·Uᵀ = [β₁(x₁), …, β_N(x_N)] with invertible U exist if and only if α is a sum of one function per factor
and their values span subspaces that share no direction. Let C_i be the covariance of the contribution of factor i over
its values, and W that of the residual. Whitened by S = Σ C_i + W, the C_i are then orthogonal projectors that sum to
the identity, and the blocks are their ranges. In general we seek the rotation whose coordinates are best explained by
one factor each, the maximum of Σ_k u_kᵀ C_b(k) u_k. For two factors this is Σ|eigenvalues of C₁ − C₂| plus a constant,
attained by the eigenvectors; for more factors, the eigenvectors of Σ i·C_i are exact if the C_i are projectors. In
general, polar steps, which never lower the sum, lead from the best ordering of factors to a (possibly local) optimum.

Block i consists of the coordinates best explained by factor i. They are predicted at held-out points by the mean of the
kept points with the same value of factor i; the score is the mean over coordinates of R² at the held-out points.

Known answers: the effects of a sum of functions are these functions, even if points are missing; a random hold-out
contains a fifth of the points and keeps every value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

import numpy as np
import torch
from torch import Tensor

from recombine.errors import InvalidValue

UNKNOWN = -1
"""Label of a value that does not occur at any kept point."""
RIDGE = 1e-9
"""Ridge for whitening, relative to the mean variance."""


@dataclass(frozen=True, eq=False)
class Design:
    """Values of each group at the points of a grid, and which points are kept and scored."""

    labels: Tensor
    """`[group, point]`: index of the group's value among its kept values; −1 if it is not kept."""
    kept: Tensor
    """`[point]`."""
    scored: Tensor
    """`[point]`: held-out points whose values all occur at kept points."""

    @classmethod
    def of(cls, shape: Sequence[int], kept: Tensor, groups: Sequence[Sequence[int]] | None = None) -> Design:
        """Return the design of a grid whose factors act separately or in groups."""
        cells = [cell_numbers(shape, group) for group in groups or [(factor,) for factor in range(len(shape))]]
        return cls.from_cells(torch.stack(cells), kept, ~kept)

    @classmethod
    def from_cells(cls, cells: Tensor, kept: Tensor, others: Tensor) -> Design:
        """Return the design for arbitrarily numbered group values, scored at the other points whose values are kept."""
        labels = torch.full_like(cells, UNKNOWN)
        for group, own in enumerate(cells):
            for number, cell in enumerate(own[kept].unique().tolist()):
                labels[group, own == cell] = number
        return cls(labels, kept, others & (labels >= 0).all(dim=0))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of kept values of each group."""
        return tuple((self.labels.amax(dim=1) + 1).tolist())

    @cached_property
    def membership(self) -> tuple[Tensor, ...]:
        """For each group `[kept point, value]`: 1 if the point has the value."""
        own = self.labels[:, self.kept]
        return tuple(
            torch.nn.functional.one_hot(label, count).double() for label, count in zip(own, self.counts, strict=True)
        )

    @cached_property
    def means(self) -> tuple[Tensor, ...]:
        """For each group `[value, kept point]`: the operator that averages the kept points with that value."""
        return tuple((own / own.sum(dim=0)).T for own in self.membership)

    @cached_property
    def effects(self) -> tuple[Tensor, ...]:
        """For each group `[value, kept point]`: the operator for its function in the best-fitting sum over groups."""
        parts = torch.linalg.pinv(self._columns)[1:].split(self.counts)
        return tuple(own - own.mean(dim=0) for own in parts)

    @cached_property
    def fitted(self) -> int:
        """Degrees of freedom of a sum of one function per group."""
        return int(torch.linalg.matrix_rank(self._columns))

    @property
    def _columns(self) -> Tensor:
        own = self.membership
        return torch.cat([torch.ones_like(own[0][:, :1]), *own], dim=1)

    def on(self, device: torch.device) -> Design:
        """Return the design on a device."""
        return Design(*(tensor.to(device) for tensor in (self.labels, self.kept, self.scored)))


def cell_numbers(shape: Sequence[int], group: Sequence[int]) -> Tensor:
    """Return the index of the combination of a group's values at every point of a grid."""
    positions = np.indices(shape).reshape(len(shape), -1)
    return torch.from_numpy(np.ravel_multi_index(positions[list(group)], [shape[factor] for factor in group]))


def kept_points(shape: Sequence[int], held_out: Tensor | None, seed: int = 0) -> Tensor:
    """Return a mask of the points that are not held out (default: a random four fifths); it must cover every value."""
    factors = range(len(shape))
    single = torch.stack([cell_numbers(shape, (factor,)) for factor in factors])
    if held_out is None:
        proper = chain.from_iterable(combinations(factors, size) for size in range(2, min(len(shape), 5)))
        larger = [cells for cells in (cell_numbers(shape, group) for group in proper) if cells.bincount().min() > 1]
        held_out = random_points(torch.stack([*single, *larger]), 0.2, seed)
    kept = ~held_out.cpu()
    if bool(kept.all()):
        raise InvalidValue("held_out", "no point", "a mask with at least one held-out point")
    for factor, own in enumerate(single):
        missing = sorted(set(range(shape[factor])) - set(own[kept].tolist()))
        if missing:
            given = f"every point with value {missing[0]} of factor {factor}"
            raise InvalidValue("held_out", given, "a mask that keeps a point for every value")
    return kept


def random_points(cells: Tensor, share: float, seed: int) -> Tensor:
    """Select at most a given fraction of the points at random, such that every cell `[group, point]` keeps a point."""
    order = torch.randperm(cells.shape[1], generator=torch.Generator().manual_seed(seed))
    budget = max(1, math.floor(share * len(order)))
    groups = [(own.tolist(), own.bincount().tolist()) for own in cells]
    chosen = torch.zeros(len(order), dtype=torch.bool)
    for point in order.tolist():
        if budget and all(left[own[point]] > 1 for own, left in groups):
            chosen[point] = True
            budget -= 1
            for own, left in groups:
                left[own[point]] -= 1
    return chosen


def separate(coordinates: Tensor, design: Design) -> tuple[Tensor, Tensor]:
    """Return an invertible map `[member, input, coordinate]` to blocks, and the blocks as `[member, coordinate]`.

    The map is fitted to the kept points. A coordinate's block is the group that explains it best.
    """
    factor, covariances = whitened_effects(coordinates[:, design.kept], design)
    rotation = best_rotation(covariances)
    block = explained_shares(covariances, rotation).argmax(dim=1)
    return torch.linalg.solve_triangular(factor.mT, rotation, upper=True), block


def whitened_effects(kept: Tensor, design: Design) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of S and the whitened covariance of each group's effects, for each member."""
    left = kept - kept.mean(dim=1, keepdim=True)
    covariances = []
    for operator, labels in zip(design.effects, design.labels[:, design.kept], strict=True):
        effects = operator.to(kept.dtype) @ kept
        covariances.append(effects.mT @ effects / len(operator))
        left = left - effects[:, labels]
    left = left - left.mean(dim=1, keepdim=True)
    within = left.mT @ left / max(kept.shape[1] - design.fitted, 1)
    stacked = torch.stack(covariances, dim=1)
    total = stacked.sum(dim=1) + within
    mean = total.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    ridge = max(RIDGE, 10 * torch.finfo(kept.dtype).eps) * torch.eye(
        kept.shape[-1], dtype=kept.dtype, device=kept.device
    )
    factor = torch.linalg.cholesky_ex(total + mean * ridge)[0]
    half = torch.linalg.solve_triangular(factor[:, None], stacked, upper=False)
    return factor, torch.linalg.solve_triangular(factor[:, None], half.mT, upper=False)


def best_rotation(covariances: Tensor) -> Tensor:
    """Return orthonormal coordinates `[member, input, coordinate]` that are each best explained by one group."""
    covariances = covariances.detach().nan_to_num()
    groups = covariances.shape[1]
    if groups <= 2:
        return torch.linalg.eigh(covariances[:, 0] - covariances[:, -1])[1]
    weights = torch.arange(groups, dtype=covariances.dtype, device=covariances.device)
    orders = torch.stack([weights.roll(shift) for shift in range(groups)])
    starts = torch.linalg.eigh(torch.einsum("sg,mgij->smij", orders, covariances))[1]
    explained = torch.stack([explained_shares(covariances, own).amax(dim=1).sum(dim=-1) for own in starts])
    rotation = starts[explained.argmax(dim=0), torch.arange(len(covariances), device=covariances.device)]
    for _ in range(20):
        rotation = polar_step(covariances, rotation)
    return rotation


def polar_step(covariances: Tensor, rotation: Tensor) -> Tensor:
    """Take a polar step to a rotation whose coordinates are explained at least as well."""
    block = explained_shares(covariances, rotation).argmax(dim=1)
    images = covariances @ rotation[:, None]
    u, _, vh = torch.linalg.svd(of_block(images, block) + RIDGE * rotation, full_matrices=False)
    return u @ vh


def explained_shares(covariances: Tensor, rotation: Tensor) -> Tensor:
    """Return `[member, group, coordinate]`, the fraction of each coordinate's variance explained by each group."""
    return (rotation[:, None] * (covariances @ rotation[:, None])).sum(dim=-2)


def predicted(kept: Tensor, block: Tensor, design: Design, labels: Tensor) -> Tensor:
    """Predict coordinates from labels, as the mean over kept points with the same value of the coordinate's group."""
    parts = [
        (operator.to(kept.dtype) @ kept)[:, own] for operator, own in zip(design.means, labels, strict=True)
    ]  # fmt: skip
    return of_block(torch.stack(parts, dim=1), block)


def of_block(values: Tensor, block: Tensor) -> Tensor:
    """Return, for each coordinate, the entry for its group in `[member, group, …, coordinate]`."""
    index = block.reshape(len(block), *[1] * (values.ndim - 2), -1)
    return values.gather(1, index.expand(-1, 1, *values.shape[2:]))[:, 0]


def share_predicted(coordinates: Tensor, prediction: Tensor, design: Design) -> Tensor:
    """Return R² at the scored points, averaged over coordinates, for each member."""
    centred = coordinates - coordinates[:, design.kept].mean(dim=1, keepdim=True)
    held_out = centred[:, design.scored].square().mean(dim=1)
    everywhere = centred.square().mean(dim=1)
    # use the variance at all points if that at held-out points is less than a tenth of it
    variance = torch.where(held_out < 0.1 * everywhere, everywhere, held_out)
    error = (coordinates[:, design.scored] - prediction).square().mean(dim=1)
    return (1 - error / variance).mean(dim=-1).nan_to_num(nan=-torch.inf)  # NaN if a flow diverged
