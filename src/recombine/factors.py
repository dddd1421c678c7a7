"""Factors of variation and the grid of their combinations.

A factor has `count` values from `low` to `high`, evenly spaced unless they are `given` one by one. Its *position* is
the value counted in steps: 0 at `low`, `count − 1` at `high`, and straight lines between neighbouring values.
Population codes and hold-outs speak of positions, renderers of values; for a pixel coordinate (0 … N−1) the two are the
same.

The *form* says what a value is, for those whom it concerns:

- `number`: a quantity, which may lie between two values of the grid;
- `category`: one of a few kinds (a shape), with nothing between two of them;
- `angle`: a quantity that returns after a `period`, 360 unless the factor says otherwise (2π for radians, 90 for the
  orientation of a square). The values may span at most one period.

Points of a grid are ordered with the last factor fastest, as `itertools.product` orders them. A grid of a million
points need not be enumerated: `rows` gives the values of some of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, Self, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.errors import InvalidValue, listed

LARGEST_GRID = 10**7
"""Points that a grid may have, and values that a factor may have: the coordinates of more would fill a machine."""
TURN = 360.0
"""Period of an angle that does not give its own, in degrees."""

Form = Literal["number", "category", "angle"]
FORMS: tuple[Form, ...] = get_args(Form)
ANGLE = "angle"
"""Name of a factor that is an angle in degrees unless its text says otherwise."""
TEXT = "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas"


@dataclass(frozen=True)
class Factor:
    """One factor: its name, its values, and what they are.

    Parameters
    ----------
    name
        As flags and Datasets call it.
    low
        Its lowest value.
    high
        Its highest value.
    count
        How many values it has.
    form
        What a value is: `number`, `category` or `angle`.
    given
        The values themselves, lowest first, where they are not evenly spaced.
    period
        After how much an angle returns; none for other forms.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.Factor("x", 0, 3, 4).values
    tensor([0., 1., 2., 3.], dtype=torch.float64)
    >>> rc.Factor("x", 0, 3, 4).spacing
    1.0
    """

    name: str
    low: float
    high: float
    count: int
    form: Form = "number"
    given: tuple[float, ...] | None = None
    period: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise InvalidValue("factor", self.name, "a name of letters, digits and underscores")
        for bound in ("low", "high"):
            if not math.isfinite(getattr(self, bound)):
                raise InvalidValue(f"{self.name}.{bound}", getattr(self, bound), "a finite number")
        if not 1 <= self.count <= LARGEST_GRID:
            raise InvalidValue(f"{self.name}.count", self.count, f"1 to {LARGEST_GRID}")
        if self.count == 1 and self.high != self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"{self.low}, the only value")
        if self.count > 1 and not self.high > self.low:
            raise InvalidValue(f"{self.name}.high", self.high, f"greater than {self.low}")
        if self.form not in FORMS:
            raise InvalidValue(f"{self.name}.form", self.form, f"one of {listed(FORMS)}")
        self._check_given()
        self._check_period()

    def _check_given(self) -> None:
        if self.given is None:
            return
        numbers = _increasing(self.name, self.given)
        object.__setattr__(self, "given", numbers)  # whatever iterable they came in
        if (len(numbers), numbers[0], numbers[-1]) != (self.count, self.low, self.high):
            allowed = f"{self.count} numbers, from {self.low} to {self.high}"
            raise InvalidValue(f"{self.name}.given", list(numbers), allowed)

    def _check_period(self) -> None:
        if self.form != "angle":
            if self.period is not None:
                raise InvalidValue(f"{self.name}.period", self.period, "left out: only an angle has a period")
            return
        period = TURN if self.period is None else float(self.period)
        if not 0 < period < math.inf:
            raise InvalidValue(f"{self.name}.period", period, "a finite number greater than 0")
        object.__setattr__(self, "period", period)
        if self.high - self.low > period:
            raise InvalidValue(f"{self.name}.high", self.high, f"at most one period ({period:g}) above {self.low}")

    @classmethod
    def of(cls, name: str, values: Iterable[float], form: Form = "number", period: float | None = None) -> Self:
        """The factor with these values, lowest first; evenly spaced where they are exactly those of such a factor.

        >>> Factor.of("size", [0.5, 0.7, 1.0]).position(torch.tensor([0.6, 1.0]).double()).tolist()
        [0.5, 2.0]
        >>> Factor.of("shape", range(3), form="category")
        Factor(name='shape', low=0.0, high=2.0, count=3, form='category', given=None, period=None)
        """
        numbers = _increasing(name, values)
        even = cls(name, numbers[0], numbers[-1], len(numbers), form, None, period)
        return even if even.values.tolist() == list(numbers) else replace(even, given=numbers)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The factor of `NAME=LOW:HIGH` or `NAME=LOW:HIGH:COUNT`, either with `:FORM`."""
        name, _, span = text.partition("=")
        name, bounds = name.strip(), span.split(":")
        form = bounds.pop() if bounds[-1] in FORMS else None
        try:
            low, high = float(bounds[0]), float(bounds[1])
            steps = int(bounds[2]) - 1 if len(bounds) == 3 else round(high - low)
        except (ValueError, IndexError, OverflowError):
            raise InvalidValue("grid", text, TEXT) from None
        if not name.isidentifier() or len(bounds) > 3:
            raise InvalidValue("grid", text, TEXT)
        if len(bounds) < 3 and high - low != steps:
            raise InvalidValue("grid", text, "bounds an integer apart, or NAME=LOW:HIGH:COUNT")
        form = form or (ANGLE if name == ANGLE and high - low <= TURN else "number")
        return cls(name, low, high, steps + 1, cast(Form, form))

    @property
    def spacing(self) -> float:
        """Distance between neighbouring values; their mean distance where that differs."""
        return (self.high - self.low) / (self.count - 1) if self.count > 1 else 1.0

    @cached_property
    def values(self) -> Float[Tensor, " value"]:
        """All values, lowest first."""
        if self.given is not None:
            return torch.tensor(self.given, dtype=torch.float64)
        return torch.linspace(self.low, self.high, self.count, dtype=torch.float64)

    def position(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Values counted in steps from the lowest; beyond the ends, in steps as wide as the last."""
        if self.given is None or self.count == 1:
            return (values - self.low) / self.spacing
        own = self.values.to(values)
        below = (torch.searchsorted(own, values.detach().contiguous(), right=True) - 1).clamp(0, self.count - 2)
        return below + (values - own[below]) / (own[below + 1] - own[below])

    def radians(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Angles in radians: 2π for one period."""
        if self.period is None:
            raise InvalidValue(f"{self.name}.form", self.form, "angle, which alone has a period")
        return torch.deg2rad(values) if self.period == TURN else values * (2 * math.pi / self.period)

    def nearby(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Values as they are; angles outside the range by whole periods nearer to it."""
        if self.period is None:
            return values
        gap = (self.period - (self.high - self.low)) / 2  # on each side of the range
        wrapped = (values - self.low + gap).remainder(self.period) + self.low - gap
        return torch.where((values < self.low) | (values > self.high), wrapped, values)


def _increasing(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """The values of a factor as numbers, each greater than the one before."""
    numbers = tuple(float(value) for value in values)
    if not numbers or not all(a < b for a, b in pairwise(numbers)):
        raise InvalidValue(f"{name}.given", list(numbers), "different numbers, lowest first")
    return numbers


@dataclass(frozen=True)
class FactorGrid:
    """All combinations of the values of some factors.

    Parameters
    ----------
    factors
        The factors, the last of which is fastest in the order of points.

    Examples
    --------
    >>> import recombine as rc
    >>> grid = rc.FactorGrid((rc.Factor("x", 0, 1, 2), rc.Factor("y", 0, 2, 3)))
    >>> grid.shape, grid.names
    ((2, 3), ('x', 'y'))
    >>> grid.points.tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]
    """

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(self.factors))  # whatever iterable they came in
        if not self.factors:
            raise InvalidValue("factors", (), "at least one factor")
        if len(set(self.names)) < len(self.factors):
            raise InvalidValue("factors", list(self.names), "different names")
        if self.size > LARGEST_GRID:
            raise InvalidValue("grid", self.size, f"at most {LARGEST_GRID} combinations")

    @classmethod
    def parse(cls, text: str) -> Self:
        """`x=0:27,y=0:27`: integers, both ends included; `b=0.25:1:4` has a number of values as well.

        A form may come last, as in `shape=0:2:category`; a factor called `angle` is one.

        >>> FactorGrid.parse("x=0:27,size=0.5:1:3").shape
        (28, 3)
        """
        return cls(tuple(Factor.parse(part.strip()) for part in text.split(",")))

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
        """Each point's integer positions; all points at once, for `positions` of some."""
        return self.positions(torch.arange(self.size))

    @cached_property
    def points(self) -> Float[Tensor, "point factor"]:
        """Each point's factor values; all points at once, for `rows` of some."""
        return self.rows(torch.arange(self.size))

    def positions(self, indices: Int[Tensor, " row"]) -> Int[Tensor, "row factor"]:
        """Integer positions of some points, which are given by their places in the grid's order.

        >>> FactorGrid((Factor("x", 0, 27, 28), Factor("y", 0, 27, 28))).positions(torch.tensor([0, 29, 783])).tolist()
        [[0, 0], [1, 1], [27, 27]]
        """
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.size:
            raise InvalidValue("indices", indices, f"places in the grid's order, 0 to {self.size - 1}")
        rest, columns = indices.long(), list[Tensor]()
        for count in reversed(self.shape):  # not `torch.unravel_index`, which takes seconds to load
            columns.append(rest % count)
            rest = rest // count
        return torch.stack(columns[::-1], dim=1)

    def rows(self, indices: Int[Tensor, " row"]) -> Float[Tensor, "row factor"]:
        """Factor values of some points, which are given by their places in the grid's order.

        >>> FactorGrid((Factor("x", 0, 9, 10), Factor("size", 0.5, 1, 2))).rows(torch.tensor([0, 3])).tolist()
        [[0.0, 0.5], [1.0, 1.0]]
        """
        columns = self.positions(indices).unbind(1)
        values = [factor.values.to(indices.device) for factor in self.factors]
        return torch.stack([own[column] for own, column in zip(values, columns, strict=True)], dim=1)

    def axes(self, factors: tuple[str | int, ...] | None) -> tuple[int, ...]:
        """Places of some factors, given by name or place, in the order given; of all where none are given."""
        if factors is None:
            return tuple(range(len(self.factors)))
        allowed = f"different factors of {listed(self.names)}, by name or place"
        axes = []
        for factor in factors:
            place = self.names.index(factor) if factor in self.names else factor
            if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(self.factors):
                raise InvalidValue("factors", factor, allowed)
            axes.append(place)
        if not axes or len(set(axes)) < len(axes):
            raise InvalidValue("factors", list(factors), allowed)
        return tuple(axes)

    def nearest(self, values: Float[Tensor, "point factor"]) -> Int[Tensor, " point"]:
        """Index of the grid point nearest to each row of values; of angles, the nearest on the circle.

        >>> FactorGrid((Factor("angle", 0, 270, 4, form="angle"),)).nearest(torch.tensor([[260.0], [350.0]])).tolist()
        [3, 0]
        """
        if values.shape[1] != len(self.factors) or not bool(torch.isfinite(values).all()):
            raise InvalidValue("values", values, f"finite numbers, one for each of {listed(self.names)}")
        flat = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        for k, factor in enumerate(self.factors):
            step = factor.position(factor.nearby(values[:, k])).round().long().clamp(0, factor.count - 1)
            flat = flat * factor.count + step
        return flat
