"""Rules that choose a training set from the combinations that are not held out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from jaxtyping import Int
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.records import Registry, Variant


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
    """Combinations drawn with replacement, `samples` in all.

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
    """Number of distinct combinations."""

    def choose(self, available: int, generator: torch.Generator) -> Int[Tensor, " row"]:
        if self.samples > available:
            raise InvalidValue("training.samples", self.samples, f"at most {available}, the number to choose from")
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


def repeated(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Repeat rows until there are `count`; the last repetition is a random subset."""
    times, rest = divmod(count, len(rows))
    return torch.cat([rows.repeat(times, 1), rows[torch.randperm(len(rows), generator=generator)[:rest]]])
