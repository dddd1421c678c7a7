"""Activations in the few directions that hold most of their variance (Eq. 23).

Conventions
-----------
Activations come as points × features, points in the grid's order, members in front. The principal directions are those
of the points that are kept; points that are held out are carried along and have no say. Coordinates are whitened: mean
0 and covariance 1 over the kept points. Every member has as many directions as it needs: they hold the share of the
variance that was asked for, and go on to the widest gap before only a tenth of the rest is left. A cut between
directions of about the same variance would keep mixtures of what the factors have there, and break up the blocks of a
code that has them.

The eigenvectors are those of the smaller of the two products X Xᵀ and Xᵀ X, so that tens of thousands of features at
some hundred points cost little; both are summed in float64 over blocks of features.

Known answers: points in a plane of a larger space have two directions; whitened coordinates have covariance 1; the
coordinates give back the activations that lie in the directions kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, number, whole_number
from recombine.errors import InvalidValue

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


@dataclass(frozen=True, eq=False)
class Projection:
    """One member's directions."""

    mean: Float[Tensor, " feature"]
    """Over the kept points."""
    directions: Float[Tensor, "feature coordinate"]
    """Principal directions over the standard deviation along them."""
    scale: Float[Tensor, " coordinate"]
    """Standard deviation along each direction."""
    share: float
    """Of the variance at the kept points, that these directions hold."""

    def __call__(self, features: Float[Tensor, "point feature"]) -> Float[Tensor, "point coordinate"]:
        """Whitened coordinates."""
        parts = zip(features.split(BLOCK, dim=-1), self.mean.split(BLOCK), self.directions.split(BLOCK), strict=True)
        return sum((own.double() - mean) @ directions for own, mean, directions in parts)

    def inverse(self, coordinates: Float[Tensor, "point coordinate"]) -> Float[Tensor, "point feature"]:
        """The activations in these directions that have such coordinates."""
        return self.mean + (coordinates * self.scale**2) @ self.directions.mT


@checked
def projection(
    features: Float[Tensor, "point feature"],
    kept: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
    largest: int | None = None,
) -> Projection:
    """The directions that hold a share of the variance of some points (Eq. 23).

    Parameters
    ----------
    features
        Activations of one member.
    kept
        Points that the directions are fitted to; all by default.
    share
        Of the variance, that the directions hold at least, unless there would be too many.
    largest
        Directions at most; 32 by default, or one less than there are points.

    Returns
    -------
    Projection
        A map from activations to whitened coordinates, and back.

    Examples
    --------
    >>> plane = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> project = projection(torch.cat([plane, plane @ torch.ones(2, 9)], dim=1))
    >>> tuple(project.directions.shape)
    (11, 2)
    """
    finite("features", features)
    number("share", share, above=0, at_most=1)
    kept = torch.ones(len(features), dtype=torch.bool) if kept is None else kept
    chosen = features[kept.to(features.device)]
    most = len(chosen) - 1
    if most < 1:
        raise InvalidValue("held_out", f"{len(chosen)} points kept", "at least two points that are kept")
    most = min(LARGEST, most) if largest is None else whole_number("largest", largest, at_most=most)
    mean = torch.cat([own.double().mean(dim=0) for own in chosen.split(BLOCK, dim=-1)])
    variances, directions = _principal(chosen, mean)
    magnitude = float(chosen.abs().max()) ** 2 * chosen.shape[-1]
    if float(variances[0]) <= torch.finfo(features.dtype).eps * TOLERANCE * magnitude:
        raise InvalidValue("features", features, "features that vary among the kept points")
    held = variances.cumsum(0) / variances.sum()
    count = min(_before_the_gap(variances, held, share), most)
    scale = variances[:count].sqrt()
    return Projection(mean, directions[:, :count] / scale, scale, float(held[count - 1]))


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
