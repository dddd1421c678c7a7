"""What is left of activations over points without their features: Gram matrices, distances, few directions (Eq. 23).

Conventions
-----------
Activations come as points × features, points in the grid's order, members in front. What is measured of a stage over a
grid of a few hundred points never needs its tens of thousands of features again once their products are known. Features
are centred first, so that nothing is lost where a stage hardly varies, and go through in parts, so that double
precision of all of them is never in memory.

`projection` takes activations to their principal directions at the points that are kept; points that are held out are
carried along and have no say. Coordinates are whitened: mean 0 and covariance 1 over the kept points. Every member has
as many directions as it needs: they hold the share of the variance that was asked for, and go on to the widest gap
before only a tenth of the rest is left. A cut between directions of about the same variance would keep mixtures of what
the factors have there, and break up the blocks of a code that has them. The eigenvectors are those of the smaller of
the two products X Xᵀ and Xᵀ X.

Known answers: points in a plane of a larger space have two directions; whitened coordinates have covariance 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

PART = 1 << 25
"""Numbers of a part of the features."""
USEFUL = 1e-12
"""Share of the largest variance that a direction has at least."""
SHARE = 0.99
"""Of the variance, that the directions hold."""
LARGEST = 32
"""Directions at most."""
TOLERANCE = 1e-8
"""Variance in a direction, as a share of that in the first, below which it is rounding error."""
FURTHER = 0.1
"""Of the variance that may be left out, that is left out at least."""
BLOCK = 4096
"""Features that are held in float64 at a time."""


def refuse_not_finite(field: str, values: Tensor) -> None:
    """Refuse NaN, infinity and tensors of no numbers: a comparison with NaN is false, and a number would come of it."""
    if not values.numel() or not bool(values.isfinite().all()):
        raise InvalidValue(field, values, "finite numbers, at least one")


def both_grams(features: Tensor) -> tuple[Tensor, Tensor]:
    """Products of all points' features less their mean over points, and of features as they are.

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
    """Between all points, from their products, centred or not."""
    square = gram.diagonal(dim1=-2, dim2=-1)
    return (square[..., :, None] + square[..., None, :] - 2 * gram).clamp(min=0)


def point_coordinates(gram: Tensor) -> Tensor:
    """Coordinates `(*member, point, direction)` of points whose products are known: all that a rotation leaves."""
    values, vectors = torch.linalg.eigh(gram)
    useful = values > USEFUL * values[..., -1:].clamp(min=torch.finfo(gram.dtype).tiny)
    directions = max(1, int(useful.sum(dim=-1).max()))
    return (vectors * torch.where(useful, values, 0.0).sqrt()[..., None, :])[..., -directions:]


@dataclass(frozen=True, eq=False)
class Projection:
    """One member's directions."""

    mean: Float[Tensor, " feature"]
    """Over the kept points."""
    directions: Float[Tensor, "feature coordinate"]
    """Principal directions over the standard deviation along them."""
    share: float
    """Of the variance at the kept points, that these directions hold."""

    def __call__(self, features: Float[Tensor, "point feature"]) -> Float[Tensor, "point coordinate"]:
        """Whitened coordinates."""
        parts = zip(features.split(BLOCK, dim=-1), self.mean.split(BLOCK), self.directions.split(BLOCK), strict=True)
        return sum((own.double() - mean) @ directions for own, mean, directions in parts)


def projection(
    features: Float[Tensor, "point feature"],
    kept: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
) -> Projection:
    """The whitening map to the directions that hold a share of the variance of some points (Eq. 23).

    Fewer where that would be more than 32 directions, or as many as kept points.

    >>> plane = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> project = projection(torch.cat([plane, plane @ torch.ones(2, 9)], dim=1))
    >>> tuple(project.directions.shape)
    (11, 2)
    """
    refuse_not_finite("features", features)
    kept = torch.ones(len(features), dtype=torch.bool) if kept is None else kept
    chosen = features[kept.to(features.device)]
    most = len(chosen) - 1
    if most < 1:
        raise InvalidValue("kept", f"{len(chosen)} points", "at least two kept points")
    most = min(LARGEST, most)
    mean = torch.cat([own.double().mean(dim=0) for own in chosen.split(BLOCK, dim=-1)])
    variances, directions = _principal(chosen, mean)
    magnitude = float(chosen.abs().max()) ** 2 * chosen.shape[-1]
    if float(variances[0]) <= torch.finfo(features.dtype).eps * TOLERANCE * magnitude:
        raise InvalidValue("features", features, "features that vary among the kept points")
    held = variances.cumsum(0) / variances.sum()
    count = min(_before_the_gap(variances, held, share), most)
    return Projection(mean, directions[:, :count] / variances[:count].sqrt(), float(held[count - 1]))


def _before_the_gap(variances: Tensor, held: Tensor, share: float) -> int:
    """Where variances fall most steeply, of the places where what is left out goes from 1 − share to a tenth of it."""
    useful = int((variances > TOLERANCE * variances[0]).sum())
    fewest, most = (
        min(int((held < least - TOLERANCE).sum()) + 1, useful) for least in (share, 1 - (1 - share) * FURTHER)
    )
    floored = torch.cat([variances, variances[:1] * 0]).clamp(min=float(TOLERANCE * variances[0]))
    falls = floored[:-1] / floored[1:]
    return fewest + int(falls[fewest - 1 : most].argmax())


def _principal(chosen: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Variances, falling, and the unit directions they belong to."""
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
