"""Errors by where in the hold-out a combination lies: in its interior, and by distance from the kept region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from recombine.metrics import distance_inside, interior

if TYPE_CHECKING:
    from recombine.reproduction.measuring import Batch

DISTANCE = ("distance",)
"""Dimension of what is kept by distance; the first entry is 1 px from the kept region."""
DISTANCE_DIMS = {"distance_mse": DISTANCE, "distance_over_blank": DISTANCE, "distance_accuracy": DISTANCE}
DISTANCE_METRICS = ("distance_inside", "interior")


def errors_by_distance(batch: Batch) -> dict[str, np.ndarray]:
    """Errors and accuracies in the interior of the hold-out, and at every distance from the kept region.

    Parameters
    ----------
    batch
        Finished runs of one arm.

    Returns
    -------
    dict of ndarray
        `interior_mse`, `interior_over_blank` and `interior_accuracy` are `[member]`, the same with `distance` are
        `[member, distance]`, beginning with combinations beside the kept region. Errors over blank are over the blank
        image's in the same combinations.
    """
    task = batch.task
    distance = distance_inside(task.held_out, task.grid.shape)
    inner = _means(batch, interior(task.held_out, task.grid.shape))
    around = [_means(batch, distance == step) for step in range(1, int(distance.max()) + 1)]
    return {
        **{f"interior_{name}": values for name, values in inner.items()},
        **{f"distance_{name}": np.stack([part[name] for part in around], axis=1) for name in inner},
    }


def _means(batch: Batch, region: torch.Tensor) -> dict[str, np.ndarray]:
    """Scores over some of the grid's points."""
    error, blank, hit = (batch.stored(name)[:, region.numpy()].astype(float) for name in ("error", "blank", "hit"))
    return {
        "mse": error.mean(axis=1),
        "over_blank": error.mean(axis=1) / blank.mean(axis=1),
        "accuracy": hit.mean(axis=1),
    }
