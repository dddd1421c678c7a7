"""Tasks whose factors are any of the quantities that a renderer can vary.

A renderer has a table of quantities (x, y, scale, hue, …). The field `factors` says which of them are factors, in which
order and with how many values; `fixed` says what the others are:

- `x=8`: 8 values of x, over the range that its renderer gives it;
- `scale=6..12..4`: 4 values of scale from 6 to 12, both ends included;
- `fixed`: `hue=120` where hue is no factor. A quantity in neither has its renderer's own value.

A range may be **open** at one end, so that neither the 0 of an intensity nor the second 0° of a full turn is a value:
4 intensities are ¼, ½, ¾ and 1, 4 rotations are 0°, 90°, 180° and 270°.

The numbers of such texts are written in one way only, so that equal tasks have equal digests.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import AfterValidator, model_validator
from torch import Tensor

from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.tasks.base import Task

POSITION = ("x", "y")
"""Names of the factors that are a place in the image: column and row."""
FARTHEST = 1e6
"""Bound of quantities that have none of their own."""


@dataclass(frozen=True)
class Quantity:
    """Something that a renderer can vary."""

    name: str
    low: float
    high: float
    usual: float = math.nan
    """Its value where it is neither a factor nor fixed; NaN: absent."""
    least: float = -FARTHEST
    most: float = FARTHEST
    """What can be drawn lies between these two."""
    open_end: Literal["low", "high"] | None = None
    """An end of the range that is not itself a value."""
    form: Literal["number", "category", "angle"] = "number"
    period: float | None = None
    """After how much an angle returns."""

    def factor(self, count: int, *ends: float) -> Factor:
        """The factor with so many evenly spaced values, between two ends of its own if they are given."""
        step = (self.high - self.low) / count
        first = self.low + step if self.open_end == "low" else self.low
        last = self.high - step if self.open_end == "high" else self.high
        low, high = ends or (first, last)
        if self.form == "category":
            low, high = 0.0, count - 1.0
            if high > self.most:
                allowed = f"at most {self.most + 1:g} values of {self.name}"
                raise InvalidValue("factors", f"{self.name}={count}", allowed)
            if ends and ends != (low, high):
                text = f"{self.name}={'..'.join(map(_written, ends))}..{count}"
                raise InvalidValue("factors", text, f"{self.name}={count}: of a category, the first {count}")
        for end in (low, high):
            self.check(end)
        return Factor(self.name, low, high, count, form=self.form, period=self.period)

    def check(self, value: float) -> float:
        """The value, if it can be drawn."""
        if not self.least <= value <= self.most or (self.form == "category" and value != int(value)):
            raise InvalidValue(self.name, value, self.allowed)
        return value

    @property
    def allowed(self) -> str:
        """What can be drawn, in words."""
        kind = "an integer, " if self.form == "category" else ""
        return f"{kind}{self.least:g} to {self.most:g}"


FACTOR_TEXT = "NAME=COUNT or NAME=LOW..HIGH..COUNT with at least 2 values, as x=8 or scale=6..12..4"
FIXED_TEXT = "NAME=VALUE, as hue=120"


def _parsed_factor(text: str) -> tuple[str, int, tuple[float, ...]]:
    """Name, number of values, and the ends of the range if they are given."""
    name, _, span = text.partition("=")
    *ends, count = span.split("..")
    try:
        parsed = name.strip(), int(count), tuple(float(end) for end in ends)
    except (ValueError, OverflowError):
        raise InvalidValue("factors", text, FACTOR_TEXT) from None
    if parsed[1] < 2 or len(ends) not in (0, 2) or not all(math.isfinite(end) for end in parsed[2]):
        raise InvalidValue("factors", text, FACTOR_TEXT)
    return parsed


def _parsed_value(text: str) -> tuple[str, float]:
    """Name and value."""
    name, _, value = text.partition("=")
    try:
        parsed = name.strip(), float(value)
    except ValueError:
        raise InvalidValue("fixed", text, FIXED_TEXT) from None
    if not math.isfinite(parsed[1]):
        raise InvalidValue("fixed", text, FIXED_TEXT)
    return parsed


def _written_factor(text: str) -> str:
    name, count, ends = _parsed_factor(text)
    return f"{name}=" + "..".join([*(_written(end) for end in ends), str(count)])


def _written_value(text: str) -> str:
    name, value = _parsed_value(text)
    return f"{name}={_written(value)}"


def _written(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) <= FARTHEST else repr(number)


FactorText = Annotated[str, AfterValidator(_written_factor)]
FixedText = Annotated[str, AfterValidator(_written_value)]


class QuantityTask(Task):
    """A task whose factors are chosen among the quantities of its renderer."""

    factors: tuple[FactorText, ...]
    """Which quantities are factors, each as NAME=COUNT or NAME=LOW..HIGH..COUNT."""
    fixed: tuple[FixedText, ...] = ()
    """What quantities are that are no factors, each as NAME=VALUE; the others have values of their own."""

    peaked: ClassVar[bool] = True
    """Whether the extreme pixel is at (x, y), and not anywhere on something as bright all over."""

    @abstractmethod
    def quantities(self) -> tuple[Quantity, ...]:
        """Everything that the renderer can vary."""

    @property
    def position_factors(self) -> tuple[str, ...]:  # type: ignore[override]  # here it depends on the factors
        """Column and row of the extreme pixel, where both are factors."""
        return POSITION if self.peaked and {*POSITION} <= {*self.grid.names} else ()

    def factor_grid(self) -> FactorGrid:
        parsed = [_parsed_factor(text) for text in self.factors]
        return FactorGrid(tuple(self._quantity("factors", name).factor(count, *ends) for name, count, ends in parsed))

    @cached_property
    def fixed_values(self) -> dict[str, float]:
        """The value of every quantity that is no factor; NaN where it is absent."""
        values = {
            quantity.name: quantity.usual for quantity in self.quantities() if quantity.name not in self.grid.names
        }
        for name, value in map(_parsed_value, self.fixed):
            quantity = self._quantity("fixed", name)
            if name not in values:
                raise InvalidValue("fixed", f"{name}={_written(value)}", f"left out: {name} is a factor")
            values[name] = quantity.check(value)
        return values

    def columns(self, values: Float[Tensor, "row factor"]) -> dict[str, Float[Tensor, " row"]]:
        """Every quantity's value in each row, of factors as given and of the others as fixed."""
        self.check_columns(values)
        given = dict(zip(self.grid.names, values.unbind(1), strict=True))
        columns = {name: values.new_full((len(values),), value) for name, value in self.fixed_values.items()}
        for quantity in self.quantities():
            if quantity.name in given:
                self._check_drawable(quantity, given[quantity.name])
        return columns | given

    def _check_drawable(self, quantity: Quantity, values: Float[Tensor, " row"]) -> None:
        optional = self.optional_factors is None or quantity.name in self.optional_factors
        inside = ((values >= quantity.least) & (values <= quantity.most)) | (torch.isnan(values) & optional)
        if not bool(inside.all()):
            wrong = values.detach()[~inside][0].item()
            absent = "" if optional else ", present in every row"
            raise InvalidValue(f"values of {quantity.name}", wrong, quantity.allowed + absent)

    def _quantity(self, field: str, name: str) -> Quantity:
        by_name = {quantity.name: quantity for quantity in self.quantities()}
        if name not in by_name:
            raise InvalidValue(field, name, listed(by_name))
        return by_name[name]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(names := [text.partition("=")[0] for text in self.fixed]) > len(set(names)):
            raise InvalidValue("fixed", ",".join(self.fixed), "one value for each quantity")
        self.fixed_values  # noqa: B018  refuses what cannot be drawn
        return super()._check()  # type: ignore[operator]  # a plain method once the class is made
