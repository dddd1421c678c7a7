"""Encodings mixed per factor: each factor coded in its own way, by name.

>>> from recombine.encodings import ENCODINGS
>>> mixed = ENCODINGS.parse("mixed:x=(bump:variance=3):shape=onehot")

A factor that is not named is coded by its form: numbers as bumps, categories one-hot, angles as bumps on the circle.
A task writes all of them out, so that its spec names the code of every factor; where all are the same encoding, the
spec has that one.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from jaxtyping import Float
from pydantic import ConfigDict, model_validator
from torch import Tensor

from recombine.checks import checked
from recombine.encodings.base import ENCODINGS, Encoding
from recombine.encodings.codes import Bump, Circular, OneHot
from recombine.errors import InvalidValue, listed, typed
from recombine.factors import Factor, FactorGrid, Form
from recombine.frozen import text_pieces

DEFAULTS: dict[Form, Encoding] = {"number": Bump(), "category": OneHot(), "angle": Circular()}
"""The encoding of a factor that none is given for, by its form."""


@ENCODINGS.register
class Mixed(Encoding):
    """One encoding by factor name, as `mixed:x=bump:angle=polar`; by the factor's form where none is given.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, encoding="mixed:x=bump:y=rate").code_sizes
    (8, 1)
    >>> str(rc.Mixed(x="bump", y="rate"))
    'mixed:x=bump:y=rate'
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["mixed"] = "mixed"
    __pydantic_extra__: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _parse_parts(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value if name == "kind" else _part(name, value) for name, value in fields.items()}

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        fields: dict[str, str] = {}
        for piece in text_pieces(parts):
            name, equals, text = piece.partition("=")
            if not equals or name in fields:
                raise InvalidValue(
                    "encoding", piece, "one FACTOR=ENCODING for each factor, as x=bump or y=(bump:variance=3)"
                )
            fields[name] = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        return cls(**fields)

    @property
    def parts(self) -> dict[str, Encoding]:
        """The encodings that are given, by factor name."""
        return dict(self.__pydantic_extra__ or {})

    def __str__(self) -> str:
        return ":".join([self.kind, *(f"{name}={typed(part)}" for name, part in self.parts.items())])

    def replace(self, /, **fields: Any) -> Self:
        return type(self)(**{**self.parts, **fields})

    def of(self, factor: Factor) -> Encoding:
        return self.parts.get(factor.name) or DEFAULTS[factor.form]

    @checked
    def resolved(self, grid: FactorGrid) -> Encoding:
        for name, part in self.parts.items():
            if name not in grid.names:
                raise InvalidValue(f"encoding.{name}", str(part), f"encodings of the factors {listed(grid.names)}")
        parts = {factor.name: self.of(factor) for factor in grid.factors}
        first = next(iter(parts.values()))
        if all(part == first for part in parts.values()):
            return first
        if "kind" in parts:  # which says what the encoding is, and so cannot name a part of it
            raise InvalidValue("factors", "kind", "another name of the factor, or the same encoding for all factors")
        return type(self)(**parts)

    @property
    def population(self) -> bool:  # type: ignore[override]
        """Whether all of them can say that a factor is absent."""
        return all(part.population for part in self.parts.values())

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether all of them vary smoothly with the value."""
        return all(part.differentiable for part in self.parts.values())

    @checked
    def size(self, factor: Factor) -> int:
        return self.of(factor).size(factor)

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return self.of(factor).code(values, factor)

    @checked
    def present(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return self.of(factor).present(values, factor)


def _part(name: str, value: Any) -> Encoding:
    try:
        part = ENCODINGS.parse(value)
    except InvalidValue as error:
        inner = error.field.partition(".")[2]
        raise InvalidValue(".".join(filter(None, ("encoding", name, inner))), error.value, error.allowed) from None
    if isinstance(part, Mixed):
        raise InvalidValue(f"encoding.{name}", str(part), "an encoding of one factor")
    return part
