"""How well the factors can be read off the last hidden stage of an encoder by a linear map.

The map is fitted on one half of the kept combinations (as the black fields of a chessboard) and scored on the other
half and on the held-out ones, and the other way round: an error where it was fitted would be too small to compare with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recombine.metrics import LinearProbe, ensemble_reader, features
from recombine.reproduction.measuring import Batch

HIDDEN = "hidden"
"""Name of the stage."""


def readout_errors(batch: Batch) -> dict[str, Tensor]:
    """Mean squared errors of the factors' values, in grid steps, at kept and at held-out combinations.

    Parameters
    ----------
    batch
        Encoders: networks from images to codes.

    Returns
    -------
    dict of Tensor
        `readout_kept` and `readout_held`, one number per network.
    """
    task, points = batch.task, batch.task.grid.points.to(batch.device)
    held, black = task.held_out.to(batch.device), (task.grid.indices.sum(dim=1) % 2 == 0).to(batch.device)
    stage = _hidden(batch, points)
    kept_errors, held_errors = [], []
    for half in (black, ~black):
        fitted = LinearProbe().fit(stage[:, half & ~held], points[half & ~held])
        error = (fitted.predict(stage) - points).square().mean(dim=-1)
        kept_errors.append(error[:, ~half & ~held].mean(dim=1))
        held_errors.append(error[:, held].mean(dim=1))
    return {"readout_kept": torch.stack(kept_errors).mean(dim=0), "readout_held": torch.stack(held_errors).mean(dim=0)}


def _hidden(batch: Batch, points: Tensor) -> Tensor:
    """The last hidden stage's activations at every grid point: `[member, point, feature]`."""
    module = batch.spec.module().to(batch.device).eval()
    reader = ensemble_reader(module, batch.weights, lambda values: batch.task.examples(values).inputs)
    stages = features(reader, points, members=1, memory=batch.memory)
    return next(stage for name, stage in stages if name == HIDDEN)
