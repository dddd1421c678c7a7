"""The images of a data set as rows of one array, in memory or in a file.

Rows of a file are read where they lie, by offset, and nothing else is: the operating system keeps what was read as long
as nothing needs the room. A memory map would do the same, but counts as the process's memory whatever lies around a row
that was touched, with large pages the whole file; and a file that is cut short while it is mapped ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recombine.errors import InvalidValue
from recombine.files import open_regular

BLOCK = 2**24
"""Bytes of the blocks in which all rows are read."""


class Pixels:
    """Rows of images in memory; `take` is the only way to them, so that no more is read than asked for."""

    in_file = False

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

    in_file = True

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


def rows_per_block(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """How many images a block has."""
    return max(1, BLOCK // max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize))
