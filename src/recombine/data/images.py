"""Images with the values of the factors that made them: where their pixels are, and the identity of both.

Images are `(row, y, x)`, or `(row, y, x, channel)` with one or three channels; numbers are bytes (0 … 255, or 0 and 1
where no byte is larger), truth values, or floating numbers from 0 to 1. A column has a value per row: float64 numbers
or texts.

Rows of a file are read where they lie, by offset, and nothing else is: the operating system keeps what was read as long
as nothing needs the room. A memory map would do the same, but counts as the process's memory whatever lies around a row
that was touched, with large pages the whole file; and a file that is cut short while it is mapped ends the process.

The identity is a SHA-256 of all pixels, factor names and values: the same data have the same one in whatever file, and
with a single changed pixel another. It is computed when a file is read for the first time and kept in the cache
(`recombine.data.opening`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import LARGEST_GRID
from recombine.files import open_regular
from recombine.keys import DIGEST_LENGTH, canonical_json

SAMPLED = 2048
"""Images whose mean stands for that of all."""
BYTE = 255.0
BLOCK = 2**24
"""Bytes of the blocks in which all rows are read."""
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
    if len(shape) not in (3, 4):
        raise InvalidValue(name, shape, "an array of shape (row, y, x) or (row, y, x, channel)")
    if len(shape) == 4 and shape[3] not in CHANNELS:
        raise InvalidValue(name, shape, "an array with the channels last, one (grey) or three (red, green, blue)")
    if not 1 <= shape[0] <= LARGEST_GRID or not all(1 <= side <= LARGEST_SIDE for side in shape[1:3]):
        raise InvalidValue(name, shape, f"1 to {LARGEST_GRID} images of 1 to {LARGEST_SIDE} rows and columns")
    if dtype.name not in KINDS or not dtype.isnative:
        allowed = "bytes (uint8), truth values or floating numbers from 0 to 1, in this machine's byte order"
        raise InvalidValue(name, "Python objects" if dtype.hasobject else dtype.str, allowed)


def rows_per_block(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """How many images a block has."""
    return max(1, BLOCK // max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize))


class Pixels:
    """Rows of images in memory; `take` is the only way to them, so that no more is read than asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy of some rows, as they are stored."""
        return self.array[rows]

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in order, some at a time."""
        step = rows_per_block(self.shape, self.dtype)
        for first in range(0, len(self), step):
            yield self.take(np.arange(first, min(first + step, len(self))))


class FilePixels(Pixels):
    """Rows of images that lie in a file as they are, from a byte on."""

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.path, self.offset, self.shape, self.dtype = path, offset, shape, dtype
        self.row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._file = os.fdopen(open_regular(path, follow=True), "rb", buffering=0)
        needed = offset + shape[0] * self.row_bytes
        if os.fstat(self._file.fileno()).st_size < needed:
            raise InvalidValue("data", str(path), f"a whole file, of at least {needed} bytes")

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy of some rows, as they are stored; those that lie together are read together."""
        images = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        content = images.reshape(-1).view(np.uint8).data
        ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)] if len(rows) else []
        begin = 0
        for end in ends:
            self._read(int(rows[begin]), content[begin * self.row_bytes : end * self.row_bytes])
            begin = end
        return images

    def _read(self, row: int, content: memoryview) -> None:
        """Fill a part of memory with what lies in the file from a row on."""
        at, done = self.offset + row * self.row_bytes, 0
        while done < len(content):
            count = os.preadv(self._file.fileno(), [content[done:]], at + done)
            if not count:
                raise InvalidValue("data", str(self.path), "a file that is not cut short while it is used")
            done += count


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and one column of values per factor."""

    pixels: Pixels
    columns: dict[str, np.ndarray]
    digest: str
    largest: float
    """Largest number of any image, as stored."""
    path: Path | None = None
    """Where they came from; none for arrays."""
    factors_field: str = "data"
    """What messages call the factors, followed by a dot and a name."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(y, x)`, or `(channel, y, x)` for colour."""
        _, rows, columns, *channels = self.pixels.shape
        return (channels[0], rows, columns) if channels and channels[0] > 1 else (rows, columns)

    def images(self, rows: np.ndarray) -> Float[Tensor, " row *image"]:
        """Some images as numbers from 0 to 1, with the channels first."""
        stored = torch.from_numpy(self.pixels.take(rows))
        images = stored.float()
        if stored.dtype == torch.uint8 and self.largest > 1:
            images /= BYTE
        if images.ndim == 4:
            images = images.movedim(-1, 1) if images.shape[-1] > 1 else images[..., 0]
        return images.contiguous()

    def sample(self) -> np.ndarray:
        """Rows from all over the data that stand for all of them."""
        return np.unique(np.linspace(0, len(self) - 1, min(len(self), SAMPLED)).round().astype(np.int64))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """In another process: opened again from the file, or sent whole where there is none."""
        from recombine.data import opening

        if self.path is not None:
            return opening.reopened, (self.path, self.digest)
        return opening.received, (self.pixels.array, self.columns, self.digest, self.largest, self.factors_field)


class Identity:
    """The digest of images, fed block by block, and their largest number."""

    def __init__(self, source: Source) -> None:
        self._field, self._rows, self.largest = source.images_field, 0, 0.0
        columns = {
            name: column.tolist() if column.dtype.kind == "U" else hashlib.sha256(column.tobytes()).hexdigest()
            for name, column in source.columns.items()
        }
        shape = source.shape[:-1] if len(source.shape) == 4 and source.shape[3] == 1 else source.shape
        header = {"shape": list(shape), "kind": source.dtype.name, "columns": list(columns.items())}
        self._digest = hashlib.sha256(canonical_json(header).encode())

    def add(self, block: np.ndarray) -> None:
        """Feed the next images, refusing floating numbers that are not from 0 to 1."""
        high = float(block.max())
        if block.dtype.kind == "f" and not (block.min() >= 0 and high <= 1):  # NaN is neither
            row, *place = np.argwhere(~((block >= 0) & (block <= 1)))[0].tolist()
            allowed = f"bytes, or numbers from 0 to 1 (row {self._rows + row} has others)"
            raise InvalidValue(self._field, float(block[(row, *place)]), allowed)
        self.largest = max(self.largest, high)
        self._rows += len(block)
        self._digest.update(np.ascontiguousarray(block).data)

    @property
    def digest(self) -> str:
        """Of all that was fed."""
        return self._digest.hexdigest()[:DIGEST_LENGTH]
