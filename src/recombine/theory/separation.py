"""The linear map that separates activations into blocks of coordinates, one per factor (Eq. 24), and its score.

Coordinates α·Uᵀ = [β₁(x₁), …, β_N(x_N)] with U invertible exist just when α is a sum of one function per factor whose
values span subspaces that share no direction. Let C_i be the covariance of what factor i adds, over its values, and W
that of what no sum explains. Whitened by S = Σ C_i + W, the C_i are then orthogonal projectors that sum to the identity
and the blocks are their ranges. In general the map sought is the rotation whose coordinates are best explained by one
factor each: the largest Σ_k u_kᵀ C_b(k) u_k. For two factors that is Σ|eigenvalues of C₁ − C₂| plus a constant, and the
eigenvectors attain it; for more, the eigenvectors of Σ i·C_i are exact where the C_i are projectors, and polar steps,
none of which lowers the sum, go on from those of the best order to an optimum that may be a local one. (Joint
diagonalisation by Jacobi angles is exact in the same cases, and optimises something else in all others.)

Coordinates that factor i explains best make up block i. They are predicted at held-out points by the mean of the kept
points that have the same value of factor i; the score is the mean over coordinates of the share R² of their variance
about the kept mean, at the held-out points, that is so predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recombine.theory.designs import Design

POLAR_STEPS = 20
RIDGE = 1e-9
"""Share of the mean variance that is added to what is whitened."""
STILL = 0.1
"""Share of its variance over all points; a coordinate that varies less at the held-out points is held to the former."""


@dataclass(frozen=True, eq=False)
class Separation:
    """A linear map to blocks of coordinates, one per member."""

    rotation: Tensor
    """`[member, input, coordinate]`, invertible."""
    block: Tensor
    """`[member, coordinate]`: the group that explains it best."""
    explained: Tensor
    """`[member, coordinate]`: share of its variance at the kept points that this group explains."""


def separate(coordinates: Tensor, design: Design) -> Separation:
    """The map for members × points × coordinates, of which the kept points count."""
    factor, covariances = whitened_effects(coordinates[:, design.kept], design)
    rotation = best_rotation(covariances)
    explained, block = explained_shares(covariances, rotation).max(dim=1)
    return Separation(torch.linalg.solve_triangular(factor.mT, rotation, upper=True), block, explained)


def whitened_effects(kept: Tensor, design: Design) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of S, and for each member and group the whitened covariance of what the group adds."""
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
    """For each member the orthonormal coordinates `[input, coordinate]` best explained by one group each."""
    covariances = covariances.detach().nan_to_num()
    groups = covariances.shape[1]
    if groups <= 2:
        return torch.linalg.eigh(covariances[:, 0] - covariances[:, -1])[1]
    weights = torch.arange(groups, dtype=covariances.dtype, device=covariances.device)
    orders = torch.stack([weights.roll(shift) for shift in range(groups)])
    starts = torch.linalg.eigh(torch.einsum("sg,mgij->smij", orders, covariances))[1]
    explained = torch.stack([explained_shares(covariances, own).amax(dim=1).sum(dim=-1) for own in starts])
    rotation = starts[explained.argmax(dim=0), torch.arange(len(covariances), device=covariances.device)]
    for _ in range(POLAR_STEPS):
        rotation = polar_step(covariances, rotation)
    return rotation


def polar_step(covariances: Tensor, rotation: Tensor) -> Tensor:
    """A rotation whose coordinates are explained no worse."""
    block = explained_shares(covariances, rotation).argmax(dim=1)
    images = covariances @ rotation[:, None]
    u, _, vh = torch.linalg.svd(of_block(images, block) + RIDGE * rotation, full_matrices=False)
    return u @ vh


def explained_shares(covariances: Tensor, rotation: Tensor) -> Tensor:
    """`[member, group, coordinate]`: share of each coordinate's variance that each group explains."""
    return (rotation[:, None] * (covariances @ rotation[:, None])).sum(dim=-2)


def predicted(kept: Tensor, block: Tensor, design: Design, labels: Tensor) -> Tensor:
    """Coordinates where groups have some values: each the mean of the kept points with the value of its own group."""
    parts = [
        (operator.to(kept.dtype) @ kept)[:, own] for operator, own in zip(design.means, labels, strict=True)
    ]  # fmt: skip
    return of_block(torch.stack(parts, dim=1), block)


def of_block(values: Tensor, block: Tensor) -> Tensor:
    """Of `[member, group, …, coordinate]`, for each coordinate that of the group it belongs to."""
    index = block.reshape(len(block), *[1] * (values.ndim - 2), -1)
    return values.gather(1, index.expand(-1, 1, *values.shape[2:]))[:, 0]


def share_predicted(coordinates: Tensor, prediction: Tensor, design: Design) -> Tensor:
    """Of each member: mean over coordinates of R² at the scored points."""
    centred = coordinates - coordinates[:, design.kept].mean(dim=1, keepdim=True)
    held_out = centred[:, design.scored].square().mean(dim=1)
    everywhere = centred.square().mean(dim=1)
    variance = torch.where(held_out < STILL * everywhere, everywhere, held_out)
    error = (coordinates[:, design.scored] - prediction).square().mean(dim=1)
    return (1 - error / variance).mean(dim=-1).nan_to_num(nan=-torch.inf)  # of a map that went astray
