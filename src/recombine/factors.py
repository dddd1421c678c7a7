"""Factors of variation and the grid of their combinations.

A factor has `count` evenly spaced values from `low` to `high`. Its *position* is the value in units of the spacing:
0 at `low`, `count − 1` at `high`. Population codes and hold-outs speak of positions, renderers of values; for a pixel
coordinate (0 … N−1) the two are the same.

Points of a grid are ordered with the last factor fastest, as `itertools.product` orders them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.checks import checked, items, number, whole_number
from recombine.errors import InvalidValue, listed

LARGEST_GRID = 10**7
"""Points that a grid may have, and values that a factor may have: the coordinates of more would fill a machine."""


@dataclass(frozen=True)
class Factor:
    """One factor: a name and its evenly spaced values."""

    name: str
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise InvalidValue("factor", self.name, "a name of letters, digits and underscores")
        for bound in ("low", "high"):
            number(f"{self.name}.{bound}", getattr(self, bound))
        whole_number(f"{self.name}.count", self.count, at_most=LARGEST_GRID)
        if self.count == 1 and self.high != self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"{self.low}, the only value")
        if self.count > 1 and not self.high > self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"greater than {self.low}")
        if not (self.low < self.low + self.spacing < math.inf and self.high - self.spacing < self.high):
            raise InvalidValue(f"{self.name}.high", self.high, f"{self.count} different numbers from {self.low} on")

    @property
    def spacing(self) -> float:
        """Distance between neighbouring values."""
        return (self.high - self.low) / (self.count - 1) if self.count > 1 else 1.0

    @cached_property
    def values(self) -> Float[Tensor, " value"]:
        """All values, lowest first."""
        return torch.linspace(self.low, self.high, self.count, dtype=torch.float64)

    @checked
    def position(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Values in units of the spacing, counted from the lowest."""
        return (values - self.low) / self.spacing


@dataclass(frozen=True)
class FactorGrid:
    """All combinations of the values of some factors."""

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        factors = items("factors", self.factors, Factor, example='factors, as (Factor("x", 0, 27, 28), …)')
        object.__setattr__(self, "factors", tuple(factors))  # whatever iterable they came in
        if not factors:
            raise InvalidValue("factors", (), "at least one factor")
        if len(set(self.names)) < len(factors):
            raise InvalidValue("factors", list(self.names), "different names")
        if self.size > LARGEST_GRID:
            raise InvalidValue("grid", self.size, f"at most {LARGEST_GRID} combinations")

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
        return math.prod(self.shape)

    @cached_property
    def indices(self) -> Int[Tensor, "point factor"]:
        """Each point's integer positions."""
        return torch.cartesian_prod(*(torch.arange(n) for n in self.shape)).reshape(self.size, len(self.shape))

    @cached_property
    def points(self) -> Float[Tensor, "point factor"]:
        """Each point's factor values."""
        columns = [factor.values[self.indices[:, k]] for k, factor in enumerate(self.factors)]
        return torch.stack(columns, dim=1)

    @checked
    def nearest(self, values: Float[Tensor, "point factor"]) -> Int[Tensor, " point"]:
        """Index of the grid point nearest to each row of values."""
        if values.shape[1] != len(self.factors) or not bool(torch.isfinite(values).all()):
            raise InvalidValue("values", values, f"finite numbers, one for each of {listed(self.names)}")
        flat = torch.zeros(len(values), dtype=torch.int64)
        for k, factor in enumerate(self.factors):
            step = factor.position(values[:, k]).round().long().clamp(0, factor.count - 1)
            flat = flat * factor.count + step
        return flat
