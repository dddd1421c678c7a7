"""Right outputs, one row per grid point: an array, which may lie on disk, or a function of factor values.

Only rows that are measured are read: of a large grid these are few, and an array that is mapped into memory
(`numpy.load(…, mmap_mode="r")`) stays on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recombine.arrays import as_numbers
from recombine.checks import users_function
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.sampling import points_at

TargetFunction = Callable[[Tensor], Tensor]
"""Factor values `(point, factor)` to the right outputs `(point, …)`."""


def valid_targets(targets: Any, grid: FactorGrid) -> Tensor | np.ndarray | TargetFunction | None:
    """The targets, if they can be: of an array, as many rows as the grid has points."""
    if targets is None:
        return None
    if isinstance(targets, (Tensor, np.ndarray)):
        if isinstance(targets, Tensor) and (targets.is_complex() or targets.layout != torch.strided):
            raise InvalidValue("targets", targets, "a tensor or array of real numbers")
        if isinstance(targets, np.ndarray) and targets.dtype.kind not in "biuf":
            as_numbers(targets, "targets")
        if targets.ndim == 0 or len(targets) != grid.size:
            raise InvalidValue("targets", tuple(targets.shape), f"{grid.size} rows, one per grid point")
        return targets
    if callable(targets):
        return targets
    raise InvalidValue("targets", targets, "a tensor or array of real numbers, or a function of factor values")


def target_rows(
    targets: Tensor | np.ndarray | TargetFunction | None, grid: FactorGrid, indices: Tensor | None = None
) -> Tensor | None:
    """The targets at some points of the grid, all by default, as a tensor of finite numbers."""
    if targets is None:
        return None
    if isinstance(targets, np.ndarray):
        return torch.from_numpy(as_numbers(targets if indices is None else targets[indices.numpy()], "targets"))
    if isinstance(targets, Tensor):
        rows = targets if indices is None else targets[indices.to(targets.device)]
    else:
        values = points_at(grid, indices)
        with users_function("targets", targets):
            rows = targets(values)
        if not isinstance(rows, Tensor) or rows.is_complex() or rows.shape[:1] != values.shape[:1]:
            raise InvalidValue("targets", rows, "a function that returns a tensor with a row for each point")
    if not bool(rows.isfinite().all()):
        raise InvalidValue("targets", "NaN or infinity", "finite numbers only")
    return rows
