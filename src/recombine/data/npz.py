"""Arrays of an `.npz` file without loading it: what they are, where they lie, block by block. Nothing is unpickled.

An array that the archive keeps as it is can be read from its offset in the file; a compressed one only from its
beginning. The sizes that an archive states are held against each other before anything is read, so that a
small file cannot fill the memory.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from recombine.data.pixels import rows_per_block
from recombine.errors import InvalidValue, RecombineError, reason_of
from recombine.files import open_regular

LOCAL_HEADER = 30
"""Bytes of the header before each array of an archive, without its name and extra field."""
LARGEST_IN_MEMORY = 2**30
"""Bytes of an array of labels."""


class Described(NamedTuple):
    """An array that is not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int | None
    """Where it lies in the file as it is; none where it does not."""
    rows_first: bool = True
    """Whether the numbers of a row lie together (C order)."""


class NpzFile:
    """The arrays of an archive by key."""

    kind = ".npz"

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as archive:
            self.keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def describe(self, key: str) -> Described:
        """Shape and kind of an array, from its header."""
        with self._opened() as archive, archive.open(f"{key}.npy") as stream:
            shape, dtype, rows_first = _header(stream)
            info = archive.getinfo(f"{key}.npy")
            header = stream.tell()
            size = int(np.prod([float(side) for side in shape])) * dtype.itemsize
            if not dtype.hasobject and info.file_size != header + size:
                allowed = f"an array as long as its header says ({header + size} bytes)"
                raise InvalidValue(f"data.{key}", info.file_size, allowed)
            stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            return Described(shape, dtype, self._start(info) + header if stored else None, rows_first)

    def load(self, key: str) -> np.ndarray:
        """All of an array of labels."""
        described = self.describe(key)
        if described.dtype.hasobject:
            raise InvalidValue(f"data.{key}", "Python objects", "numbers or texts, which need no unpickling")
        size = int(np.prod([float(side) for side in described.shape])) * described.dtype.itemsize
        if size > LARGEST_IN_MEMORY:
            raise InvalidValue(f"data.{key}", described.shape, f"at most {LARGEST_IN_MEMORY} bytes of labels")
        with self._opened() as archive, archive.open(f"{key}.npy") as stream:
            array = npy.read_array(stream, allow_pickle=False)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        """The rows of an array in order, some at a time."""
        with self._opened() as archive, archive.open(f"{key}.npy") as stream:
            shape, dtype, _ = _header(stream)
            step, row = rows_per_block(shape, dtype), int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
            for first in range(0, shape[0], step):
                count = min(step, shape[0] - first)
                content = stream.read(count * row)
                if len(content) != count * row:
                    raise EOFError("the array ends early")
                yield np.frombuffer(content, dtype).reshape(count, *shape[1:])

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where the content of an array begins in the file."""
        with os.fdopen(open_regular(self.path, follow=True), "rb") as file:
            file.seek(info.header_offset)
            header = file.read(LOCAL_HEADER)
        if len(header) < LOCAL_HEADER:
            raise zipfile.BadZipFile("an array's header is cut short")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return info.header_offset + LOCAL_HEADER + lengths

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """The archive; what is wrong with it is one line."""
        try:
            with os.fdopen(open_regular(self.path, follow=True), "rb") as file, zipfile.ZipFile(file) as archive:
                yield archive
        except RecombineError:
            raise
        except (
            OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, SyntaxError, TypeError, KeyError,
            NotImplementedError, RuntimeError, RecursionError, OverflowError, MemoryError,
        ) as error:  # fmt: skip
            raise InvalidValue("data", str(self.path), f"a whole .npz file ({reason_of(error)})") from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape and kind of the array that a stream begins with, and whether the numbers of a row lie together."""
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = readers[version](stream)
    return tuple(int(side) for side in shape), dtype, not fortran or len(shape) < 2
