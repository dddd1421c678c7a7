"""Factors of variation and the grid of their combinations.

A factor has `count` evenly spaced values from `low` to `high`. Its *position* is the value in units of the spacing:
0 at `low`, `count − 1` at `high`. Population codes and hold-outs speak of positions, renderers of values; for a pixel
coordinate (0 … N−1) the two are the same.

Points of a grid are ordered with the last factor fastest, as `itertools.product` orders them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.errors import InvalidValue


@dataclass(frozen=True)
class Factor:
    """One factor: a name and its evenly spaced values."""

    name: str
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidValue(f"{self.name}.count", self.count, "at least 1")
        if self.count == 1 and self.high != self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"{self.low}, the only value")
        if self.count > 1 and not self.high > self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"greater than {self.low}")

    @property
    def spacing(self) -> float:
        """Distance between neighbouring values."""
        return (self.high - self.low) / (self.count - 1) if self.count > 1 else 1.0

    @cached_property
    def values(self) -> Float[Tensor, " value"]:
        """All values, lowest first."""
        return torch.linspace(self.low, self.high, self.count, dtype=torch.float64)

    def position(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Values in units of the spacing, counted from the lowest."""
        return (values - self.low) / self.spacing


@dataclass(frozen=True)
class FactorGrid:
    """All combinations of the values of some factors."""

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        names = [factor.name for factor in self.factors]
        if not names:
            raise InvalidValue("factors", (), "at least one factor")
        if len(set(names)) < len(names):
            raise InvalidValue("factors", names, "different names")

    @property
    def names(self) -> tuple[str, ...]:
        """The factors' names, in order."""
        return tuple(factor.name for factor in self.factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each factor has."""
        return tuple(factor.count for factor in self.factors)

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return prod(self.shape)

    @cached_property
    def indices(self) -> Int[Tensor, "point factor"]:
        """Each point's integer positions."""
        return torch.cartesian_prod(*(torch.arange(n) for n in self.shape)).reshape(self.size, len(self.shape))

    @cached_property
    def points(self) -> Float[Tensor, "point factor"]:
        """Each point's factor values."""
        columns = [factor.values[self.indices[:, k]] for k, factor in enumerate(self.factors)]
        return torch.stack(columns, dim=1)

    def nearest(self, values: Float[Tensor, "point factor"]) -> Int[Tensor, " point"]:
        """Index of the grid point nearest to each row of values."""
        flat = torch.zeros(len(values), dtype=torch.int64)
        for k, factor in enumerate(self.factors):
            step = factor.position(values[:, k]).round().long().clamp(0, factor.count - 1)
            flat = flat * factor.count + step
        return flat
