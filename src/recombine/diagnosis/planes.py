"""A plane through the grid of a diagnosis: two factors vary, every other one is fixed at a value or averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray

from recombine.errors import InvalidValue, listed

NEAR = 1e-6
"""Share of a factor's range by which a value may differ from the one that is meant."""
SAMPLED = "points"
"""Attribute of a result whose grid was sampled: of how many points."""
SHOWN = 12
"""Values that a message lists."""


@dataclass(frozen=True)
class Plane:
    """Two factors, and what becomes of the others."""

    across: str
    """The factor along x."""
    upward: str
    """The factor along y."""
    fixed: Mapping[str, float]
    averaged: tuple[str, ...]

    def of(self, values: xarray.DataArray) -> xarray.DataArray:
        """Values over the plane, its factors last; NaN has no part in a mean."""
        chosen = values.sel(self.fixed)
        mean = chosen.mean(self.averaged, skipna=True) if self.averaged else chosen
        return mean.transpose(..., self.upward, self.across)

    def any_of(self, region: xarray.DataArray) -> xarray.DataArray:
        """Where any of the averaged points belongs to a region."""
        chosen = region.sel(self.fixed)
        return (chosen.any(self.averaged) if self.averaged else chosen).transpose(self.upward, self.across)

    @property
    def words(self) -> str:
        """What is done to the other factors; empty where there are none."""
        parts = [f"{name} = {value:g}" for name, value in self.fixed.items()]
        return ", ".join(parts + ([f"mean over {', '.join(self.averaged)}"] if self.averaged else []))


def plane_through(
    result: xarray.Dataset, plane: Sequence[str] | None = None, at: Mapping[str, float] | None = None
) -> Plane:
    """A plane through the grid of a result.

    Parameters
    ----------
    result
        A diagnosis.
    plane
        Two factors by name, along x and along y; the first two by default.
    at
        Values of other factors; those that are left out are averaged. Of a sampled grid the nearest that was drawn.

    Returns
    -------
    Plane
        With values as the grid has them.
    """
    values = {str(name): result[name].values for name in result["held_out"].dims}
    return plane_of(values, plane, at, nearest=SAMPLED in result.attrs)


def plane_of(
    values: Mapping[str, np.ndarray],
    plane: Sequence[str] | None = None,
    at: Mapping[str, float] | None = None,
    nearest: bool = False,
) -> Plane:
    """The same through a grid of factors with these values; with `nearest`, at the values nearest to those given."""
    factors = list(values)
    if len(factors) < 2:
        raise InvalidValue("plane", plane, f"left out: it takes two factors, and the grid has {listed(factors)}")
    names = factors[:2] if plane is None else list(plane) if not isinstance(plane, str) else [plane]
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(factors):
        raise InvalidValue("plane", plane, f"two different factors of {listed(factors)}")
    others = [name for name in factors if name not in names]
    fixed = {}
    for name, value in (at or {}).items():
        if name not in others:
            raise InvalidValue("at", name, f"a factor outside the plane ({listed(others)})")
        fixed[name] = _own_value(values[name], name, value, nearest)
    return Plane(names[0], names[1], fixed, tuple(name for name in others if name not in fixed))


def _own_value(values: np.ndarray, name: str, value: float, nearest: bool) -> float:
    """The factor's own value that is meant."""
    distance = np.abs(values - value)
    if not np.isfinite(distance).all() or not (nearest or distance.min() <= NEAR * max(float(np.ptp(values)), NEAR)):
        some = listed([f"{own:g}" for own in values[:SHOWN]]) + (", …" if len(values) > SHOWN else "")
        raise InvalidValue(f"at.{name}", value, f"one of its values: {some}")
    return float(values[distance.argmin()])
