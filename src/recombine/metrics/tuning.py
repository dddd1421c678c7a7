"""Tuning of a stage's neurons, and bands in images (Appendix E.4; Fig. 3b, 4e–f, 6, 15).

A neuron's map is its activation over the factor grid; its tuning curve for a factor is the map's mean over all other
factors. The fraction of the map's variance due to the largest main effect is the `stripe_index`, and that due to all
interactions the `localisation_index`. Both are NaN for neurons with a constant map, which are left out of stage means.

The *profile* of an image along an axis is its mean over the other one, with a value per row for axis 0 (horizontal
bands) and a value per column for axis 1 (vertical bands). The band index is the fraction of the variance that the
better profile explains: 1 for a band, near 1/side for noise, about ½ or less for a bump.

Known answers: a band drawn at each value's coordinate is aligned regardless of its polarity, as is a pair of a dark and
a bright flank around it; a band along the wrong axis is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.metrics.registry import Column, Stage, stage_metric
from recombine.theory.projections import main_effects


@dataclass(frozen=True)
class Tuning:
    """Tuning curves and indices of every neuron of a stage."""

    curves: tuple[Float[Tensor, "*member _ feature"], ...]
    """For each factor, the mean activation at each value."""
    stripe_index: Float[Tensor, "*member feature"]
    localisation_index: Float[Tensor, "*member feature"]


def neuron_tuning(activations: Float[Tensor, "*member point feature"], shape: tuple[int, ...]) -> Tuning:
    """Return the tuning curves and indices of every neuron of a stage over a grid.

    >>> stripe = torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None]
    >>> tuned = neuron_tuning(stripe, (2, 2))
    >>> tuned.stripe_index.item(), tuned.localisation_index.item()
    (1.0, 0.0)
    """
    variance, curves, effects = main_effects(activations, shape)
    alive = variance > 1e-12 * variance.amax(dim=-1, keepdim=True)  # up to rounding
    shares = effects / torch.where(alive, variance, torch.nan)
    return Tuning(curves, shares.amax(dim=0), (1 - shares.sum(dim=0)).clamp(min=0))


def band_index(images: Float[Tensor, "*shape y x"]) -> Float[Tensor, "*shape"]:
    """Return the fraction of an image's variance along one axis alone; NaN for a constant image.

    >>> band_index(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).item()
    1.0
    """
    image = images.double()
    variance = image.var(dim=(-2, -1), correction=0)
    rows = image.mean(dim=-1).var(dim=-1, correction=0)
    columns = image.mean(dim=-2).var(dim=-1, correction=0)
    return torch.maximum(rows, columns) / torch.where(variance > 0, variance, torch.nan)


@dataclass(frozen=True)
class Band:
    """The strongest band in every image."""

    axis: Int[Tensor, "*shape"]
    """0 for a band at a row, 1 for a band at a column."""
    position: Float[Tensor, "*shape"]
    """Row or column of the band; a half-integer if the band is an even number of pixels wide."""
    strength: Float[Tensor, "*shape"]
    """The image's `band_index`; NaN for a constant image."""


def band_position(images: Float[Tensor, "*shape y x"]) -> Band:
    """Return the axis along which an image varies most, and the position of the band on it.

    >>> band = band_position(torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    >>> band.axis.item(), band.position.item(), band.strength.item()
    (1, 2.0, 1.0)
    """
    image = images.double()
    rows, columns = image.mean(dim=-1), image.mean(dim=-2)
    vertical = columns.var(dim=-1, correction=0) > rows.var(dim=-1, correction=0)
    position = torch.where(vertical, _middle(columns), _middle(rows))
    return Band(vertical.long(), position, band_index(images))


def _middle(profile: Float[Tensor, "*shape pixel"]) -> Float[Tensor, "*shape"]:
    """Return the midpoint of the pixels where the profile deviates from its median by at least half of the maximum."""
    far = (profile - profile.quantile(0.5, dim=-1, keepdim=True)).abs()
    inside = (far >= far.amax(dim=-1, keepdim=True) / 2).long()
    return (inside.argmax(dim=-1) + profile.shape[-1] - 1 - inside.flip(-1).argmax(dim=-1)).double() / 2


def band_alignment(
    images: Float[Tensor, "*member 2 value y x"],
    *,
    tolerance: float = 1.0,
    weakest: float = 0.0,
    border: int = 0,
) -> Float[Tensor, "*member"]:
    """Return the fraction of embeddings in the bump task whose band has the right axis and the right position.

    There is one image for every value of x (value v is column v) and of y (value v is row v). A band may be off by
    `tolerance` pixels; one with an index below `weakest` is not aligned. Pixels within `border`, where padded
    convolutions cause artefacts, and values that lie there are ignored.

    >>> vertical = torch.eye(4)[:, None, :].expand(4, 4, 4)
    >>> band_alignment(torch.stack([vertical, vertical.mT])).item()
    1.0
    """
    rows, columns = images.shape[-2:]
    band = band_position(images[..., border : rows - border, border : columns - border])
    coordinates = torch.arange(images.shape[-3], dtype=torch.float64, device=images.device)
    axes = torch.tensor([[1], [0]], device=images.device)  # x is a column, y a row
    near = (band.position + border - coordinates).abs() <= tolerance
    last = torch.tensor((rows, columns), device=images.device)[axes] - 1 - border
    counted = ((coordinates >= border) & (coordinates <= last) | (border == 0)).double()
    aligned = ((band.axis == axes) & near & (band.strength >= weakest)).double()
    return (aligned * counted).sum(dim=(-2, -1)) / counted.sum()


def mean_band_index(maps: Float[Tensor, "*member unit y x"]) -> Float[Tensor, "*member"]:
    """Return the variance-weighted mean band index of neurons' maps over a two-factor grid; NaN if all are constant.

    >>> band, chessboard = torch.tensor([[0.0, 0.0], [2.0, 2.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> mean_band_index(torch.stack([band, chessboard, torch.zeros(2, 2)])).item()
    0.8
    """
    variance = maps.double().var(dim=(-2, -1), correction=0)
    total = variance.sum(dim=-1)
    return (band_index(maps).nan_to_num(nan=0.0) * variance).sum(dim=-1) / torch.where(total > 0, total, torch.nan)


@stage_metric(
    "tuning",
    Column(
        "stripe_index", "largest main effect's share of a neuron's variance, mean over neurons", "Appendix E.4",
        heading="stripe", panel="tuning", line="stripe index",
    ),
    Column(
        "localisation_index", "interactions' share of a neuron's variance, mean over neurons", "Appendix E.4",
        heading="localisation", panel="tuning", line="localisation index",
    ),
)  # fmt: skip
def evaluate_tuning(stage: Stage) -> dict[str, Tensor]:
    tuning = neuron_tuning(stage.features, stage.grid.shape)
    return {
        "stripe_index": tuning.stripe_index.nanmean(dim=-1),
        "localisation_index": tuning.localisation_index.nanmean(dim=-1),
    }
