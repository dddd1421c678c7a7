"""Hold-outs given by the values of the factors instead of their positions, such as `x>=8,shape==heart`."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Self

import torch
from jaxtyping import Bool
from pydantic import field_validator
from torch import Tensor

from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid, plain
from recombine.holdouts.base import HOLDOUTS, Holdout
from recombine.holdouts.shapes import along

START = r"\s*([^\W\d]\w*)\s*(>=|<=|==|!=|<|>)"
CONDITION = re.compile(rf"{START}\s*(.+?)\s*(?:([,|])(?={START})|$)", re.DOTALL)
"""A condition and what separates it from the next one; names of categories may contain commas and bars."""
EQUAL = 1e-4
"""Numbers closer than this, relative to the smallest spacing, are equal, since data are often in single precision."""
FORM = "conditions such as x>=8,y>=8 (with >=, <=, >, <, == or !=; | separates regions)"


class Condition(NamedTuple):
    """A comparison of a factor with a number or the name of a category."""

    factor: str
    operator: str
    value: str

    def __str__(self) -> str:
        return "".join(self)

    def resolved(self, factor: Factor) -> Condition:
        """Return the condition with its number written in one way."""
        return self if _is_named(factor) else self._replace(value=plain(self._number(factor)))

    def meets(self, factor: Factor) -> Bool[Tensor, " value"]:
        """Return which of the factor's values meet the condition."""
        if _is_named(factor):
            labels = factor.labels or ()
            if self.operator not in ("==", "!=") or self.value not in labels:
                raise InvalidValue("holdout.conditions", str(self), f"{factor.name}== or != one of {listed(labels)}")
            return torch.tensor([(label == self.value) == (self.operator == "==") for label in labels])
        values = factor.values if factor.labels is None else torch.tensor(factor.labels, dtype=torch.float64)
        number = self._number(factor)
        tolerance = EQUAL * float(values.diff().min()) if len(values) > 1 else 0.0
        equal, above = (values - number).abs() <= tolerance, values > number
        if self.operator in ("==", "!=") and not bool(equal.any()):
            ends = f"{factor.label(0)} to {factor.label(factor.count - 1)}"
            raise InvalidValue("holdout.conditions", str(self), f"a comparison with a value of {factor.name} ({ends})")
        return {
            ">=": above | equal, "<=": ~above | equal, ">": above & ~equal, "<": ~above & ~equal, "==": equal,
            "!=": ~equal,
        }[self.operator]  # fmt: skip

    def _number(self, factor: Factor) -> float:
        try:
            return float(self.value)
        except ValueError:
            raise InvalidValue(
                "holdout.conditions", str(self), f"a comparison of {factor.name} with a number"
            ) from None


def _is_named(factor: Factor) -> bool:
    return factor.labels is not None and isinstance(factor.labels[0], str)


@HOLDOUTS.register
class Where(Holdout):
    """Combinations whose values meet all conditions, such as `x>=8,y>=8`, or those of one of several regions.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=5, holdout="x>=3,y>2|x==0,y==0")
    >>> task.holdout
    Where(kind='where', conditions='x>=3,y>2|x==0,y==0')
    >>> task.held_out.reshape(5, 5).int()
    tensor([[1, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1],
            [0, 0, 0, 1, 1]], dtype=torch.int32)
    """

    kind: Literal["where"] = "where"
    conditions: str = ""
    """Conditions that all must hold, such as x>=8,y>=8 or shape==heart (also <=, <, > and !=); | separates regions."""

    @field_validator("conditions")
    @classmethod
    def _written(cls, text: str) -> str:
        return _text(_regions(text))

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        text = ":".join(parts).removeprefix("conditions=")
        while text.startswith("(") and text.endswith(")"):  # of a flag whose value contains colons
            text = text[1:-1]
        return cls(conditions=text)

    def __str__(self) -> str:
        return self.conditions or self.kind

    def resolved(self, grid: FactorGrid) -> Self:
        regions = [[own.resolved(_factor(own, grid)) for own in region] for region in _regions(self.conditions)]
        return self.replace(conditions=_text(regions))

    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        held = torch.zeros(grid.shape, dtype=torch.bool)
        for region in _regions(self.conditions):
            inside = torch.ones(grid.shape, dtype=torch.bool)
            for own in region:
                factor = _factor(own, grid)
                inside &= along(own.meets(factor), grid.factors.index(factor), grid)
            held |= inside
        return held


def _regions(text: str) -> list[list[Condition]]:
    """Return the conditions of each region."""
    regions, at = [list[Condition]()] if text else [], 0
    while at < len(text):
        found = CONDITION.match(text, at)
        if found is None:
            raise InvalidValue("conditions", text, FORM)
        regions[-1].append(Condition(*found.group(1, 2, 3)))
        regions += [[]] if found[4] == "|" else []
        at = found.end()
    return regions


def _text(regions: list[list[Condition]]) -> str:
    return "|".join(",".join(map(str, region)) for region in regions)


def _factor(condition: Condition, grid: FactorGrid) -> Factor:
    if condition.factor not in grid.names:
        raise InvalidValue("holdout.conditions", str(condition), f"a comparison of one of {listed(grid.names)}")
    return grid.factors[grid.names.index(condition.factor)]
