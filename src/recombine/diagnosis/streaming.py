"""Errors of a module's outputs at single points of a grid, in chunks that fit memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recombine.diagnosis.arguments import shaped_targets
from recombine.diagnosis.subject import ROWS_AT_ONCE, Subject
from recombine.diagnosis.targets import target_rows
from recombine.factors import FactorGrid
from recombine.metrics import squared_error
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import Encode


def streamed_errors(
    subject: Subject,
    encode: Encode,
    targets: Any,
    grid: FactorGrid,
    drawn: Tensor,
    held_out: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Squared error of the outputs at the points drawn, and that of always giving the mean kept target.

    Targets are read twice: for their mean, and with the outputs.
    """
    total, count = None, 0
    for part in _chunks(drawn[~held_out[drawn]]):
        rows = _rows(targets, grid, part).sum(dim=0)
        total, count = rows if total is None else total + rows, count + len(part)
    assert total is not None  # some points are kept, and as many are drawn
    errors, constants = [], []
    device = next((tensor.device for tensor in (*subject.module.parameters(), *subject.module.buffers())), None)
    for part in _chunks(drawn):
        outputs = subject.outputs(encode(points_at(grid, part).to(device, dtype).clone())).cpu().double()
        truth = _rows(targets, grid, part)
        errors.append(squared_error(outputs, shaped_targets(truth, outputs)))
        constants.append(squared_error((total / count).expand_as(truth), truth))
    return torch.cat(errors), torch.cat(constants)


def _chunks(indices: Tensor) -> Iterator[Tensor]:
    yield from indices.tensor_split(max(1, -(-len(indices) // ROWS_AT_ONCE)))


def _rows(targets: Any, grid: FactorGrid, indices: Tensor) -> Tensor:
    rows = target_rows(targets, grid, indices)
    assert rows is not None
    return rows.cpu().double().flatten(1)
