"""Tasks whose factors are chosen from the quantities that a renderer can vary (x, y, scale, hue, …).

- `factors`: `x=8` means 8 values of x over its default range; `scale=6..12..4` means 4 values from 6 to 12 inclusive;
- `fixed`: `hue=120` sets a quantity that is not a factor. All others keep the renderer's defaults.

A default range may exclude one end, such as intensity 0, or 360° (which equals 0°): 4 intensities are ¼, ½, ¾ and 1,
and 4 rotations are 0°, 90°, 180° and 270°. Numbers are normalised, so that equal tasks have equal digests.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import AfterValidator, model_validator
from torch import Tensor

from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.tasks.base import Task

FARTHEST = 1e6
"""Default bound on the magnitude of a quantity."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that a renderer can vary."""

    name: str
    low: float
    high: float
    usual: float = math.nan
    """Default value; NaN means absent."""
    least: float = -FARTHEST
    most: float = FARTHEST
    open_end: Literal["low", "high"] | None = None
    """End of the default range that is excluded."""
    form: Literal["number", "category", "angle"] = "number"
    period: float | None = None
    labels: tuple[str, ...] = ()
    """Names of a category's values."""

    def factor(self, count: int, *ends: float) -> Factor:
        """Return a factor with evenly spaced values, over the default range unless ends are given."""
        step = (self.high - self.low) / count
        first = self.low + step if self.open_end == "low" else self.low
        last = self.high - step if self.open_end == "high" else self.high
        low, high = ends or (first, last)
        if self.form == "category":
            low, high = 0.0, count - 1.0
            if high > self.most or ends not in ((), (low, high)):
                text = f"{self.name}={'..'.join(map(_written, (*ends, count)))}"
                raise InvalidValue("factors", text, f"{self.name}=COUNT, for the first {self.most + 1:g} or fewer")
        for end in (low, high):
            self.check(end)
        return Factor(self.name, low, high, count, self.form, None, self.period, self.labels[:count] or None)

    def check(self, value: float) -> float:
        """Return the value; raise an error if it cannot be drawn."""
        if not self.least <= value <= self.most or (self.form == "category" and value != int(value)):
            raise InvalidValue(self.name, value, self.allowed)
        return value

    @property
    def allowed(self) -> str:
        """Allowed range of values, for error messages."""
        kind = "an integer, " if self.form == "category" else ""
        return f"{kind}{self.least:g} to {self.most:g}"


FORMS = {
    "factors": "NAME=COUNT or NAME=LOW..HIGH..COUNT with at least 2 values, such as x=8 or scale=6..12..4",
    "fixed": "NAME=VALUE, such as hue=120",
    "class_boundaries": "NAME=VALUE, such as hue=120",
}


def _parsed(field: str, text: str) -> tuple[str, list[float]]:
    """Parse a string in one of the forms above and return its name and numbers."""
    name, _, numbers = text.partition("=")
    try:
        values = [float(number) for number in numbers.split("..")]
    except ValueError:
        values = []
    is_factor = len(values) in (1, 3) and values[-1] >= 2 and values[-1].is_integer()
    if not (is_factor if field == "factors" else len(values) == 1) or not all(map(math.isfinite, values)):
        raise InvalidValue(field, text, FORMS[field])
    return name.strip(), values


def _normalised(field: str, text: str) -> str:
    name, values = _parsed(field, text)
    return f"{name}={'..'.join(map(_written, values))}"


def _written(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) <= FARTHEST else repr(number)


FactorText = Annotated[str, AfterValidator(partial(_normalised, "factors"))]
FixedText = Annotated[str, AfterValidator(partial(_normalised, "fixed"))]
BoundaryText = Annotated[str, AfterValidator(partial(_normalised, "class_boundaries"))]


class QuantityTask(Task):
    """A task whose factors are chosen from the quantities that its renderer can vary."""

    factors: tuple[FactorText, ...]
    """Factors, each written as NAME=COUNT or NAME=LOW..HIGH..COUNT."""
    fixed: tuple[FixedText, ...] = ()
    """Values of quantities held constant, each as NAME=VALUE; all others have defaults."""

    position_factors: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def quantities(self) -> tuple[Quantity, ...]:
        """Return all quantities that the renderer can vary."""

    def factor_grid(self) -> FactorGrid:
        parsed = [_parsed("factors", text) for text in self.factors]
        factors = [self._quantity("factors", name).factor(int(count), *ends) for name, (*ends, count) in parsed]
        return FactorGrid(tuple(factors))

    @cached_property
    def fixed_values(self) -> dict[str, float]:
        """Value of every quantity that is not a factor; NaN if absent."""
        values = {
            quantity.name: quantity.usual for quantity in self.quantities() if quantity.name not in self.grid.names
        }
        for name, (value,) in (_parsed("fixed", text) for text in self.fixed):
            quantity = self._quantity("fixed", name)
            if name not in values:
                raise InvalidValue("fixed", f"{name}={_written(value)}", f"omitted, since {name} is a factor")
            values[name] = quantity.check(value)
        return values

    def columns(self, values: Float[Tensor, "row factor"]) -> dict[str, Float[Tensor, " row"]]:
        """Return the value of every quantity in each row."""
        self.check_columns(values)
        given = dict(zip(self.grid.names, values.unbind(1), strict=True))
        columns = {name: values.new_full((len(values),), value) for name, value in self.fixed_values.items()}
        for name, column in given.items():
            quantity = self._quantity("factors", name)
            optional = self.optional_factors is None or name in self.optional_factors
            inside = ((column >= quantity.least) & (column <= quantity.most)) | (torch.isnan(column) & optional)
            if not bool(inside.all()):
                wrong = column.detach()[~inside][0].item()
                absent = "" if optional else ", present in every row"
                raise InvalidValue(f"values of {name}", wrong, quantity.allowed + absent)
        return columns | given

    def _quantity(self, field: str, name: str) -> Quantity:
        by_name = {quantity.name: quantity for quantity in self.quantities()}
        if name not in by_name:
            raise InvalidValue(field, name, listed(by_name))
        return by_name[name]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(names := [text.partition("=")[0] for text in self.fixed]) > len(set(names)):
            raise InvalidValue("fixed", ",".join(self.fixed), "one value for each quantity")
        self.fixed_values  # noqa: B018  raises if a value cannot be drawn
        return super()._check()  # type: ignore[operator]  # a plain method once the class is made
