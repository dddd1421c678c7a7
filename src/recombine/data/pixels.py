"""The images of a data set as rows of one array, in memory or mapped from a file.

A mapped file takes no memory of its own, but what was read of it counts as the process's until it is let go; so it is,
every few megabytes. The operating system keeps it as long as nothing else needs the room.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recombine.errors import InvalidValue
from recombine.files import open_regular

RELEASED = 2**24
"""Bytes that are read of a mapped file before its pages are let go."""
BLOCK = 2**24
"""Bytes of the blocks in which all rows are read."""


class Pixels:
    """Rows of images; `take` is the only way to them, so that no more is read than asked for."""

    def __init__(self, array: np.ndarray, mapping: mmap.mmap | None = None) -> None:
        self._array, self._mapping, self._unreleased = array, mapping, 0

    @classmethod
    def mapped(cls, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Pixels:
        """An array that lies in a file as it is, from a byte on."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        descriptor = open_regular(path, follow=True)
        try:
            if os.fstat(descriptor).st_size < offset + size:
                raise InvalidValue("data", str(path), f"a whole file, of at least {offset + size} bytes")
            mapping = mmap.mmap(descriptor, offset + size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        if hasattr(mmap, "MADV_RANDOM"):
            mapping.madvise(mmap.MADV_RANDOM)
        return cls(np.frombuffer(mapping, dtype, size // dtype.itemsize, offset).reshape(shape), mapping)

    def __len__(self) -> int:
        return len(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the axes of an image."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers as they are stored."""
        return self._array.dtype

    @property
    def is_mapped(self) -> bool:
        """Whether the images stay in their file."""
        return self._mapping is not None

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy of some rows, as they are stored."""
        images = self._array[rows]
        self._release(images.nbytes)
        return images

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in order, some at a time."""
        step = rows_per_block(self.shape, self.dtype)
        for first in range(0, len(self), step):
            block = self._array[first : first + step]
            yield block
            self._release(block.nbytes)

    def in_memory(self) -> np.ndarray | None:
        """The whole array where it is in memory anyway."""
        return None if self.is_mapped else self._array

    def _release(self, size: int) -> None:
        """Let go of what was read of a mapped file."""
        self._unreleased += size
        if self._mapping is not None and self._unreleased >= RELEASED and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self._unreleased = 0


def rows_per_block(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """How many images a block has."""
    return max(1, BLOCK // max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize))
