"""The registered metrics of every stage of runs' networks, as studies keep them. Stage 0 is the input code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import metric_tensor
from recombine.metrics.profile import read_stages
from recombine.metrics.profile import stage_profile as registered_profile
from recombine.metrics.registry import STAGE_METRICS, Column, Need
from recombine.reproduction.batches import Batch

PROBES = frozenset({"probe_in_sample", "probe_held_out"})
"""Registered metrics that fit linear probes, the slowest ones."""


def stage_profile(batch: Batch, *, probes: bool = True, maps: bool = True) -> dict[str, np.ndarray]:
    """The registered metrics of every stage of networks over a two-factor grid.

    Parameters
    ----------
    batch
        Finished runs of one arm.
    probes
        Whether linear probes are fitted.
    maps
        Whether columns that have a number at every grid point are kept, as `[member, stage, y, x]`.

    Returns
    -------
    dict of ndarray
        `[member, stage, …]` by the column's name in studies. Values per factor are averaged. Codes without a derivative
        have finite differences only.
    """
    task, reader, memory = batch.task, batch.reader(), batch.memory
    points = task.grid.points.to(batch.device)
    exact = metric_tensor(reader, points, members=1, memory=memory) if task.encoding.differentiable else None
    metrics = [metric for metric in STAGE_METRICS.in_studies() if probes or metric.name not in PROBES]
    targets = task.render(task.grid.points) if any(Need.TARGETS in metric.needs for metric in metrics) else None
    stages = read_stages(
        reader, points, task.grid, task.held_out, exact=exact, targets=targets, members=1, memory=memory
    )
    columns = registered_profile(stages, [metric.name for metric in metrics]).columns
    return {
        column.study_name: torch.stack([_rows(column, value, len(batch), task.grid.shape)
                                        for value in columns[column.name]], dim=1).float().cpu().numpy()
        for metric in metrics
        for column in metric.columns
        if column.name in columns and (maps or "point" not in column.dims)
    }  # fmt: skip


def _rows(column: Column, value: Tensor, members: int, shape: tuple[int, ...]) -> Tensor:
    """A stage's values of a column, one row per member: means over factors, maps as `[y, x]`.

    A metric that does not depend on the activations may have no member axis.
    """
    value = value.expand(members, *value.shape[value.ndim - len(column.dims) :])
    if column.dims == ("point",):
        return value.unflatten(1, shape).mT
    return value.mean(dim=1 + column.dims.index("factor")) if "factor" in column.dims else value


class _StageDims(Mapping[str, Sequence[str]]):
    """Dimensions of what `stage_profile` gives, with all metrics that are registered by now."""

    def __getitem__(self, name: str) -> Sequence[str]:
        return self._dims()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims())

    def __len__(self) -> int:
        return len(self._dims())

    @staticmethod
    def _dims() -> dict[str, Sequence[str]]:
        return {
            column.study_name: ("stage", "y", "x") if column.dims == ("point",)
            else ("stage", *(dim for dim in column.dims if dim != "factor"))
            for metric in STAGE_METRICS.in_studies()
            for column in metric.columns
        }  # fmt: skip


STAGE_DIMS: Mapping[str, Sequence[str]] = _StageDims()
"""Dimensions of what `stage_profile` gives."""
