"""What the units of a CNN's first stage are tuned to, beside bands of penalised embeddings (§4.2, Fig. 4e, 3b).

The first stage is the first layer after the code: channels of a coarse image. The map of a unit is its activation over
the (x, y) grid. Per network, means over units, weighted by the variance of their maps so that silent ones do not count:

- `first_band`: the band index, the share of the variance along one axis (1: a band);
- `first_orientation`: how much more of the variance lies along one axis than along the other, |V_x − V_y| / V (a
  band has 1, a sum of two crossing bands 0);
- `first_alignment`: whether the band lies where the unit does: for a vertical one the columns, for a horizontal one the
  rows that the unit's own place in the coarse image covers, give or take one pixel. Embeddings are banded so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import band_position, features, mean_band_index
from recombine.metrics.stages import INPUT
from recombine.reproduction.measuring import Batch

TOLERANCE = 1
"""Pixels that a band may lie outside the part of the image that its unit covers."""


def first_stage_maps(batch: Batch) -> Tensor:
    """The maps of all first-stage units: `[member, unit, y, x]`."""
    grid = batch.task.grid
    stages = features(batch.reader(), grid.points.to(batch.device), members=1, memory=batch.memory)
    first = next(stage for name, stage in stages if name != INPUT)
    return first.mT.unflatten(-1, grid.shape).mT


def band_scores(maps: Tensor, channels: int) -> dict[str, Tensor]:
    """Band, orientation and alignment of maps, `[member, unit, y, x]`, of so many channels of a square image."""
    side = round((maps.shape[1] / channels) ** 0.5)
    variance = maps.double().var(dim=(-2, -1), correction=0)
    columns, rows = (maps.double().mean(dim=axis).var(dim=-1, correction=0) for axis in (-2, -1))
    total = variance.sum(dim=-1)
    weight = variance / torch.where(total > 0, total, torch.nan)[:, None]
    band = band_position(maps)
    unit = torch.arange(side * side, device=maps.device).repeat(channels)
    place = torch.where(band.axis == 1, unit % side, unit // side)
    pixels = torch.where(band.axis == 1, maps.shape[-1], maps.shape[-2]) / side
    low, high = place * pixels - TOLERANCE, (place + 1) * pixels - 1 + TOLERANCE
    aligned = (band.position >= low) & (band.position <= high)
    contrast = (columns - rows).abs() / torch.where(variance > 0, variance, 1.0)
    return {
        "first_band": mean_band_index(maps),
        "first_orientation": (contrast * weight).sum(dim=-1),
        "first_alignment": (aligned * weight).sum(dim=-1),
    }


def pictured_maps(maps: Tensor, count: int) -> np.ndarray[Any, Any]:
    """Of one member, the maps that vary most."""
    chosen = maps[0].var(dim=(-2, -1)).argsort(descending=True)[:count]
    return maps[0, chosen].cpu().numpy().astype(np.float32)
