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
        self.steps_per_epoch = -(-len(table) // self.batch)
        epochs = spec.recipe.epochs
        self.total = spec.recipe.steps or self.steps_per_epoch * (epochs or 0)
        padded = torch.zeros(self.steps_per_epoch * self.batch)
        padded[: len(table)] = 1
        shares = padded.view(self.steps_per_epoch, self.batch)
        self._shares = shares / shares.sum(dim=1, keepdim=True)
        self._epoch: tuple[int, Tensor] | None = None

    def _order(self, epoch: int) -> Int[Tensor, "step batch"]:
        if self._epoch is None or self._epoch[0] != epoch:
            order = self.table[torch.randperm(len(self.table), generator=stream(self.seed, "order", epoch))]
            rows = order[:1].repeat(self.steps_per_epoch * self.batch)
            rows[: len(order)] = order
            self._epoch = (epoch, rows.view(self.steps_per_epoch, self.batch))
        return self._epoch[1]

    def fill(self, batches: Batches, member: int, first: int) -> None:
        """Write this member's batches, beginning with step `first`, into its column."""
        batches.active[:, member] = torch.arange(first, first + len(batches.rows)) < self.total
        step, last = first, min(first + len(batches.rows), self.total)
        while step < last:
            epoch, begin = divmod(step, self.steps_per_epoch)
            count = min(last - step, self.steps_per_epoch - begin)
            at = slice(step - first, step - first + count)
            batches.rows[at, member] = self._order(epoch)[begin : begin + count]
            batches.shares[at, member] = self._shares[begin : begin + count]
            step += count


def batches_of(schedules: list[Schedule], first: list[int], span: int) -> Batches:
    """The next `span` batches of all members, each from its own step on."""
    shape = (span, len(schedules), schedules[0].batch)
    own = torch.stack([schedule.table[0] for schedule in schedules])  # a finished member is shown what it knows
    batches = Batches(
        own[None, :, None].repeat(span, 1, shape[2]), torch.zeros(shape), torch.zeros(shape[:2], dtype=torch.bool)
    )
    for member, (schedule, step) in enumerate(zip(schedules, first, strict=True)):
        schedule.fill(batches, member, step)
    return batches
