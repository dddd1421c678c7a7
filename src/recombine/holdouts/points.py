"""Hold-outs of individual combinations, drawn at random or listed explicitly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.files import parsed_json, read_array, read_given
from recombine.holdouts.base import CENTER_FRACTION, HOLDOUTS, Pattern


@HOLDOUTS.register
class Scattered(Pattern):
    """Random combinations, skipping any whose removal would leave a factor value without examples.

    Examples
    --------
    >>> import recombine as rc
    >>> int(rc.BumpTask(size=5, holdout=rc.Scattered(fraction=0.2)).held_out.sum())
    5
    """

    kind: Literal["random"] = "random"
    fraction: Annotated[float, Field(gt=0, lt=1)] = CENTER_FRACTION**2
    """Fraction of all combinations to hold out."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed for drawing the combinations, independent of training seeds."""

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        count = round(self.fraction * grid.size)
        order = torch.randperm(grid.size, generator=torch.Generator().manual_seed(self.seed))
        drawn = order[:count]
        columns = zip(grid.positions(drawn).unbind(1), grid.shape, strict=True)
        if any(int(torch.bincount(column, minlength=n).max()) >= grid.size // n for column, n in columns):
            drawn = _leaving_every_value(order, count, grid)
        if len(drawn) < count:
            allowed = f"at most {len(drawn) / grid.size:.4g}, so that every value is seen"
            raise InvalidValue("holdout.fraction", self.fraction, allowed)
        held = torch.zeros(grid.size, dtype=torch.bool)
        held[drawn] = True
        return held.reshape(grid.shape)


def _leaving_every_value(order: Int[Tensor, " point"], count: int, grid: FactorGrid) -> Int[Tensor, " drawn"]:
    """Return up to `count` points in order, skipping any point that is the last one with some factor value."""
    left = [[grid.size // n] * n for n in grid.shape]
    drawn: list[int] = []
    for point, place in zip(order.tolist(), grid.positions(order).tolist(), strict=True):
        if len(drawn) == count:
            break
        if all(left[axis][value] > 1 for axis, value in enumerate(place)):
            drawn.append(point)
            for axis, value in enumerate(place):
                left[axis][value] -= 1
    return torch.tensor(drawn, dtype=torch.int64)


@HOLDOUTS.register
class Mask(Pattern):
    """An arbitrary list of held-out points, as integer positions.

    `mask:0,1;3,4` lists them; `mask:FILE` reads a .npy mask or a .json list.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=5, holdout=rc.Mask(points=((0, 1), (3, 4)))).held_out.reshape(5, 5).int()
    tensor([[0, 1, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    kind: Literal["mask"] = "mask"
    points: tuple[tuple[int, ...], ...] = ()
    """Positions of the held-out points, e.g. 0,1;3,4."""
    shape: tuple[int, ...] | None = None
    """Shape of the grid that the points refer to, if known."""

    def filled(self, grid: FactorGrid) -> Self:
        """Return a copy with sorted, unique points, so that equal masks give equal specs."""
        self.pattern(grid)
        return self.replace(points=tuple(sorted(set(self.points))), shape=None)

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        if all(re.fullmatch(r"(points=|shape=)?[\d,;]*|factors=[\w,]*", part) for part in parts):  # not a file name
            return super().from_text(parts)
        path = Path(":".join(parts).removeprefix("points="))
        if path.suffix == ".npy":
            import numpy

            array = read_array(path, "mask")
            if array.dtype != bool:
                raise InvalidValue("mask", str(path), "a boolean .npy array over the grid, True where held out")
            return cls(points=numpy.argwhere(array).tolist(), shape=array.shape)
        content = read_given(path, "mask")
        try:
            points = parsed_json(content)
        except ValueError:
            raise InvalidValue("mask", str(path), "a .npy file (boolean) or a .json file (list of points)") from None
        return cls(points=points)

    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        if self.shape is not None and self.shape != grid.shape:
            raise InvalidValue("holdout.shape", self.shape, f"{grid.shape}, the shape of the grid")
        for point in self.points:
            inside = all(0 <= place < count for place, count in zip(point, grid.shape, strict=False))
            if len(point) != len(grid.shape) or not inside:
                raise InvalidValue("holdout.points", point, f"points inside the grid of shape {grid.shape}")
        held = torch.zeros(grid.shape, dtype=torch.bool)
        if self.points:
            held[torch.tensor(self.points).unbind(1)] = True
        return held
