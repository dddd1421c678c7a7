"""Gram matrices, distances and principal directions of activations at a set of points (Eq. 23).

Activations are `(*member, point, feature)`, with points in grid order. A metric on a few hundred grid points needs only
the inner products of their features, not tens of thousands of features. Features are centred first, so that no
precision is lost if a stage hardly varies, and converted to double precision in chunks to save memory.

`projection` returns coordinates along the principal directions of the kept (not held-out) points, whitened to mean 0
and covariance I over these. There are enough directions to explain a given fraction of the variance. More are added up
to the widest gap in the spectrum that leaves out at least a tenth of the remainder, since cutting between directions of
similar variance would mix factors and split the blocks of a code.

Known answers: points in a plane have two directions; whitened coordinates have covariance I.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

PART = 1 << 25
"""Number of activations processed at a time."""
USEFUL = 1e-12
"""Smallest variance of a direction, relative to the largest."""
SHARE = 0.99
"""Fraction of the variance explained by the directions."""
TOLERANCE = 1e-8
"""Directions whose variance is below this fraction of the first one's are treated as rounding errors."""


def refuse_not_finite(field: str, values: Tensor) -> None:
    """Reject NaN, infinity and empty tensors, since comparisons with NaN are false and could give plausible results."""
    if not values.numel() or not bool(values.isfinite().all()):
        raise InvalidValue(field, values, "one or more finite numbers")


def both_grams(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices of the centred and the raw features.

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
    """Return the squared distances between all points from a Gram matrix."""
    square = gram.diagonal(dim1=-2, dim2=-1)
    return (square[..., :, None] + square[..., None, :] - 2 * gram).clamp(min=0)


def main_effects(features: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """Return each unit's variance over a grid, its mean at each value of each factor, and these means' variances.

    >>> variance, curves, effects = main_effects(torch.tensor([[0.0], [2.0], [2.0], [4.0]]), (2, 2))
    >>> variance.item(), [curve.flatten().tolist() for curve in curves], effects.flatten().tolist()
    (2.0, [[1.0, 3.0], [1.0, 3.0]], [1.0, 1.0])
    """
    lead = features.ndim - 2
    maps = features.double().unflatten(lead, shape)
    axes = tuple(range(lead, lead + len(shape)))
    variance = (maps - maps.mean(dim=axes, keepdim=True)).square().mean(dim=axes)
    others = [tuple(other for other in axes if other != axis) for axis in axes]
    curves = tuple(maps.mean(dim=averaged) if averaged else maps for averaged in others)
    effects = [(curve - curve.mean(dim=lead, keepdim=True)).square().mean(dim=lead) for curve in curves]
    return variance, curves, torch.stack(effects)


def point_coordinates(gram: Tensor) -> Tensor:
    """Return coordinates `(*member, point, direction)` of points with a given Gram matrix, up to a rotation."""
    values, vectors = torch.linalg.eigh(gram)
    useful = values > USEFUL * values[..., -1:].clamp(min=torch.finfo(gram.dtype).tiny)
    directions = max(1, int(useful.sum(dim=-1).max()))
    return (vectors * torch.where(useful, values, 0.0).sqrt()[..., None, :])[..., -directions:]


def projection(
    features: Float[Tensor, "point feature"],
    kept: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
) -> Float[Tensor, "point coordinate"]:
    """Return whitened coordinates along the directions that explain a fraction of the variance at kept points (Eq. 23).

    There are at most 32 directions, and fewer directions than kept points (default: all points are kept).

    >>> plane = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> tuple(projection(torch.cat([plane, plane @ torch.ones(2, 9)], dim=1)).shape)
    (50, 2)
    """
    refuse_not_finite("features", features)
    kept = torch.ones(len(features), dtype=torch.bool) if kept is None else kept.cpu()
    if int(kept.sum()) < 2:
        raise InvalidValue("kept", f"{int(kept.sum())} points", "at least two kept points")
    magnitude = float(features[kept].abs().max()) ** 2 * features.shape[-1]
    values = features.double() if features.shape[-1] <= len(features) else point_coordinates(both_grams(features)[0])
    mean = values[kept].mean(dim=0)
    centred = values[kept] - mean
    variances, directions = torch.linalg.eigh(centred.mT @ centred / len(centred))
    variances, directions = variances.flip(0).clamp(min=0), directions.flip(1)
    if float(variances[0]) <= torch.finfo(features.dtype).eps * TOLERANCE * magnitude:
        raise InvalidValue("features", features, "features that vary among the kept points")
    held = variances.cumsum(0) / variances.sum()
    count = min(_before_the_gap(variances, held, share), 32, len(centred) - 1)
    return (values - mean) @ (directions[:, :count] / variances[:count].sqrt())


def _before_the_gap(variances: Tensor, held: Tensor, share: float) -> int:
    """Return the number of directions before the steepest drop that leaves out (1 − share) / 10 to 1 − share."""
    useful = int((variances > TOLERANCE * variances[0]).sum())
    fewest, most = (min(int((held < least - TOLERANCE).sum()) + 1, useful) for least in (share, 1 - 0.1 * (1 - share)))
    floored = torch.cat([variances, variances[:1] * 0]).clamp(min=float(TOLERANCE * variances[0]))
    falls = floored[:-1] / floored[1:]
    return fewest + int(falls[fewest - 1 : most].argmax())
