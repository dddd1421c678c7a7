"""Gram matrices of representations over points, and distances from them: all that rotations leave of a representation.

What is measured of a stage over a grid of a few hundred points never needs its tens of thousands of features again once
their products are known. Features are centred first, so that nothing is lost where a stage hardly varies, and go
through in parts, so that double precision of all of them is never in memory.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked, finite

PART = 1 << 25
"""Numbers of a part of the features."""
USEFUL = 1e-12
"""Share of the largest variance that a direction has at least."""


@checked
def centred_gram(features: Float[Tensor, "*member point feature"]) -> Float[Tensor, "*member point point"]:
    """Products of all points' features, less their mean over points.

    Parameters
    ----------
    features
        A stage's activations.

    Returns
    -------
    Tensor
        In double precision.

    Examples
    --------
    >>> centred_gram(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    return both_grams(features)[0]


def both_grams(features: Tensor) -> tuple[Tensor, Tensor]:
    """Products of features less their mean over points, and of features as they are."""
    finite("features", features)
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
