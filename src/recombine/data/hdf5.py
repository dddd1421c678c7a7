"""Arrays of an HDF5 file without loading it; only what lies in the file itself, never in another that it points to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from recombine.data.npz import LARGEST_IN_MEMORY, Described
from recombine.data.pixels import rows_per_block
from recombine.errors import InvalidValue, RecombineError, reason_of
from recombine.files import open_regular

LARGEST_CHUNK = 2**28
"""Bytes of a compressed block, which is unpacked as a whole."""


class Hdf5File:
    """The arrays of an HDF5 file by key."""

    kind = "HDF5"

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self.keys = [str(key) for key in file]

    def describe(self, key: str) -> Described:
        """Shape and kind of an array, from its header."""
        with self._opened() as file:
            dataset = self._dataset(file, key)
            return Described(dataset.shape, dataset.dtype, dataset.id.get_offset() if not dataset.chunks else None)

    def load(self, key: str) -> np.ndarray:
        """All of an array of labels or names."""
        with self._opened() as file:
            dataset = self._dataset(file, key)
            if dataset.nbytes > LARGEST_IN_MEMORY:
                raise InvalidValue(f"data.{key}", dataset.shape, f"at most {LARGEST_IN_MEMORY} bytes of labels")
            array = np.asarray(dataset.asstr()[()] if _is_text(dataset) else dataset[()])
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        """The rows of an array in order, some at a time, by whole blocks of the file."""
        with self._opened() as file:
            dataset = self._dataset(file, key)
            chunk = dataset.chunks[0] if dataset.chunks else 1
            step = -(-rows_per_block(dataset.shape, dataset.dtype) // chunk) * chunk
            for first in range(0, len(dataset), step):
                yield dataset[first : first + step]

    def _dataset(self, file: Any, key: str) -> Any:
        """An array that lies in this file."""
        import h5py

        dataset = file[key] if isinstance(file.get(key, getlink=True), h5py.HardLink) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
            raise InvalidValue(f"data.{key}", type(dataset).__name__, "an array in this file itself, not a link")
        if dataset.chunks and int(np.prod(dataset.chunks, dtype=np.int64)) * dataset.dtype.itemsize > LARGEST_CHUNK:
            raise InvalidValue(f"data.{key}", dataset.chunks, f"blocks of at most {LARGEST_CHUNK} bytes")
        return dataset

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file; what is wrong with it is one line."""
        import os

        import h5py

        try:
            os.close(open_regular(self.path, follow=True))  # a pipe would be waited for
            with h5py.File(self.path, "r", locking=False) as file:
                yield file
        except RecombineError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
            raise InvalidValue("data", str(self.path), f"a whole HDF5 file ({reason_of(error)})") from error


def _is_text(dataset: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(dataset.dtype) is not None
