"""Which examples each member sees at each step.

An epoch is a fresh permutation of the member's training set, cut into batches; the last batch holds what is left and
is padded with examples of the member's own, of share 0. Permutations come from a stream of their own for each epoch, so
the batch of any step can be made without making the ones before it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.specs import RunSpec
from recombine.streams import stream


class Batches(NamedTuple):
    """The batches of a few consecutive steps, for all members."""

    rows: Int[Tensor, "step member batch"]
    shares: Float[Tensor, "step member batch"]
    active: Bool[Tensor, "step member"]


class Schedule:
    """One member's order of examples."""

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
        """All batches of some epochs."""
        if self._newest is None or self._newest[0] != epochs:
            count = len(self.table)
            orders = torch.empty(len(epochs), self.steps_per_epoch * self.batch, dtype=torch.int64)
            for epoch, order in zip(epochs, orders[:, :count].unbind(), strict=True):
                torch.randperm(count, generator=stream(self.seed, "order", epoch), out=order)
            orders[:, count:] = orders[:, :1]
            self._newest = (epochs, self.table[orders].view(-1, self.batch))
        return self._newest[1]

    def fill(self, batches: Batches, member: int, first: int) -> None:
        """Write this member's batches, beginning with step `first`, into its column."""
        count = max(min(len(batches.rows), self.total - first), 0)
        batches.active[:count, member] = True
        if count:
            epochs = range(first // self.steps_per_epoch, -(-(first + count) // self.steps_per_epoch))
            begin = first - epochs.start * self.steps_per_epoch
            batches.rows[:count, member] = self._rows(epochs)[begin : begin + count]
            batches.shares[:count, member] = self._shares[torch.arange(first, first + count) % self.steps_per_epoch]


def batches_of(schedules: list[Schedule], first: list[int], span: int) -> Batches:
    """The next `span` batches of all members, each from its own step on."""
    shape = (span, len(schedules), schedules[0].batch)
    own = torch.stack([schedule.table[0] for schedule in schedules])  # what a finished member sees
    batches = Batches(
        own[None, :, None].repeat(span, 1, shape[2]), torch.zeros(shape), torch.zeros(shape[:2], dtype=torch.bool)
    )
    for member, (schedule, step) in enumerate(zip(schedules, first, strict=True)):
        schedule.fill(batches, member, step)
    return batches
