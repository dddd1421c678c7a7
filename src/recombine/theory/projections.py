"""Gram matrices, distances and principal directions of activations over points (Eq. 23).

Conventions
-----------
Activations are `(*member, point, feature)`, points in the grid's order. A metric over a few hundred grid points needs
only the products of their features, not tens of thousands of features. Features are centred first, so that no precision
is lost if a stage hardly varies, and processed in parts, so that they are never all in memory in double precision.

`projection` maps activations to their principal directions over the kept points; held-out points are mapped, but do not
affect it. Coordinates are whitened: mean 0 and covariance 1 over the kept points. The number of directions holds a
given fraction of the variance, and is increased up to the widest gap in the spectrum that leaves out at least a tenth
of the remainder: a cut between directions of similar variance would keep mixtures of the factors and break up the
blocks of a code. The eigenvectors are those of the smaller of X Xᵀ and Xᵀ X.

Known answers: points in a plane of a larger space have two directions; whitened coordinates have covariance 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

PART = 1 << 25
"""Number of activations that are processed at a time."""
USEFUL = 1e-12
"""Smallest variance of a direction, relative to the largest."""
SHARE = 0.99
"""Fraction of the variance that the directions hold."""
LARGEST = 32
"""Maximum number of directions."""
TOLERANCE = 1e-8
"""Variance of a direction, relative to that of the first, below which it is rounding error."""
FURTHER = 0.1
"""Fraction of the variance that may be left out which is left out at least."""
BLOCK = 4096
"""Number of features in float64 at a time."""


def refuse_not_finite(field: str, values: Tensor) -> None:
    """Refuse NaN, infinity and empty tensors: comparisons with NaN are false and would give plausible numbers."""
    if not values.numel() or not bool(values.isfinite().all()):
        raise InvalidValue(field, values, "finite numbers, at least one")


def both_grams(features: Tensor) -> tuple[Tensor, Tensor]:
    """Gram matrices of the centred and of the raw features.

    >>> [gram.tolist() for gram in both_grams(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))]
    [[[1.0, -1.0], [-1.0, 1.0]], [[26.0, 28.0], [28.0, 34.0]]]
    """
    refuse_not_finite("features", features)
    *lead, points, count = features.shape
    gram = torch.zeros(*lead, points, points, dtype=torch.float64, device=features.device)
    with_mean, square = torch.zeros_like(gram[..., 0]), torch.zeros_like(gram[..., 0, 0])
    for part in features.split(max(1, PART // max(1, features.numel() // count)), dim=-1):
        centred = part.to(torch.float64, copy=True)
        mean = centred.mean(dim=-2, keepdim=True)
        centred -= mean
        gram += centred @ centred.mT
        with_mean += (centred @ mean.mT)[..., 0]
        square += mean.square().sum(dim=(-2, -1))
    return gram, gram + with_mean[..., :, None] + with_mean[..., None, :] + square[..., None, None]


def squared_distances(gram: Tensor) -> Tensor:
    """Squared distances between all points, from a Gram matrix."""
    square = gram.diagonal(dim1=-2, dim2=-1)
    return (square[..., :, None] + square[..., None, :] - 2 * gram).clamp(min=0)


def point_coordinates(gram: Tensor) -> Tensor:
    """Coordinates `(*member, point, direction)` of points with a given Gram matrix, up to a rotation."""
    values, vectors = torch.linalg.eigh(gram)
    useful = values > USEFUL * values[..., -1:].clamp(min=torch.finfo(gram.dtype).tiny)
    directions = max(1, int(useful.sum(dim=-1).max()))
    return (vectors * torch.where(useful, values, 0.0).sqrt()[..., None, :])[..., -directions:]


@dataclass(frozen=True, eq=False)
class Projection:
    """The whitening map of one member."""

    mean: Float[Tensor, " feature"]
    """Mean over the kept points."""
    directions: Float[Tensor, "feature coordinate"]
    """Principal directions divided by the standard deviation along them."""
    share: float
    """Fraction of the variance at the kept points that these directions hold."""

    def __call__(self, features: Float[Tensor, "point feature"]) -> Float[Tensor, "point coordinate"]:
        """The whitened coordinates of activations."""
        parts = zip(features.split(BLOCK, dim=-1), self.mean.split(BLOCK), self.directions.split(BLOCK), strict=True)
        return sum((own.double() - mean) @ directions for own, mean, directions in parts)


def projection(
    features: Float[Tensor, "point feature"],
    kept: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
) -> Projection:
    """The whitening map to the directions that hold a fraction of the variance of the kept points (Eq. 23).

    There are at most 32 directions, and fewer than kept points.

    >>> plane = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> project = projection(torch.cat([plane, plane @ torch.ones(2, 9)], dim=1))
    >>> tuple(project.directions.shape)
    (11, 2)
    """
    refuse_not_finite("features", features)
    kept = torch.ones(len(features), dtype=torch.bool) if kept is None else kept
    chosen = features[kept.to(features.device)]
    if len(chosen) < 2:
        raise InvalidValue("kept", f"{len(chosen)} points", "at least two kept points")
    mean = torch.cat([own.double().mean(dim=0) for own in chosen.split(BLOCK, dim=-1)])
    variances, directions = _principal(chosen, mean)
    magnitude = float(chosen.abs().max()) ** 2 * chosen.shape[-1]
    if float(variances[0]) <= torch.finfo(features.dtype).eps * TOLERANCE * magnitude:
        raise InvalidValue("features", features, "features that vary among the kept points")
    held = variances.cumsum(0) / variances.sum()
    count = min(_before_the_gap(variances, held, share), LARGEST, len(chosen) - 1)
    return Projection(mean, directions[:, :count] / variances[:count].sqrt(), float(held[count - 1]))


def _before_the_gap(variances: Tensor, held: Tensor, share: float) -> int:
    """The cut at the steepest fall of variances, among cuts that leave out between 1 − share and a tenth of it."""
    useful = int((variances > TOLERANCE * variances[0]).sum())
    fewest, most = (
        min(int((held < least - TOLERANCE).sum()) + 1, useful) for least in (share, 1 - (1 - share) * FURTHER)
    )
    floored = torch.cat([variances, variances[:1] * 0]).clamp(min=float(TOLERANCE * variances[0]))
    falls = floored[:-1] / floored[1:]
    return fewest + int(falls[fewest - 1 : most].argmax())


def _principal(chosen: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Principal variances in descending order, and their unit directions."""
    blocks = list(zip(chosen.split(BLOCK, dim=-1), mean.split(BLOCK), strict=True))
    points, features = chosen.shape
    if features <= points:
        centred = chosen.double() - mean
        variances, directions = torch.linalg.eigh(centred.mT @ centred / points)
        return variances.flip(0).clamp(min=0), directions.flip(1)
    gram = sum((centred @ centred.mT for own, at in blocks for centred in [own.double() - at]), torch.zeros(()))
    variances, weights = torch.linalg.eigh(gram / points)
    variances, weights = variances.flip(0).clamp(min=0), weights.flip(1)
    useful = variances > TOLERANCE * variances[0].clamp(min=torch.finfo(torch.float64).tiny)
    useful[0] = True
    scaled = weights[:, useful] / (points * variances[useful].clamp(min=torch.finfo(torch.float64).tiny)).sqrt()
    return variances, torch.cat([(own.double() - at).mT @ scaled for own, at in blocks])
