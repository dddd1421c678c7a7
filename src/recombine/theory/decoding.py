"""Decoders from the Gram matrix of points, all cross-validated at once: squared errors of each one at each point.

Conventions
-----------
A family is kernel ridge regression with an intercept that costs nothing: linear (ridge on principal components), and
Gaussian of widths relative to the median distance between points. Ridges are relative to the mean of the centred
kernel's diagonal. With G = (K + λ)⁻¹ and P = G − G 1 1ᵀ G / (1ᵀ G 1), points F that a fit leaves out are predicted with
errors (P_FF)⁻¹ (P v)_F: leaving a fold out takes no fit of its own. The other family is the mean of nearest neighbours.

Widths and ridges are scaled by all points, whose values they never see.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from recombine.theory.point_grams import squared_distances

WIDTHS = (0.25, 0.5, 1.0, 2.0)
"""Of Gaussian kernels, in medians of the distance between points."""
RIDGES = (1e-6, 1e-3, 1.0, 1e3)
"""The last one leaves little but the mean: what a decoder says of a factor that is gone."""
LEAST = 1e-9
"""Smallest damping of a kernel whose diagonal is about 1, so that one that does not vary has an inverse too."""
NEIGHBOURS = (1, 3, 5)


def left_out_errors(gram: Tensor, values: Tensor, folds: list[Tensor]) -> Tensor:
    """Squared errors `(decoder, *member, point, factor)` of values `(point, factor)` at points, their fold left out.

    The Gram matrix has a diagonal of mean 1, or is 0.
    """
    return torch.stack([*_ridges(gram, values, folds), *_neighbours(gram, values, folds)])


def _kernels(gram: Tensor) -> Iterator[Tensor]:
    yield gram
    squared = squared_distances(gram)
    points = gram.shape[-1]
    pairs = torch.triu_indices(points, points, 1, device=gram.device)
    median = squared[..., pairs[0], pairs[1]].median(dim=-1).values[..., None, None]
    unit = torch.where(median > 0, median, squared.mean(dim=(-2, -1), keepdim=True))
    for width in WIDTHS:
        yield torch.exp(-squared / (2 * width**2 * torch.where(unit > 0, unit, 1.0)))


def _ridges(gram: Tensor, values: Tensor, folds: list[Tensor]) -> Iterator[Tensor]:
    points = gram.shape[-1]
    identity = torch.eye(points, dtype=gram.dtype, device=gram.device)
    for kernel in _kernels(gram):
        varying = kernel.diagonal(dim1=-2, dim2=-1).mean(dim=-1) - kernel.mean(dim=(-2, -1))
        for ridge in RIDGES:
            damping = (ridge * varying).clamp(min=LEAST)[..., None, None]
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel + damping * identity))
            sums = inverse.sum(dim=-1, keepdim=True)
            smoother = inverse - sums @ sums.mT / sums.sum(dim=-2, keepdim=True)
            weighted = smoother @ values
            errors = torch.empty_like(weighted)
            for fold in folds:
                own = smoother[..., fold, :][..., fold]
                errors[..., fold, :] = torch.linalg.solve(own, weighted[..., fold, :]).square()
            yield errors


def _neighbours(gram: Tensor, values: Tensor, folds: list[Tensor]) -> Iterator[Tensor]:
    squared = squared_distances(gram)
    for fold in folds:
        squared[..., fold[:, None], fold] = torch.inf
    most = min(max(NEIGHBOURS), gram.shape[-1] - max(map(len, folds)))
    nearest = squared.topk(most, dim=-1, largest=False).indices
    running = values[nearest].cumsum(dim=-2)
    for count in NEIGHBOURS:
        used = min(count, most)
        yield (values - running[..., used - 1, :] / used).square()
