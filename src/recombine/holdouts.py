"""Hold-outs: which combinations of factor values are kept from training (SPEC §2).

A hold-out gives a boolean mask over the factor grid, True where held out. Conventions, stated here and nowhere else:

- bounds are integer positions (0 … count − 1) and **inclusive at both ends**: `center:6:22` holds out 6, 7, … 22;
- a bound is one number for all factors, or one for each (`center:6,6,1:22,22,2`);
- a real-valued combination is held out when the nearest grid point is;
- a bound left out follows the grid's size, in the proportions of the paper, and is written into the spec as a number;
- every single value of every factor must stay in training, or the task must say `allow_unseen`.

Known answer: the centred box of the paper holds out 17 × 17 = 289 of 28 × 28 = 784 combinations and keeps 495.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Bool, Int
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from recombine.arrays import read_array
from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.files import parsed_json, read_given
from recombine.frozen import Variant
from recombine.registry import Registry

CENTER_FRACTION = 17 / 28
"""Share of each factor's values inside the paper's centred box."""
CORNER_START = 12 / 32
"""Where the corner of the low-rank study begins, as a share of each factor's values."""
ARM_FRACTION = 8 / 28
"""Width of the arms of the published cross, as a share of each factor's values."""


Bound = int | tuple[int, ...]


class Holdout(Variant):
    """Grid to mask."""

    @abstractmethod
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """True where a combination is held out; the grid's shape."""

    def resolved(self, grid: FactorGrid) -> Self:
        """The same hold-out with every bound that follows the grid's size written out."""
        return self


HOLDOUTS: Registry[Holdout] = Registry("holdout", Holdout)
AnyHoldout = Annotated[SerializeAsAny[Holdout], BeforeValidator(HOLDOUTS.parse)]


def unseen_values(mask: Bool[Tensor, " ..."], grid: FactorGrid) -> list[str]:
    """The single factor values that the mask removes altogether, as `x=3`."""
    gone = []
    for axis, factor in enumerate(grid.factors):
        seen = (~mask).movedim(axis, 0).flatten(1).any(dim=1) if mask.ndim > 1 else ~mask
        gone += [f"{factor.name}={factor.values[i].item():g}" for i in torch.nonzero(~seen).flatten().tolist()]
    return gone


def _each(field: str, bound: Bound | None, grid: FactorGrid) -> tuple[int, ...]:
    """One bound a factor, checked against the grid."""
    bounds = bound if isinstance(bound, tuple) else (bound,) * len(grid.shape)
    if len(bounds) != len(grid.shape):
        raise InvalidValue(f"holdout.{field}", bound, f"one number, or {len(grid.shape)} (one a factor)")
    for value, count in zip(bounds, grid.shape, strict=True):
        if value is None or not 0 <= value < count:
            raise InvalidValue(f"holdout.{field}", bound, f"0 to {count - 1}, inside the grid")
    return tuple(int(value) for value in bounds if value is not None)


def _joined(bounds: list[int]) -> Bound:
    """One number where all are equal."""
    return bounds[0] if len(set(bounds)) == 1 else tuple(bounds)


def _within(low: tuple[int, ...], high: tuple[int, ...], grid: FactorGrid) -> Bool[Tensor, "point factor"]:
    """Whether each coordinate of each point lies between the bounds, both included."""
    indices: Int[Tensor, "point factor"] = grid.indices
    return (indices >= torch.tensor(low)) & (indices <= torch.tensor(high))


def _ordered(field: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise InvalidValue(f"holdout.{field}", _joined(list(high)), f"at least the lower bound {_joined(list(low))}")


def _centred(fraction: float, grid: FactorGrid) -> tuple[Bound, Bound]:
    """Bounds of a centred box that spans this share of every factor."""
    spans = [max(1, round(fraction * count)) for count in grid.shape]
    lows = [(count - span + 1) // 2 for count, span in zip(grid.shape, spans, strict=True)]
    return _joined(lows), _joined([low + span - 1 for low, span in zip(lows, spans, strict=True)])


@HOLDOUTS.register
class Nothing(Holdout):
    """Every combination is kept."""

    kind: Literal["none"] = "none"

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        return torch.zeros(grid.shape, dtype=torch.bool)


@HOLDOUTS.register
class Center(Holdout):
    """A box `[low, high]` in every factor; centred, with 17/28 of each factor, unless bounds are given."""

    kind: Literal["center"] = "center"
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Span of the centred box as a share of each factor, instead of bounds."""

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        if self.fraction is not None and (self.low is not None or self.high is not None):
            raise InvalidValue("holdout.fraction", self.fraction, "either a fraction or bounds, not both")
        low, high = _centred(self.fraction or CENTER_FRACTION, grid)
        return self.replace(
            low=low if self.low is None else self.low,
            high=high if self.high is None else self.high,
            fraction=None,
        )

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        box = self.resolved(grid)
        low, high = _each("low", box.low, grid), _each("high", box.high, grid)
        _ordered("high", low, high)
        return _within(low, high, grid).all(dim=1).reshape(grid.shape)


@HOLDOUTS.register
class Corner(Holdout):
    """All factors at or beyond `start`: a box in the corner of the largest (or smallest) values."""

    kind: Literal["corner"] = "corner"
    start: Bound | None = None
    """Where the corner begins, itself held out."""
    side: Literal["high", "low"] = "high"
    """`high`: positions start … last are held out; `low`: positions 0 … start."""

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        if self.start is not None:
            return self
        starts = [max(1, round(CORNER_START * count)) for count in grid.shape]
        if self.side == "low":
            starts = [count - 1 - start for count, start in zip(grid.shape, starts, strict=True)]
        return self.replace(start=_joined(starts))

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        start = _each("start", self.resolved(grid).start, grid)
        first, last = (0,) * len(grid.shape), tuple(count - 1 for count in grid.shape)
        low, high = (start, last) if self.side == "high" else (first, start)
        return _within(low, high, grid).all(dim=1).reshape(grid.shape)


@HOLDOUTS.register
class Cross(Holdout):
    """A plus sign: points of the box `[low, high]` with at most one coordinate outside the arms' band.

    The published cross runs through the whole image and so removes whole factor values; it is
    `cross:10:17:0:27` together with `allow_unseen`.
    """

    kind: Literal["cross"] = "cross"
    arm_low: Bound | None = None
    """Lowest position inside the arms."""
    arm_high: Bound | None = None
    """Highest position inside the arms."""
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        arms, box = _centred(ARM_FRACTION, grid), _centred(CENTER_FRACTION, grid)
        given = {"arm_low": arms[0], "arm_high": arms[1], "low": box[0], "high": box[1]}
        return self.replace(**{name: value for name, value in given.items() if getattr(self, name) is None})

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        cross = self.resolved(grid)
        arm_low, arm_high = _each("arm_low", cross.arm_low, grid), _each("arm_high", cross.arm_high, grid)
        low, high = _each("low", cross.low, grid), _each("high", cross.high, grid)
        _ordered("arm_high", arm_low, arm_high)
        _ordered("high", low, high)
        outside_arms = (~_within(arm_low, arm_high, grid)).sum(dim=1)
        return (_within(low, high, grid).all(dim=1) & (outside_arms <= 1)).reshape(grid.shape)


@HOLDOUTS.register
class Ell(Holdout):
    """An L: the box `[low, high]` without its upper part `[notch, high]`."""

    kind: Literal["L"] = "L"
    low: Bound | None = None
    """Lowest held-out position of each factor."""
    high: Bound | None = None
    """Highest held-out position of each factor."""
    notch: Bound | None = None
    """Where the part that is cut out of the box begins."""

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        low, high = _centred(CENTER_FRACTION, grid)
        bounds = self.replace(low=low if self.low is None else self.low, high=high if self.high is None else self.high)
        if self.notch is not None:
            return bounds
        lows, highs = _each("low", bounds.low, grid), _each("high", bounds.high, grid)
        return bounds.replace(notch=_joined([(a + b + 1) // 2 for a, b in zip(lows, highs, strict=True)]))

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        ell = self.resolved(grid)
        low, high = _each("low", ell.low, grid), _each("high", ell.high, grid)
        notch = _each("notch", ell.notch, grid)
        _ordered("high", low, high)
        if not all(a < n <= b for a, n, b in zip(low, notch, high, strict=True)):
            raise InvalidValue("holdout.notch", ell.notch, f"above low ({ell.low}) and at most high ({ell.high})")
        box, cut = _within(low, high, grid).all(dim=1), _within(notch, high, grid).all(dim=1)
        return (box & ~cut).reshape(grid.shape)


@HOLDOUTS.register
class Scattered(Holdout):
    """Combinations drawn at random, passing over any that would remove the last example of a factor value."""

    kind: Literal["random"] = "random"
    fraction: Annotated[float, Field(gt=0, lt=1)] = CENTER_FRACTION**2
    """Share of all combinations."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Which draw; independent of the members' seeds."""

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        wanted = round(self.fraction * grid.size)
        order = torch.randperm(grid.size, generator=torch.Generator().manual_seed(self.seed))
        left = [[grid.size // count] * count for count in grid.shape]
        held = torch.zeros(grid.size, dtype=torch.bool)
        taken = 0
        for index in order.tolist():
            if taken == wanted:
                break
            point = grid.indices[index].tolist()
            if all(counts[value] > 1 for counts, value in zip(left, point, strict=True)):
                for counts, value in zip(left, point, strict=True):
                    counts[value] -= 1
                held[index] = True
                taken += 1
        if taken < wanted:
            raise InvalidValue(
                "holdout.fraction",
                self.fraction,
                f"at most {taken / grid.size:.4g}, so that every value is seen",
            )
        return held.reshape(grid.shape)


_POINTS = re.compile(r"(points=|shape=)?[\d,;]*")
"""A mask's fields as text, as opposed to a file's name."""


@HOLDOUTS.register
class Mask(Holdout):
    """An arbitrary list of held-out points, as integer positions.

    `mask:0,1;3,4` lists them; `mask:FILE` reads a .npy mask or a .json list.
    """

    kind: Literal["mask"] = "mask"
    points: tuple[tuple[int, ...], ...] = ()
    """Held-out points."""
    shape: tuple[int, ...] | None = None
    """Shape of the grid that the points are meant for, if that is known."""

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        """In order and each point once, so that equal masks are equal specs."""
        self.mask(grid)
        return self.replace(points=tuple(sorted(set(self.points))), shape=None)

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        if all(_POINTS.fullmatch(part) for part in parts):
            return super().from_text(parts)
        path = Path(":".join(parts).removeprefix("points="))
        if path.suffix == ".npy":
            import numpy

            array = read_array(path, "mask")
            if array.dtype != bool:
                raise InvalidValue("mask", str(path), "a boolean .npy array over the grid, True where held out")
            return cls(points=numpy.argwhere(array).tolist(), shape=array.shape)
        try:
            return cls(points=parsed_json(read_given(path, "mask")))
        except ValueError:
            raise InvalidValue("mask", str(path), "a readable file: .npy (boolean) or .json (list of points)") from None

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        if self.shape is not None and self.shape != grid.shape:
            raise InvalidValue("holdout.shape", self.shape, f"{grid.shape}, the grid's")
        held = torch.zeros(grid.shape, dtype=torch.bool)
        for point in self.points:
            inside = len(point) == len(grid.shape) and all(
                0 <= value < count for value, count in zip(point, grid.shape, strict=True)
            )
            if not inside:
                raise InvalidValue("holdout.points", point, f"points inside the grid of shape {grid.shape}")
            held[point] = True
        return held
