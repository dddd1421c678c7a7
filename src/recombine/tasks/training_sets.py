"""Which combinations a network is trained on (§3.1 and §4.2 of the paper).

A rule chooses among the combinations it may use: indices into them for integer centres, a number of real-valued
draws otherwise. The task may add isolated-factor examples: some factors are shown, all others are absent.

Groups of `together` factors are shown; by default each factor alone, which is the paper's stripes. A factor alone is
shown at all its values. A group of two or more is shown in those combinations that occur among the ones that may be
trained on: a held-out pair is not given away by showing it without the rest.

Where an image cannot be drawn without a factor (a digit always has some angle), the example is the **mean image** over
that factor: over the combinations with the shown values that may be trained on, since the mean over all of them would
contain held-out images. A shown value that is in no such combination has no example. Of more than `MOST_AVERAGED`
combinations that many are drawn, always the same for the same values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.records import Registry, Variant
from recombine.streams import stream

MOST_AVERAGED = 4096
"""Images that a mean is taken over; more are sampled."""
PIXELS = 2**24
"""Pixels that are drawn at a time."""

Render = Callable[[Float[Tensor, "row factor"]], Float[Tensor, "row ..."]]


class TrainingRule(Variant):
    """How many combinations, and whether one can come twice."""

    @abstractmethod
    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        """Indices, below `available`, of the combinations to train on."""

    def count(self, available: int) -> int:
        """How many combinations `choose` returns; also how many real-valued draws to make."""
        return len(self.choose(available, torch.Generator().manual_seed(0)))


TRAINING_RULES: Registry[TrainingRule] = Registry("training", TrainingRule)
AnyTrainingRule = Annotated[SerializeAsAny[TrainingRule], BeforeValidator(TRAINING_RULES.parse)]


@TRAINING_RULES.register
class Draws(TrainingRule):
    """`samples` draws with replacement.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, training=rc.Draws(samples=500)).training_values(seed=0).shape
    torch.Size([500, 2])
    """

    kind: Literal["draws"] = "draws"
    samples: Annotated[int, Field(ge=1, le=10**7)] = 2000
    """How many draws."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        return torch.randint(available, (self.samples,), generator=generator)


@TRAINING_RULES.register
class Each(TrainingRule):
    """Every combination once.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, holdout="center:2:5", training=rc.Each()).training_values(seed=0).shape
    torch.Size([48, 2])
    """

    kind: Literal["each"] = "each"

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        return torch.arange(available)


@TRAINING_RULES.register
class Pick(TrainingRule):
    """`samples` different combinations.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, training=rc.Pick(samples=20)).training_values(seed=0).shape
    torch.Size([20, 2])
    """

    kind: Literal["pick"] = "pick"
    samples: Annotated[int, Field(ge=0)] = 100
    """How many combinations."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        if self.samples > available:
            raise InvalidValue("training.samples", self.samples, f"at most {available}, the combinations there are")
        return torch.randperm(available, generator=generator)[: self.samples]


@TRAINING_RULES.register
class Percent(TrainingRule):
    """`percent` % of the combinations, each once.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, holdout="none", training=rc.Percent(percent=25)).training_values(seed=0).shape
    torch.Size([16, 2])
    """

    kind: Literal["percent"] = "percent"
    percent: Annotated[float, Field(ge=0, le=100)] = 10.0
    """Share of the combinations."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        return torch.randperm(available, generator=generator)[: round(available * self.percent / 100)]


def isolated_rows(
    grid: FactorGrid, usable: Bool[Tensor, " point"], groups: Sequence[tuple[int, ...]], fixed: Sequence[int] = ()
) -> Float[Tensor, "row factor"]:
    """The values of each group's factors with all others absent (NaN), group by group.

    `fixed` are the factors that no image can be drawn without, and `usable` are the points that may be trained on.
    """
    blocks = []
    for group in groups:
        shown = FactorGrid(tuple(grid.factors[axis] for axis in group))
        block = torch.full((shown.size, len(grid.factors)), torch.nan, dtype=torch.float64)
        block[:, list(group)] = shown.points
        if len(group) > 1 or set(fixed) - set(group):
            others = [axis for axis in range(len(grid.factors)) if axis not in group]
            block = block[usable.reshape(grid.shape).permute(*group, *others).reshape(shown.size, -1).any(dim=1)]
        blocks.append(block)
    return torch.cat(blocks)


def averaged_images(
    values: Float[Tensor, "row factor"],
    grid: FactorGrid,
    usable: Bool[Tensor, " point"],
    fixed: Sequence[int],
    render: Render,
) -> Float[Tensor, "row ..."]:
    """The image of each row; the mean over those of the `fixed` factors that are absent from it.

    Other factors that are absent stay so: the renderer draws without them.
    """
    distinct, inverse = torch.unique(values.nan_to_num(nan=torch.inf), dim=0, return_inverse=True)
    distinct = torch.where(distinct.isinf(), torch.nan, distinct)
    lowest = torch.tensor([factor.low for factor in grid.factors], dtype=values.dtype)
    nearest = grid.positions(grid.nearest(torch.where(distinct.isnan(), lowest, distinct))).tolist()
    drawn, owners, weights = [], [], []
    for owner, (row, position) in enumerate(zip(distinct, nearest, strict=True)):
        rows, weight = _completions(row, position, grid, usable, fixed)
        drawn.append(rows)
        weights.append(weight / weight.sum())
        owners.append(torch.full((len(rows),), owner))
    return _sums(torch.cat(drawn), torch.cat(owners), torch.cat(weights), len(distinct), render)[inverse]


def _completions(
    row: Float[Tensor, " factor"],
    position: Sequence[int],
    grid: FactorGrid,
    usable: Bool[Tensor, " point"],
    fixed: Sequence[int],
) -> tuple[Float[Tensor, "row factor"], Float[Tensor, " row"]]:
    """Rows with values for the fixed factors that are absent, and how many usable points each stands for.

    `position` is where on the grid the factors are that are present.
    """
    absent = torch.isnan(row).tolist()
    filled = [axis for axis in fixed if absent[axis]]
    if not filled:
        return row[None], torch.ones(1, dtype=torch.float64)
    free = FactorGrid(tuple(grid.factors[axis] for axis in filled))
    slices = [slice(None) if gone else slice(at, at + 1) for gone, at in zip(absent, position, strict=True)]
    others = [axis for axis in range(len(grid.factors)) if axis not in filled]
    counts = usable.reshape(grid.shape)[tuple(slices)].permute(*filled, *others).reshape(free.size, -1).sum(dim=1)
    chosen = _sample(torch.nonzero(counts).flatten(), row, grid)
    if not len(chosen):
        raise InvalidValue("values", row.tolist(), "values of combinations that may be trained on, to take a mean over")
    rows = row.expand(len(chosen), -1).clone()
    rows[:, filled] = free.rows(chosen)
    return rows, counts[chosen].double()


def _sample(
    candidates: Int[Tensor, " candidate"], row: Float[Tensor, " factor"], grid: FactorGrid
) -> Int[Tensor, " chosen"]:
    """All candidates, or `MOST_AVERAGED` of them, which depend on the row alone."""
    if len(candidates) <= MOST_AVERAGED:
        return candidates
    shown = ", ".join(f"{name}={value:g}" for name, value in zip(grid.names, row.tolist(), strict=True))
    order = torch.randperm(len(candidates), generator=stream(0, f"mean over the absent factors of {shown}"))
    return candidates[order[:MOST_AVERAGED].sort().values]


def _sums(
    rows: Float[Tensor, "row factor"],
    owners: Int[Tensor, " row"],
    weights: Float[Tensor, " row"],
    count: int,
    render: Render,
) -> Float[Tensor, "owner ..."]:
    """Each owner's weighted sum of images, drawn some at a time."""
    one = render(rows[:1])
    total, step = one.new_zeros(count, *one.shape[1:]), max(1, PIXELS // one.numel())
    for first in range(0, len(rows), step):
        at = slice(first, first + step)
        images = render(rows[at])
        total.index_add_(0, owners[at], images * weights[at].to(images).reshape(-1, *[1] * (images.ndim - 1)))
    return total
