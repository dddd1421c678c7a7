"""Batches for each member and step, and tables of examples.

An epoch is a new permutation of the member's training set, cut into batches; the last batch is padded with examples of
weight 0. Each epoch has its own random stream, so that the batch for any step can be computed without the earlier ones.

Generated examples and small datasets are stored as one table on the device. For larger datasets, a **window** holds the
distinct examples for the next steps of all members, and batches index into it; a thread reads the next window while the
device works on the current one. Members see exactly the same examples either way.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.specs import RunSpec
from recombine.streams import stream
from recombine.tasks import Examples, Task

RESIDENT_BYTES = 2**28
"""Maximum size in bytes of a dataset stored on the device; larger ones are streamed."""
WINDOW_BYTES = {"cpu": 2**26, "cuda": 2**30}
"""Size of a window in bytes; it holds at least one step of all members."""


class Batches(NamedTuple):
    """Batches for consecutive steps of all members; `shares` are the weights of a batch's examples and sum to 1."""

    rows: Int[Tensor, "step member batch"]
    shares: Float[Tensor, "step member batch"]
    active: Bool[Tensor, "step member"]


class Schedule:
    """The order in which one member sees its examples."""

    def __init__(self, spec: RunSpec, table: Int[Tensor, " row"]) -> None:
        self.seed, self.table, self.batch = spec.seed, table, spec.recipe.batch
        self.steps_per_epoch = spec.recipe.steps_per_epoch(len(table))
        self.total = spec.recipe.total_steps(len(table))
        padded = torch.zeros(self.steps_per_epoch * self.batch)
        padded[: len(table)] = 1
        shares = padded.view(self.steps_per_epoch, self.batch)
        self._shares = shares / shares.sum(dim=1, keepdim=True)
        self._newest: tuple[range, Tensor] | None = None

    def _rows(self, epochs: range) -> Int[Tensor, "step batch"]:
        """Return all batches of the given epochs."""
        if self._newest is None or self._newest[0] != epochs:
            count = len(self.table)
            orders = torch.empty(len(epochs), self.steps_per_epoch * self.batch, dtype=torch.int64)
            for epoch, order in zip(epochs, orders[:, :count].unbind(), strict=True):
                torch.randperm(count, generator=stream(self.seed, "order", epoch), out=order)
            orders[:, count:] = orders[:, :1]
            self._newest = (epochs, self.table[orders].view(-1, self.batch))
        return self._newest[1]

    def fill(self, batches: Batches, member: int, first: int) -> None:
        """Write this member's batches, from step `first` on, into its column."""
        count = max(min(len(batches.rows), self.total - first), 0)
        batches.active[:count, member] = True
        if count:
            epochs = range(first // self.steps_per_epoch, -(-(first + count) // self.steps_per_epoch))
            begin = first - epochs.start * self.steps_per_epoch
            batches.rows[:count, member] = self._rows(epochs)[begin : begin + count]
            batches.shares[:count, member] = self._shares[torch.arange(first, first + count) % self.steps_per_epoch]


def batches_of(schedules: list[Schedule], first: list[int], span: int) -> Batches:
    """Return the next `span` batches of all members, starting from each member's current step."""
    shape = (span, len(schedules), schedules[0].batch)
    first_rows = torch.stack([schedule.table[0] for schedule in schedules])  # a valid row for finished members
    batches = Batches(
        first_rows[None, :, None].repeat(span, 1, shape[2]),
        torch.zeros(shape),
        torch.zeros(shape[:2], dtype=torch.bool),
    )
    for member, (schedule, step) in enumerate(zip(schedules, first, strict=True)):
        schedule.fill(batches, member, step)
    return batches


class DistinctExamples(NamedTuple):
    """Distinct factor values of tasks that render them in the same way."""

    task: Task
    values: Float[Tensor, "row factor"]

    @property
    def row_bytes(self) -> int:
        """Size of one example in bytes."""
        return torch.float32.itemsize * (sum(self.task.code_sizes) + math.prod(self.task.image_shape))


class Resident:
    """All examples on the device."""

    longest_span = sys.maxsize

    def __init__(self, distinct: Sequence[DistinctExamples], device: torch.device) -> None:
        parts = [part.task.examples(part.values) for part in distinct]
        self.examples = Examples(*(torch.cat(part).to(device) for part in zip(*parts, strict=True)))


class Window:
    """Examples for a few steps, in fixed buffers on the device."""

    def __init__(self, distinct: Sequence[DistinctExamples], device: torch.device, per_step: int) -> None:
        self.distinct = distinct
        self.starts = torch.tensor([0, *(len(part.values) for part in distinct)]).cumsum(0)
        fitting = WINDOW_BYTES[device.type] // max(part.row_bytes for part in distinct)
        self.longest_span = max(1, fitting // per_step)
        capacity = self.longest_span * per_step
        one = distinct[0].task.examples(distinct[0].values[:1])
        self.examples = Examples(*(part.new_zeros(capacity, *part.shape[1:], device=device) for part in one))
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="recombine-window")
        self._ahead: tuple[Tensor, Future[tuple[Examples, Tensor]]] | None = None

    def move(self, batches: Batches) -> Batches:
        """Load the examples of the given batches into the window, and return the batches with row indices into it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and torch.equal(ahead[0], batches.rows):
            examples, rows = ahead[1].result()
        else:
            examples, rows = self._read(batches.rows)
        for buffer, part in zip(self.examples, examples, strict=True):
            buffer[: len(part)].copy_(part)
        return batches._replace(rows=rows)

    def read_ahead(self, batches: Batches) -> None:
        """Start reading the examples of the likely next steps."""
        self._ahead = batches.rows, self._reader.submit(self._read, batches.rows)

    def _read(self, rows: Int[Tensor, "step member batch"]) -> tuple[Examples, Int[Tensor, "step member batch"]]:
        """Return the distinct examples among the given rows, and the index of each row among them."""
        distinct, places = torch.unique(rows, return_inverse=True)
        parts = []
        for part, first, last in zip(self.distinct, self.starts[:-1], self.starts[1:], strict=True):
            rows_here = distinct[(distinct >= first) & (distinct < last)] - first
            if len(rows_here):
                parts.append(part.task.examples(part.values[rows_here]))
        return Examples(*(torch.cat(part) for part in zip(*parts, strict=True))), places


def table_of(distinct: Sequence[DistinctExamples], device: torch.device, per_step: int) -> Resident | Window:
    """Return a table of all examples, or a window if they are read from a large dataset."""
    large = any(part.task.streamed and len(part.values) * part.row_bytes > RESIDENT_BYTES for part in distinct)
    return Window(distinct, device, per_step) if large else Resident(distinct, device)
