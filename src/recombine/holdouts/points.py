"""Hold-outs of single combinations: drawn at random, or listed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from recombine.arrays import read_array
from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.files import parsed_json, read_given
from recombine.holdouts.base import CENTER_FRACTION, HOLDOUTS, Holdout


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
        count = round(self.fraction * grid.size)
        order = torch.randperm(grid.size, generator=torch.Generator().manual_seed(self.seed))
        remaining = [[grid.size // size] * size for size in grid.shape]
        held = torch.zeros(grid.size, dtype=torch.bool)
        taken = 0
        for index in order.tolist():
            if taken == count:
                break
            point = grid.indices[index].tolist()
            if all(counts[value] > 1 for counts, value in zip(remaining, point, strict=True)):
                for counts, value in zip(remaining, point, strict=True):
                    counts[value] -= 1
                held[index] = True
                taken += 1
        if taken < count:
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
