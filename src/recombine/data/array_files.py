"""Files with arrays, `.npz` and HDF5 alike: which key has the images, which the factors.

| images | factors | of |
|---|---|---|
| `imgs` | `latents_values`, a column each | dSprites |
| `images` | `labels`, a column each | 3D Shapes |
| `images` | none: all combinations in order, the last factor fastest | MPI3D |

Names come from `factor_names` where the file has it, and are the published ones for the published numbers of columns.
Without labels, `factor_sizes` says how many values each factor has; MPI3D's own are known. `metadata`, which dSprites
keeps as pickled objects, is never read.

Nothing is unpickled, nothing is read that lies in another file, and the sizes that a file states are held against each
other before anything is read, so that a small file cannot fill the memory. An array that the file keeps as it is can be
read from its offset; a compressed one only from its beginning.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from recombine.data.columns import check_names, column_of
from recombine.data.images import MOST_FACTORS, Source, check_images, rows_per_block
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.files import open_regular

IMAGES = {"imgs": "latents_values", "images": "labels"}
"""Key of the images, and of the factors that go with it."""
NAMES, SIZES = "factor_names", "factor_sizes"
PUBLISHED = {
    "latents_values": ("color", "shape", "scale", "orientation", "posX", "posY"),
    "labels": ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
    SIZES: (
        "object_color", "object_shape", "object_size", "camera_height", "background_color", "horizontal_axis",
        "vertical_axis",
    ),
}  # fmt: skip
"""Names of the factors of dSprites, 3D Shapes and MPI3D."""
MPI3D_SIZES = {1_036_800: (6, 6, 2, 3, 3, 40, 40), 460_800: (4, 4, 2, 3, 3, 40, 40)}
"""Sizes of MPI3D's factors by the number of its images: of simple shapes, and of the challenge and complex shapes."""
LOCAL_HEADER = 30
"""Bytes of the header before each array of a zip archive, without its name and extra field."""
LARGEST_IN_MEMORY = 2**30
"""Bytes of an array of labels."""
LARGEST_CHUNK = 2**28
"""Bytes of a compressed block of HDF5, which is unpacked as a whole."""


class Described(NamedTuple):
    """An array that is not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int | None
    """Where it lies in the file as it is; none where it does not."""
    rows_first: bool = True
    """Whether the numbers of a row lie together (C order)."""


class NpzFile:
    """The arrays of an `.npz` archive by key."""

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
        """All of an array of labels or names."""
        described = self.describe(key)
        if described.dtype.hasobject:
            raise InvalidValue(f"data.{key}", "Python objects", "numbers or strings, which need no unpickling")
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
        except Exception as error:  # numpy and zipfile may raise anything on bytes that are no archive
            raise InvalidValue("data", str(self.path), f"a whole .npz file ({reason_of(error)})") from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape and kind of the array that a stream begins with, and whether the numbers of a row lie together."""
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = readers[version](stream)
    return tuple(int(side) for side in shape), dtype, not fortran or len(shape) < 2


class Hdf5File:
    """The arrays of an HDF5 file by key; only what lies in the file itself, never in another that it points to."""

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
        import h5py

        with self._opened() as file:
            dataset = self._dataset(file, key)
            if dataset.nbytes > LARGEST_IN_MEMORY:
                raise InvalidValue(f"data.{key}", dataset.shape, f"at most {LARGEST_IN_MEMORY} bytes of labels")
            is_text = h5py.check_string_dtype(dataset.dtype) is not None
            array = np.asarray(dataset.asstr()[()] if is_text else dataset[()])
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
            raise InvalidValue(f"data.{key}", dataset.chunks, f"stored in blocks of at most {LARGEST_CHUNK} bytes")
        return dataset

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file; what is wrong with it is one line."""
        import h5py

        try:
            os.close(open_regular(self.path, follow=True))  # a pipe would be waited for
            with h5py.File(self.path, "r", locking=False) as file:
                yield file
        except RecombineError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
            raise InvalidValue("data", str(self.path), f"a whole HDF5 file ({reason_of(error)})") from error


Container = NpzFile | Hdf5File


def from_arrays(path: Path) -> Source:
    """The images and factors of an `.npz` or HDF5 file."""
    file: Container = NpzFile(path) if path.suffix.lower() == ".npz" else Hdf5File(path)
    key = next((key for key in IMAGES if key in file.keys), None)
    if key is None:
        raise InvalidValue("data", listed(file.keys), f"a file with one of the keys {listed(IMAGES)}")
    described = file.describe(key)
    check_images(f"data.{key}", described.shape, described.dtype)
    if not described.rows_first:
        raise InvalidValue(f"data.{key}", "Fortran order", "an array in C order (numpy.ascontiguousarray)")
    columns = _labelled(file, IMAGES[key], described.shape[0])
    return Source(
        described.shape, described.dtype, columns, lambda: file.blocks(key), file.path, described.offset,
        images_field=f"data.{key}",
    )  # fmt: skip


def _labelled(file: Container, key: str, rows: int) -> dict[str, np.ndarray]:
    """The columns of the labels, or of all combinations in order where there are no labels."""
    if key not in file.keys:
        if key == "latents_values":
            raise InvalidValue("data", listed(file.keys), f"a file with the key {key} beside imgs")
        return _in_order(file, rows)
    shape = file.describe(key).shape
    if len(shape) != 2 or not 1 <= shape[1] <= MOST_FACTORS:
        raise InvalidValue(f"data.{key}", shape, f"of shape (row, factor), with at most {MOST_FACTORS} factors")
    if shape[0] != rows:
        raise InvalidValue(f"data.{key}", shape[0], f"{rows} rows, one per image")
    labels = file.load(key)
    names = _names(file, key, shape[1])
    return {name: column_of(f"data.{name}", labels[:, k], rows) for k, name in enumerate(names)}


def _in_order(file: Container, rows: int) -> dict[str, np.ndarray]:
    if SIZES in file.keys:
        given = file.load(SIZES)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not 1 <= len(given) <= MOST_FACTORS or given.min() < 1:
            raise InvalidValue(f"data.{SIZES}", given, "integers, the number of values of each factor")
        sizes = tuple(int(size) for size in given)
    elif rows in MPI3D_SIZES:
        sizes = MPI3D_SIZES[rows]
    else:
        raise InvalidValue("data", listed(file.keys), f"a file with labels, or {SIZES}, beside images")
    if float(np.prod(np.array(sizes, dtype=np.float64))) != rows:
        raise InvalidValue(f"data.{SIZES}", sizes, f"sizes whose product is {rows}, the number of images")
    positions = np.unravel_index(np.arange(rows), sizes)
    names = _names(file, SIZES, len(sizes))
    return {name: column.astype(np.float64) for name, column in zip(names, positions, strict=True)}


def _names(file: Container, key: str, count: int) -> list[str]:
    """The factors' names: the file's own, the published ones, or numbered."""
    names = list(PUBLISHED[key]) if len(PUBLISHED[key]) == count else [f"factor_{k}" for k in range(count)]
    if NAMES in file.keys:
        given = file.load(NAMES)
        if given.ndim != 1 or len(given) != count or given.dtype.kind not in "UOS":
            raise InvalidValue(f"data.{NAMES}", given, f"{count} strings, one per factor")
        names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in given.tolist()]
    check_names(f"data.{NAMES}", names)
    return names
