"""Flags that choose a plane through a grid for a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.diagnosis.planes import plane_of
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid

PlaneNames = Annotated[
    str | None,
    Parameter(help="Two factors that the map of the volume is drawn over, as x,size. Default: the first two."),
]
AtValues = Annotated[
    list[str] | None,
    Parameter(
        help="Value of another factor in that map, as shape=0; several allowed. Factors without one are averaged.",
        negative=(),
    ),
]


def parsed_plane(text: str | None, out: Path | None) -> tuple[str, str] | None:
    """The two factors of a text."""
    if text is None:
        return None
    _require_out("plane", text, out)
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise InvalidValue("plane", text, "two factors, as x,size")
    return names[0], names[1]


def parsed_at(texts: Sequence[str] | None, out: Path | None) -> dict[str, float]:
    """Values by factor."""
    values = {}
    for text in texts or ():
        _require_out("at", text, out)
        name, _, value = text.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise InvalidValue("at", text, "a factor and its value, as shape=0") from None
    return values


def require_plane(grid: FactorGrid, plane: tuple[str, str] | None, at: Mapping[str, float]) -> None:
    """Refuse a plane that a grid does not have, before anything is measured."""
    plane_of({factor.name: factor.values.numpy() for factor in grid.factors}, plane, at)


def _require_out(flag: str, text: str, out: Path | None) -> None:
    if out is None:
        raise InvalidValue(flag, text, "nothing without --out: it is for the figure there")
