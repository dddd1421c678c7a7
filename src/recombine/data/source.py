"""What a reader makes of a file: the images' shape and kind, the factors' columns, and a way to the pixels.

Images are `(row, y, x)`, or `(row, y, x, channel)` with one or three channels; numbers are bytes (0 … 255, or 0 and 1
where no byte is larger), truth values, or floating numbers from 0 to 1. A column has a value per row: float64 numbers
or texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recombine.errors import InvalidValue
from recombine.factors import LARGEST_GRID

CHANNELS = (1, 3)
LARGEST_SIDE = 4096
MOST_FACTORS = 64
KINDS = ("uint8", "bool", "float16", "float32", "float64")
"""Numbers that images may be stored as."""


@dataclass(frozen=True)
class Source:
    """Images and factors as a file or a caller gives them, not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    columns: dict[str, np.ndarray]
    blocks: Callable[[], Iterator[np.ndarray]]
    """All images in order, some at a time."""
    path: Path | None = None
    offset: int | None = None
    """Where in the file the images lie as they are; none where they have to be unpacked."""
    images_field: str = "data.images"
    """What messages call the images."""

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def check_images(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse arrays that are no images, before any of them is read."""
    axes = "(row, y, x) or (row, y, x, channel)"
    if len(shape) not in (3, 4):
        raise InvalidValue(name, shape, f"an array of shape {axes}")
    if len(shape) == 4 and shape[3] not in CHANNELS:
        raise InvalidValue(name, shape, "the channels last: one (grey) or three (red, green, blue)")
    if not 1 <= shape[0] <= LARGEST_GRID:
        raise InvalidValue(name, shape, f"1 to {LARGEST_GRID} images")
    if not all(1 <= side <= LARGEST_SIDE for side in shape[1:3]):
        raise InvalidValue(name, shape, f"images of 1 to {LARGEST_SIDE} rows and columns")
    if dtype.name not in KINDS or not dtype.isnative:
        allowed = "bytes (uint8), truth values or floating numbers from 0 to 1, in this machine's byte order"
        raise InvalidValue(name, "Python objects" if dtype.hasobject else dtype.str, allowed)


def largest_number(name: str, block: np.ndarray, first: int) -> float:
    """The largest number of some images, refusing those that are not from 0 to 1 where they are floating."""
    if block.dtype.kind == "f":
        low, high = float(block.min()), float(block.max())
        if not (low >= 0 and high <= 1):  # NaN is neither
            outside = ~((block >= 0) & (block <= 1))
            row, *place = (int(index) for index in np.argwhere(outside)[0])
            allowed = f"numbers from 0 to 1 (row {first + row} has others), or bytes"
            raise InvalidValue(name, float(block[(row, *place)]), allowed)
        return high
    return float(block.max())
