"""A user's data as what a module is diagnosed with: grid, codes, hold-out, images, and which points are present.

Images are read where they are needed, some at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from recombine.diagnosis.arguments import holdout_mask
from recombine.diagnosis.targets import TargetFunction
from recombine.encodings import Encoding
from recombine.factors import FactorGrid
from recombine.metrics.stages import Encode
from recombine.tasks import ArrayTask


class OwnData(NamedTuple):
    """What `diagnose` takes, of data."""

    grid: FactorGrid
    encode: Encode | Encoding | str | None
    held_out: Tensor
    targets: TargetFunction
    background: float
    present: Tensor


def array_task(data: Any) -> ArrayTask:
    """The task itself, or that of a file, which holds nothing out."""
    return data if isinstance(data, ArrayTask) else ArrayTask(data=data, holdout="none")


def own_data(data: Any, encode: Any, holdout: Any) -> OwnData:
    """What an `ArrayTask`, or the file of one, is diagnosed with; a task has codes and a hold-out of its own."""
    task = array_task(data)
    if task is data and encode is None:
        encode = task.encoding
    held_out = task.held_out if holdout is None else holdout_mask(holdout, task.grid) & task.present
    return OwnData(task.grid, encode, held_out, task.render, task.background, task.present)
