"""Which points of a factor grid are kept, which are scored, and what each value of each factor adds at the kept ones.

Conventions
-----------
A *group* is a set of factors that act as one, whose values are their combinations; a factor alone is a group of one.
Points that are not kept are held out. A held-out point is scored where every group's value is also that of a kept
point: of other combinations nothing is known.

Where points are missing, plain means of the values of one factor pick up the others. `Design.effects` is therefore the
least squares fit of a sum of one function per group, each with mean 0 over its values; with nothing missing both agree.

Known answers: effects of a sum of functions are these functions, whatever is missing; a random hold-out has a fifth of
the points and leaves every value kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

import torch
from torch import Tensor

from recombine.errors import InvalidValue

HELD_OUT_SHARE = 0.2
"""Of the points, that are held out by default."""
UNKNOWN = -1
"""In the place of a value that no kept point has."""


@dataclass(frozen=True, eq=False)
class Design:
    """Groups' values at the points of a grid, and which points are kept and scored."""

    labels: Tensor
    """`[group, point]`: which of its kept values a group has there, or −1."""
    kept: Tensor
    """`[point]`."""
    scored: Tensor
    """`[point]`: held out, with values that are known."""

    @classmethod
    def of(cls, shape: Sequence[int], kept: Tensor, groups: Sequence[Sequence[int]] | None = None) -> Design:
        """That of a grid whose factors act alone, or in groups."""
        cells = [cell_numbers(shape, group) for group in groups or [(factor,) for factor in range(len(shape))]]
        return cls.from_cells(torch.stack(cells), kept, ~kept)

    @classmethod
    def from_cells(cls, cells: Tensor, kept: Tensor, others: Tensor) -> Design:
        """That of groups' values under any numbers, scored at those of the other points whose values are kept."""
        labels = torch.full_like(cells, UNKNOWN)
        for group, own in enumerate(cells):
            for number, cell in enumerate(own[kept].unique().tolist()):
                labels[group, own == cell] = number
        return cls(labels, kept, others & (labels >= 0).all(dim=0))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many values of each group are kept."""
        return tuple((self.labels.amax(dim=1) + 1).tolist())

    @cached_property
    def membership(self) -> tuple[Tensor, ...]:
        """For each group `[kept point, value]`, 1 where the point has the value."""
        own = self.labels[:, self.kept]
        return tuple(
            torch.nn.functional.one_hot(label, count).double() for label, count in zip(own, self.counts, strict=True)
        )

    @cached_property
    def means(self) -> tuple[Tensor, ...]:
        """For each group `[value, kept point]`: the mean of the kept points that have the value."""
        return tuple((own / own.sum(dim=0)).T for own in self.membership)

    @cached_property
    def effects(self) -> tuple[Tensor, ...]:
        """For each group `[value, kept point]`: what the value adds, in the best sum of one function per group."""
        parts = torch.linalg.pinv(self._columns)[1:].split(self.counts)
        return tuple(own - own.mean(dim=0) for own in parts)

    @cached_property
    def fitted(self) -> int:
        """How many numbers such a sum has."""
        return int(torch.linalg.matrix_rank(self._columns))

    @property
    def _columns(self) -> Tensor:
        own = self.membership
        return torch.cat([torch.ones_like(own[0][:, :1]), *own], dim=1)

    def on(self, device: torch.device) -> Design:
        """The same there."""
        return Design(*(tensor.to(device) for tensor in (self.labels, self.kept, self.scored)))


def cell_numbers(shape: Sequence[int], group: Sequence[int]) -> Tensor:
    """At every point of a grid, the number of the combination of values that a group of factors has."""
    points = torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(-1, len(shape))
    cells = torch.zeros(len(points), dtype=torch.int64)
    for factor in group:
        cells = cells * shape[factor] + points[:, factor]
    return cells


def kept_points(shape: Sequence[int], held_out: Tensor | None, seed: int) -> Tensor:
    """Points that are not held out, of which every value of every factor has some."""
    factors = range(len(shape))
    single = torch.stack([cell_numbers(shape, (factor,)) for factor in factors])
    if held_out is None:
        proper = chain.from_iterable(combinations(factors, size) for size in range(2, min(len(shape), 5)))
        larger = [cells for cells in (cell_numbers(shape, group) for group in proper) if cells.bincount().min() > 1]
        everything = torch.ones(single.shape[1], dtype=torch.bool)
        held_out = random_points(torch.stack([*single, *larger]), everything, HELD_OUT_SHARE, seed)
    kept = ~held_out.cpu()
    if bool(kept.all()):
        raise InvalidValue("held_out", "no point", "at least one point, and a kept point for every value of a factor")
    for factor, own in enumerate(single):
        missing = sorted(set(range(shape[factor])) - set(own[kept].tolist()))
        if missing:
            raise InvalidValue(
                "held_out", f"every point with value {missing[0]} of factor {factor}", "a kept point for every value"
            )
    return kept


def random_points(cells: Tensor, candidates: Tensor, share: float, seed: int) -> Tensor:
    """A random share of the candidates, or fewer, that leaves a candidate in every cell."""
    places = torch.nonzero(candidates).flatten()
    order = places[torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))]
    wanted = max(1, math.floor(share * len(order)))
    remaining = [torch.bincount(own[candidates], minlength=int(own.max()) + 1).tolist() for own in cells]
    groups = [(own.tolist(), left) for own, left in zip(cells, remaining, strict=True)]
    chosen = torch.zeros_like(candidates)
    for point in order.tolist():
        if wanted and all(left[own[point]] > 1 for own, left in groups):
            chosen[point] = True
            wanted -= 1
            for own, left in groups:
                left[own[point]] -= 1
    return chosen
