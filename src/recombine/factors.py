"""Factors of variation and the grid of their combinations.

A factor has `count` values from `low` to `high`, evenly spaced unless listed in `given`. A value's *position* is its
index, 0 at `low` and `count − 1` at `high`, interpolated linearly between neighbouring values. Population codes and
hold-outs use positions, renderers use values; for a pixel coordinate (0 … N−1), they are equal. A factor's *form* is
one of

- `number`: a quantity that may lie between two values of the grid;
- `category`: one of several kinds, such as shapes, with nothing in between;
- `angle`: a periodic quantity with `period` 360 by default (2π for radians, 90 for the orientation of a square). The
  values may span at most one period.

The last factor of a grid varies fastest, as in `itertools.product`. Large grids are not enumerated: `rows` returns the
values of selected points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.errors import InvalidValue, listed

LARGEST_GRID = 10**7
"""Maximum number of points in a grid and of values of a factor, so that coordinates fit into memory."""
TURN = 360.0
"""Default period of an angle, in degrees."""

Form = Literal["number", "category", "angle"]
FORMS: tuple[Form, ...] = get_args(Form)
TEXT = "NAME=LOW:HIGH, NAME=LOW:HIGH:COUNT or NAME=VALUE;VALUE;…, separated by commas"
EVEN = 1e-9
"""Tolerance for even spacing of given values, relative to the spacing."""


@dataclass(frozen=True)
class Factor:
    """A factor of variation.

    Parameters
    ----------
    name
        Name of the factor in flags and Datasets.
    low
        Lowest value.
    high
        Highest value.
    count
        Number of values.
    form
        `number`, `category` or `angle`.
    given
        The values in increasing order, if they are not evenly spaced.
    period
        Period of an angle; None for other forms.
    labels
        Names or numbers that the values of a category stand for, if any. They are not compared.

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
    labels: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise InvalidValue("factor", self.name, "a name made of letters, digits and underscores")
        if self.given is not None:
            object.__setattr__(self, "given", _increasing(self.name, self.given))
        if self.form == "angle":
            object.__setattr__(self, "period", TURN if self.period is None else float(self.period))
        ends = (self.count, self.low, self.high)
        period = math.inf if self.period is None else self.period
        rules = (
            ("low", math.isfinite(self.low), "a finite number"),
            ("high", math.isfinite(self.high), "a finite number"),
            ("high", self.count == 1 or self.high > self.low, f"greater than {self.low}"),
            ("count", 1 <= self.count <= LARGEST_GRID, f"1 to {LARGEST_GRID}"),
            ("high", self.count != 1 or self.high == self.low, f"{self.low}, the only value"),
            ("form", self.form in FORMS, f"one of {listed(FORMS)}"),
            ("given", self.given is None or (len(self.given), self.given[0], self.given[-1]) == ends,
             f"{self.count} numbers, from {self.low} to {self.high}"),
            ("period", self.form == "angle" or self.period is None, "omitted, since only an angle has a period"),
            ("period", self.period is None or 0 < self.period < math.inf, "a finite number greater than 0"),
            ("high", self.high - self.low <= period, f"at most one period ({period:g}) above {self.low}"),
            ("labels", self.labels is None or self.count == len(self.labels) == len({*self.labels}),
             f"{self.count} different names, one per value"),
        )  # fmt: skip
        for name, valid, allowed in rules:
            if not valid:
                raise InvalidValue(f"{self.name}.{name}", getattr(self, name), allowed)

    @classmethod
    def of(cls, name: str, values: Iterable[float], form: Form = "number", period: float | None = None) -> Self:
        """Return a factor with the given increasing values; `given` is None if they are evenly spaced.

        >>> Factor.of("size", [0.5, 0.7, 1.0]).position(torch.tensor([0.6, 1.0]).double()).tolist()
        [0.5, 2.0]
        >>> Factor.of("shape", range(3), form="category")
        Factor(name='shape', low=0.0, high=2.0, count=3, form='category', given=None, period=None)
        """
        numbers = _increasing(name, values)
        even = cls(name, numbers[0], numbers[-1], len(numbers), form, None, period)
        return even if even.values.tolist() == list(numbers) else replace(even, given=numbers)

    @classmethod
    def over(cls, name: str, values: Any) -> Self:
        """Return a factor with increasing numbers, the names of a category, or text such as `0:27` as its values.

        >>> Factor.over("x", np.linspace(0, 1, 5))
        Factor(name='x', low=0.0, high=1.0, count=5, form='number', given=None, period=None)
        >>> Factor.over("shape", ["heart", "square"]).labels
        ('heart', 'square')
        """
        if isinstance(values, str):
            return cls.parse(f"{name}={values}")
        listed_values = np.asarray(values if hasattr(values, "__array__") else list(values)).tolist()
        if listed_values and all(isinstance(value, str) for value in listed_values):
            count = len(listed_values)
            return cls(name, 0, count - 1, count, "category", labels=tuple(listed_values))
        numbers = _increasing(name, listed_values)
        even = np.linspace(numbers[0], numbers[-1], len(numbers))
        gap, span = np.abs(even - numbers).max(), numbers[-1] - numbers[0]
        form: Form = "angle" if name == "angle" and span <= TURN else "number"
        is_even = gap <= EVEN * span / max(1, len(numbers) - 1)
        return cls(name, numbers[0], numbers[-1], len(numbers), form, None if is_even else numbers)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `NAME=LOW:HIGH[:COUNT][:FORM]` or `NAME=VALUE;VALUE;…`; a factor called `angle` is an angle by default.

        >>> Factor.parse("size=0.5;0.7;1").values.tolist()
        [0.5, 0.7, 1.0]
        """
        name, _, span = text.partition("=")
        name, bounds = name.strip(), span.split(":")
        if ";" in span:
            try:
                numbers = [float(value) for value in span.removesuffix(";").split(";")]
            except ValueError:
                raise InvalidValue("grid", text, TEXT) from None
            return cls.over(name, numbers)
        form = bounds.pop() if bounds[-1] in FORMS else None
        try:
            low, high = float(bounds[0]), float(bounds[1])
            steps = int(bounds[2]) - 1 if len(bounds) == 3 else round(high - low)
        except (ValueError, IndexError, OverflowError):
            raise InvalidValue("grid", text, TEXT) from None
        if not name.isidentifier() or len(bounds) > 3:
            raise InvalidValue("grid", text, TEXT)
        if len(bounds) < 3 and high - low != steps:
            raise InvalidValue("grid", text, "bounds that differ by an integer, or NAME=LOW:HIGH:COUNT")
        form = form or ("angle" if name == "angle" and high - low <= TURN else "number")
        return cls(name, low, high, steps + 1, cast(Form, form))

    @property
    def text(self) -> str:
        """The values as the text that `over` accepts."""
        if self.given is not None:
            return ";".join(map(plain, self.given))
        return f"{plain(self.low)}:{plain(self.high)}:{self.count}"

    def label(self, position: int) -> str:
        """Return the value at a position as shown in summaries: a name, or a number with at most six digits."""
        value = self.values[position].item() if self.labels is None else self.labels[position]
        return value if isinstance(value, str) else f"{value:g}"

    @property
    def spacing(self) -> float:
        """Mean distance between neighbouring values."""
        return (self.high - self.low) / (self.count - 1) if self.count > 1 else 1.0

    @cached_property
    def values(self) -> Float[Tensor, " value"]:
        """All values, in increasing order."""
        if self.given is not None:
            return torch.tensor(self.given, dtype=torch.float64)
        return torch.linspace(self.low, self.high, self.count, dtype=torch.float64)

    def position(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the positions of values, extrapolated linearly outside the range."""
        if self.given is None or self.count == 1:
            return (values - self.low) / self.spacing
        own = self.values.to(values)
        below = (torch.searchsorted(own, values.detach().contiguous(), right=True) - 1).clamp(0, self.count - 2)
        return below + (values - own[below]) / (own[below + 1] - own[below])

    def radians(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return angles in radians, scaled so that one period is 2π."""
        if self.period is None:
            raise InvalidValue(f"{self.name}.form", self.form, "angle, the only form with a period")
        return values * (2 * math.pi / self.period)

    def nearby(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the values; angles outside the range are shifted by whole periods to be as close to it as possible."""
        if self.period is None:
            return values
        gap = (self.period - (self.high - self.low)) / 2  # on each side of the range
        wrapped = (values - self.low + gap).remainder(self.period) + self.low - gap
        return torch.where((values < self.low) | (values > self.high), wrapped, values)


def plain(number: float) -> str:
    """Return a number as text without loss, and without a fraction if it is an integer.

    >>> plain(8.0), plain(0.1)
    ('8', '0.1')
    """
    return repr(float(number)).removesuffix(".0")


def _increasing(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """Return the values as floats; raise an error unless they increase."""
    numbers = tuple(float(value) for value in values)
    if not numbers or not all(a < b for a, b in pairwise(numbers)):
        raise InvalidValue(f"{name}.given", list(numbers), "in increasing order")
    return numbers


@dataclass(frozen=True)
class FactorGrid:
    """All combinations of the values of several factors.

    Parameters
    ----------
    factors
        The factors; the last one varies fastest.

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
        object.__setattr__(self, "factors", tuple(self.factors))  # from any iterable
        if not self.factors:
            raise InvalidValue("factors", (), "at least one factor")
        if len(set(self.names)) < len(self.factors):
            raise InvalidValue("factors", list(self.names), "different names")
        if self.size > LARGEST_GRID:
            raise InvalidValue("grid", self.size, f"at most {LARGEST_GRID} combinations")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `x=0:27,y=0:27` (integers, both ends included), `b=0.25:1:4` (four values), `s=0:2:category`.

        >>> FactorGrid.parse("x=0:27,size=0.5:1:3").shape
        (28, 3)
        """
        return cls(tuple(Factor.parse(part.strip()) for part in text.split(",")))

    @classmethod
    def of(cls, given: Grid | None) -> FactorGrid:
        """Return the grid given as a `FactorGrid`, as text, or as the values of each factor by name.

        >>> FactorGrid.of({"x": range(28), "y": np.linspace(0, 1, 5), "shape": ["heart", "square"]}).shape
        (28, 5, 2)
        """
        if isinstance(given, FactorGrid):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        if not isinstance(given, Mapping):
            forms = 'a FactorGrid, a string such as "x=0:27,y=0:1:5", or values by name such as {"x": range(28)}'
            raise InvalidValue("grid", given, forms)
        return cls(tuple(Factor.over(name, values) for name, values in given.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the factors."""
        return tuple(factor.name for factor in self.factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each factor."""
        return tuple(factor.count for factor in self.factors)

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.shape)

    @cached_property
    def indices(self) -> Int[Tensor, "point factor"]:
        """Integer positions of all points."""
        return self.positions(torch.arange(self.size))

    @cached_property
    def points(self) -> Float[Tensor, "point factor"]:
        """Factor values of all points."""
        return self.rows(torch.arange(self.size))

    def positions(self, indices: Int[Tensor, " row"]) -> Int[Tensor, "row factor"]:
        """Return the integer positions of points, given the points' indices.

        >>> FactorGrid((Factor("x", 0, 27, 28), Factor("y", 0, 27, 28))).positions(torch.tensor([0, 29, 783])).tolist()
        [[0, 0], [1, 1], [27, 27]]
        """
        columns = np.unravel_index(indices.cpu().numpy(), self.shape)  # `torch.unravel_index` takes seconds to import
        return torch.from_numpy(np.stack(columns, axis=1)).to(indices.device)

    def rows(self, indices: Int[Tensor, " row"]) -> Float[Tensor, "row factor"]:
        """Return the factor values of points, given the points' indices.

        >>> FactorGrid((Factor("x", 0, 9, 10), Factor("size", 0.5, 1, 2))).rows(torch.tensor([0, 3])).tolist()
        [[0.0, 0.5], [1.0, 1.0]]
        """
        columns = self.positions(indices).unbind(1)
        values = [factor.values.to(indices.device) for factor in self.factors]
        return torch.stack([own[column] for own, column in zip(values, columns, strict=True)], dim=1)

    def axes(self, factors: tuple[str | int, ...] | None) -> tuple[int, ...]:
        """Return the indices of factors given by name or index; None means all."""
        if factors is None:
            return tuple(range(len(self.factors)))
        places = [self.names.index(factor) if factor in self.names else factor for factor in factors]
        axes = tuple(place for place in places if type(place) is int and 0 <= place < len(self.factors))
        if not places or len(set(axes)) < len(places):
            allowed = f"distinct factors from {listed(self.names)}, by name or index"
            raise InvalidValue("factors", list(factors), allowed)
        return axes

    def nearest(self, values: Float[Tensor, "point factor"]) -> Int[Tensor, " point"]:
        """Return the index of the grid point nearest to each row of values; angles are compared on the circle.

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


Grid = FactorGrid | str | Mapping[str, Any]
"""A factor grid, its text, or the values of each factor by name."""
