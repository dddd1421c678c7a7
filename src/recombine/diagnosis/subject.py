"""A module ready to be measured: its stages chosen, its rows run in the way that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recombine.diagnosis.hooks import (
    MODULE_OUTPUT,
    OUTPUT,
    Forward,
    Layout,
    activations,
    module_reader,
    output_rows,
    stage_name,
)
from recombine.diagnosis.parts import module_parts
from recombine.diagnosis.rows import Rows, row_treatment
from recombine.errors import InvalidValue
from recombine.metrics import Reader, stage_sizes
from recombine.metrics.stages import FEWEST, Encode, flat

ROWS_AT_ONCE = 64
"""Rows that a module is given at a time where nothing says how large they are."""


@dataclass(frozen=True)
class Subject:
    """A module, the reader of its stages, and what must be known about both."""

    module: nn.Module
    forward: Forward
    reader: Reader
    rows: Rows
    layout: Layout
    """Of the outputs."""
    memory: int
    epsilon: float
    """Rounding of the coarsest numbers in the module."""
    notes: list[str]

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """The `(row, feature)` outputs for some inputs."""
        return self.rows.outputs(self._batch_outputs, inputs, ROWS_AT_ONCE)

    def _batch_outputs(self, inputs: Tensor) -> Tensor:
        return flat(output_rows(self.module, self.forward(inputs), self.layout, len(inputs)))


def prepare_subject(
    module: nn.Module, forward: Forward, encode: Encode, points: Tensor, stages: Sequence[str] | None, memory: int
) -> Subject:
    """The module with its stages chosen and its rows looked at."""
    parts = module_parts(module, forward, encode, points, stages)
    plain = module_reader(module, encode, parts.names, parts.layouts, forward)
    rows = row_treatment(plain, *_probes(points), type(module).__name__, _tolerance(parts.epsilon, points.device))
    names = _without_the_output(parts.names, plain, points[:FEWEST]) if stages is None else parts.names
    reader = rows.reader(module_reader(module, encode, names, parts.layouts, forward))
    if rows.how == "whole":
        memory = _whole_grid(reader, points, memory)
    notes = [*rows.notes, *parts.notes]
    return Subject(
        module, forward, reader, rows, parts.layouts.get(MODULE_OUTPUT, Layout()), memory, parts.epsilon, notes
    )


def _tolerance(epsilon: float, device: torch.device) -> float:
    """How much two runs of the same rows may differ, as a share of a stage's largest number."""
    return max(epsilon**0.5, 1e-3 if device.type == "cuda" else 0.0)


def _probes(points: Tensor) -> tuple[Tensor, Tensor]:
    """Three points, and the first of them among others."""
    five = torch.linspace(0, len(points) - 1, 5, device=points.device).round().long()
    return points[five[[1, 0, 4]]], points[five[[1, 2, 3]]]


def _without_the_output(names: list[str], reader: Reader, few: Tensor) -> list[str]:
    """The stages, less a last one that is the output itself."""
    stages = activations(reader, few)
    return names[:-1] if names and torch.equal(stages[stage_name(names[-1])], stages[OUTPUT]) else names


def _whole_grid(reader: Reader, points: Tensor, memory: int) -> int:
    """A budget in which the grid is one batch; refused where that is more than was allowed."""
    needed = 4 * len(points) * 2 * sum(stage_sizes(reader, points).values())
    if needed > memory:
        raise InvalidValue("memory", memory, f"at least {needed} for this module, which takes the grid as one batch")
    return needed + 1
