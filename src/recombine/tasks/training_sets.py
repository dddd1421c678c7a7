"""Training sets: rules that choose from the combinations that are not held out, and isolated-factor examples.

An isolated example shows a group of factors, by default one (a stripe in the bump task); all others are absent. A
single factor is shown at all its values; a group of two or more only in combinations that may be trained on, so that a
held-out pair is not revealed.

If an image cannot be drawn without a factor (a digit always has some angle), the example is the **mean image** over
that factor. Only combinations that may be trained on are averaged, so that no held-out image contributes. If there are
more than `MOST_AVERAGED`, a fixed random sample is used. A value without any such combination has no example.
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
"""Maximum number of images averaged into one example."""
PIXELS = 2**24
"""Maximum number of pixels drawn at once."""

Render = Callable[[Float[Tensor, "row factor"]], Float[Tensor, "row ..."]]


class TrainingRule(Variant):
    """Base class of rules that choose a training set."""

    @abstractmethod
    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        """Return indices, below `available`, of the combinations to train on."""

    def count(self, available: int) -> int:
        """Return the number of training examples."""
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
    """Number of examples, drawn with replacement."""

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
    """`samples` distinct combinations, chosen at random.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, training=rc.Pick(samples=20)).training_values(seed=0).shape
    torch.Size([20, 2])
    """

    kind: Literal["pick"] = "pick"
    samples: Annotated[int, Field(ge=0)] = 100
    """Number of different combinations."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        if self.samples > available:
            raise InvalidValue("training.samples", self.samples, f"at most {available}, the number of combinations")
        return torch.randperm(available, generator=generator)[: self.samples]


@TRAINING_RULES.register
class Percent(TrainingRule):
    """A random `percent` % of the combinations, each once.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, holdout="none", training=rc.Percent(percent=25)).training_values(seed=0).shape
    torch.Size([16, 2])
    """

    kind: Literal["percent"] = "percent"
    percent: Annotated[float, Field(ge=0, le=100)] = 10.0
    """Percentage of the combinations to train on."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        return torch.randperm(available, generator=generator)[: round(available * self.percent / 100)]


def isolated_rows(
    grid: FactorGrid, usable: Bool[Tensor, " point"], groups: Sequence[tuple[int, ...]], fixed: Sequence[int] = ()
) -> Float[Tensor, "row factor"]:
    """Return the values of each group of factors with all others absent (NaN).

    `fixed` lists the factors that every image needs; `usable` marks the points that may be trained on.
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
    """Return the image of each row, averaged over absent `fixed` factors; other factors stay absent."""
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
    rows, owner_of, weight_of = torch.cat(drawn), torch.cat(owners), torch.cat(weights)
    one = render(rows[:1])
    total, step = one.new_zeros(len(distinct), *one.shape[1:]), max(1, PIXELS // one.numel())
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        images = render(rows[part])
        weighted = images * weight_of[part].to(images).reshape(-1, *[1] * (images.ndim - 1))
        total.index_add_(0, owner_of[part], weighted)
    return total[inverse]


def _completions(
    row: Float[Tensor, " factor"],
    position: Sequence[int],
    grid: FactorGrid,
    usable: Bool[Tensor, " point"],
    fixed: Sequence[int],
) -> tuple[Float[Tensor, "row factor"], Float[Tensor, " row"]]:
    """Return rows with values filled in for absent fixed factors, and each row's number of usable points.

    `position` is the row's position on the grid, for the factors that are present.
    """
    absent = torch.isnan(row).tolist()
    filled = [axis for axis in fixed if absent[axis]]
    if not filled:
        return row[None], torch.ones(1, dtype=torch.float64)
    free = FactorGrid(tuple(grid.factors[axis] for axis in filled))
    slices = [slice(None) if gone else slice(at, at + 1) for gone, at in zip(absent, position, strict=True)]
    others = [axis for axis in range(len(grid.factors)) if axis not in filled]
    counts = usable.reshape(grid.shape)[tuple(slices)].permute(*filled, *others).reshape(free.size, -1).sum(dim=1)
    chosen = torch.nonzero(counts).flatten()
    if not len(chosen):
        raise InvalidValue("values", row.tolist(), "values of combinations that may be trained on")
    if len(chosen) > MOST_AVERAGED:  # the sample depends only on the row
        shown = ", ".join(f"{name}={value:g}" for name, value in zip(grid.names, row.tolist(), strict=True))
        order = torch.randperm(len(chosen), generator=stream(0, f"mean over the absent factors of {shown}"))
        chosen = chosen[order[:MOST_AVERAGED].sort().values]
    rows = row.expand(len(chosen), -1).clone()
    rows[:, filled] = free.rows(chosen)
    return rows, counts[chosen].double()
