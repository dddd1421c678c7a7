"""Readers of `.npz` and HDF5 files in the layouts of dSprites, 3D Shapes and MPI3D, and of image folders with a CSV.

Nothing is unpickled, links to other files are not followed, and sizes are checked before reading, so that a small file
cannot exhaust memory. docs/data.md describes the layouts.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from recombine.data.sources import (
    LARGEST_SIDE,
    MOST_FACTORS,
    Source,
    check_images,
    check_names,
    column_of,
    rows_per_block,
)
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.files import open_regular, read_given

IMAGES = {"imgs": "latents_values", "images": "labels"}
"""For each supported key of the images, the key of their factors."""
NAMES, SIZES = "factor_names", "factor_sizes"
OR_BY_NAME = ", or with one value per image for every factor, by its name"
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
"""Sizes of MPI3D's factors by number of images: simple shapes; challenge and complex shapes."""
LOCAL_HEADER = 30
"""Size in bytes of the zip local header before each array, excluding the array's name and the extra field."""
LARGEST_IN_MEMORY = 2**30
"""Maximum size of the labels in bytes."""
LARGEST_CHUNK = 2**28
"""Maximum size of an HDF5 chunk in bytes, since a chunk is unpacked as a whole."""
MODES = {**dict.fromkeys(("1", "L", "LA"), "L"), **dict.fromkeys(("RGB", "P", "RGBA", "PA"), "RGB")}
"""Supported Pillow modes, and the mode to which each is converted."""
FILE_COLUMNS = ("file", "filename", "file_name", "image", "path")
"""Accepted names for the column of file names, in upper or lower case."""
DELIMITERS = (",", ";", "\t", "|")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Described(NamedTuple):
    """Header of an array that has not been read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int | None
    """Byte offset of the array in the file if it is stored uncompressed."""
    c_order: bool = True

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[IO[bytes]]:
    """Open a regular file (a pipe would block) and report read errors in one line."""
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            yield file
    except RecombineError:
        raise
    except Exception as error:  # numpy, zipfile and h5py may raise anything on corrupt files
        raise InvalidValue("data", str(path), f"a valid {kind} file ({reason_of(error)})") from error


class NpzFile:
    """The arrays in an `.npz` archive, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._archive() as archive:
            self.keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def describe(self, key: str) -> Described:
        """Read the header of an array."""
        with self._archive() as archive, archive.open(f"{key}.npy") as stream:
            described = _header(stream)
            info = archive.getinfo(f"{key}.npy")
            header = stream.tell()
            if not described.dtype.hasobject and info.file_size != header + described.nbytes:
                allowed = f"an array of the size in its header ({header + described.nbytes} bytes)"
                raise InvalidValue(f"data.{key}", info.file_size, allowed)
            stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            return described._replace(offset=self._start(info) + header if stored else None)  # past the .npy header

    def whole(self, key: str) -> np.ndarray:
        """Read an array."""
        if self.describe(key).dtype.hasobject:
            allowed = "numbers or strings (numpy.array(values, dtype=str)); nothing is unpickled"
            raise InvalidValue(f"data.{key}", "Python objects", allowed)
        with self._archive() as archive, archive.open(f"{key}.npy") as stream:
            return npy.read_array(stream, allow_pickle=False)

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        """Yield the rows of an array in order, in blocks."""
        with self._archive() as archive, archive.open(f"{key}.npy") as stream:
            shape, dtype, *_ = _header(stream)
            step, row = rows_per_block(shape, dtype), int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
            for first in range(0, shape[0], step):
                count = min(step, shape[0] - first)
                content = stream.read(count * row)
                if len(content) != count * row:
                    raise EOFError("the array ends early")
                yield np.frombuffer(content, dtype).reshape(count, *shape[1:])

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Return an array's byte offset; its local header's length can differ from the one in the central directory."""
        with _opened(self.path, ".npz") as file:
            file.seek(info.header_offset)
            header = file.read(LOCAL_HEADER)
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return info.header_offset + LOCAL_HEADER + lengths

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with _opened(self.path, ".npz") as file, zipfile.ZipFile(file) as archive:
            yield archive


def _header(stream: IO[bytes]) -> Described:
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise ValueError(f"unknown version {version} of the .npy format")
    shape, fortran, dtype = readers[version](stream)
    return Described(tuple(int(side) for side in shape), dtype, None, not fortran or len(shape) < 2)


class Hdf5File:
    """The arrays in an HDF5 file, by key, without following links to other files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._file() as file:
            self.keys = [str(key) for key in file]

    def describe(self, key: str) -> Described:
        """Read the header of an array."""
        with self._file() as file:
            dataset = self._dataset(file, key)
            return Described(dataset.shape, dataset.dtype, dataset.id.get_offset() if not dataset.chunks else None)

    def whole(self, key: str) -> np.ndarray:
        """Read an array."""
        import h5py

        with self._file() as file:
            dataset = self._dataset(file, key)
            is_text = h5py.check_string_dtype(dataset.dtype) is not None
            return np.asarray(dataset.asstr()[()] if is_text else dataset[()])

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        """Yield the rows of an array in order, in blocks."""
        with self._file() as file:
            dataset = self._dataset(file, key)
            chunk = dataset.chunks[0] if dataset.chunks else 1  # a chunk is always unpacked as a whole
            step = -(-rows_per_block(dataset.shape, dataset.dtype) // chunk) * chunk
            for first in range(0, len(dataset), step):
                yield dataset[first : first + step]

    def _dataset(self, file: Any, key: str) -> Any:
        """Return an array stored in this file itself."""
        import h5py

        dataset = file[key] if isinstance(file.get(key, getlink=True), h5py.HardLink) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
            raise InvalidValue(f"data.{key}", type(dataset).__name__, "an array in this file itself, not a link")
        if dataset.chunks and int(np.prod(dataset.chunks, dtype=np.int64)) * dataset.dtype.itemsize > LARGEST_CHUNK:
            raise InvalidValue(f"data.{key}", dataset.chunks, f"stored in chunks of at most {LARGEST_CHUNK} bytes")
        return dataset

    @contextmanager
    def _file(self) -> Iterator[Any]:
        import h5py

        with _opened(self.path, "HDF5"), h5py.File(self.path, "r", locking=False) as file:
            yield file


Container = NpzFile | Hdf5File


def _load(file: Container, key: str) -> np.ndarray:
    described = file.describe(key)
    if described.nbytes > LARGEST_IN_MEMORY:
        raise InvalidValue(f"data.{key}", described.shape, f"at most {LARGEST_IN_MEMORY} bytes of labels")
    array = file.whole(key)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def from_arrays(path: Path) -> Source:
    """Return the images and factors in an `.npz` or HDF5 file."""
    file: Container = NpzFile(path) if path.suffix.lower() == ".npz" else Hdf5File(path)
    key = next((key for key in IMAGES if key in file.keys), None)
    if key is None:
        raise InvalidValue("data", listed(file.keys), f"a file with one of the keys {listed(IMAGES)}")
    described = file.describe(key)
    check_images(f"data.{key}", described.shape, described.dtype)
    if not described.c_order:
        raise InvalidValue(f"data.{key}", "Fortran order", "an array in C order (numpy.ascontiguousarray)")
    columns = _labelled(file, IMAGES[key], described.shape[0])
    return Source(
        described.shape, described.dtype, columns, lambda: file.blocks(key), file.path, described.offset,
        images_field=f"data.{key}",
    )  # fmt: skip


def _labelled(file: Container, key: str, rows: int) -> dict[str, np.ndarray]:
    """Return the label columns, or one array per factor; if the file has neither, assume all combinations in order."""
    if key not in file.keys:
        if SIZES not in file.keys and (columns := _by_name(file, rows)):
            return columns
        if key == "latents_values":
            raise InvalidValue("data", listed(file.keys), f"a file with the key {key} as well as imgs{OR_BY_NAME}")
        return _in_order(file, rows)
    shape = file.describe(key).shape
    if len(shape) != 2 or not 1 <= shape[1] <= MOST_FACTORS:
        raise InvalidValue(f"data.{key}", shape, f"of shape (row, factor), with at most {MOST_FACTORS} factors")
    if shape[0] != rows:
        raise InvalidValue(f"data.{key}", shape[0], f"{rows} rows, one per image")
    labels = _load(file, key)
    names = _names(file, key, shape[1])
    columns = {name: column_of(f"data.{name}", labels[:, k], rows) for k, name in enumerate(names)}
    # one array has one type, so numbers beside names are stored as text
    return {
        name: _column(name, column.tolist(), decimal_comma=False) if column.dtype.kind == "U" else column
        for name, column in columns.items()
    }


def _by_name(file: Container, rows: int) -> dict[str, np.ndarray]:
    """Return all arrays with one value per image, by their keys."""
    names = []
    for key in file.keys:
        with suppress(InvalidValue):  # a group or a link in HDF5, which is ignored as other keys are
            if file.describe(key).shape == (rows,):
                names.append(key)
    check_names("data", names)
    return {name: column_of(f"data.{name}", _load(file, name), rows) for name in names}


def _in_order(file: Container, rows: int) -> dict[str, np.ndarray]:
    if SIZES in file.keys:
        given = _load(file, SIZES)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not 1 <= len(given) <= MOST_FACTORS or given.min() < 1:
            raise InvalidValue(f"data.{SIZES}", given, "integers, the number of values of each factor")
        sizes = tuple(int(size) for size in given)
    elif rows in MPI3D_SIZES:
        sizes = MPI3D_SIZES[rows]
    else:
        raise InvalidValue("data", listed(file.keys), f"a file with labels or {SIZES} as well as images{OR_BY_NAME}")
    if float(np.prod(np.array(sizes, dtype=np.float64))) != rows:
        raise InvalidValue(f"data.{SIZES}", sizes, f"sizes whose product is {rows}, the number of images")
    positions = np.unravel_index(np.arange(rows), sizes)
    names = _names(file, SIZES, len(sizes))
    return {name: column.astype(np.float64) for name, column in zip(names, positions, strict=True)}


def _names(file: Container, key: str, count: int) -> list[str]:
    """Return the factor names given in the file, or else the published or numbered ones."""
    names = list(PUBLISHED[key]) if len(PUBLISHED[key]) == count else [f"factor_{k}" for k in range(count)]
    if NAMES in file.keys:
        given = _load(file, NAMES)
        if given.ndim != 1 or len(given) != count or given.dtype.kind not in "UOS":
            raise InvalidValue(f"data.{NAMES}", given, f"{count} strings, one per factor")
        names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in given.tolist()]
    check_names(f"data.{NAMES}", names)
    return names


def csv_of(folder: Path) -> Path:
    """Return the only CSV file in a folder."""
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".csv", ".tsv")))
    if len(names) != 1:
        raise InvalidValue("data", listed(names), f"a folder with one .csv file ({folder})")
    return folder / names[0]


def image_paths(table: Path, files: list[str]) -> list[Path]:
    """Return the paths of images, which must be in the CSV's folder."""
    paths = []
    for row, name in enumerate(files):
        inside = PurePath(name.replace("\\", "/"))
        if not name or inside.is_absolute() or ".." in inside.parts:
            raise InvalidValue("data", name, f"names of files in the CSV's folder (row {row})")
        paths.append(table.parent / inside)
    return paths


def from_csv(table: Path) -> Source:
    """Return the images listed in a CSV, and its factors."""
    files, columns = read_labels(table)
    paths = image_paths(table, files)
    first = _decoded(paths[0], 0)
    shape = (len(paths), *first.shape)
    check_images("data.images", shape, first.dtype)

    def image(row: int) -> np.ndarray:
        decoded = _decoded(paths[row], row)
        if decoded.shape != first.shape:
            raise InvalidValue("data", f"{paths[row].name} {decoded.shape}", f"images of one shape, {first.shape}")
        return decoded

    def blocks() -> Iterator[np.ndarray]:
        step = rows_per_block(shape, first.dtype)
        for begin in range(0, len(paths), step):
            yield np.stack([image(row) for row in range(begin, min(begin + step, len(paths)))])

    return Source(shape, first.dtype, columns, blocks, table)


def _decoded(path: Path, row: int) -> np.ndarray:
    """Return the pixels of an image, grey or RGB."""
    from PIL import Image

    content = read_given(path, "data")
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if max(image.size) > LARGEST_SIDE:
                raise ValueError(f"{image.size[0]} × {image.size[1]} pixels, {LARGEST_SIDE} at most")
            if image.mode not in MODES:
                raise ValueError(f"pixel mode {image.mode}, not 8-bit grey or colour")
            if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema()[0] != 255:
                raise ValueError("it is transparent")
            return np.asarray(image.convert(MODES[image.mode]))
    except Exception as error:  # a decoder may raise anything on corrupt files
        raise InvalidValue("data", str(path), f"a valid PNG or JPEG image (row {row}: {reason_of(error)})") from error


def read_labels(path: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return the file names and factor columns in a CSV, in any encoding and dialect written by spreadsheets."""
    content = read_given(path, "data")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue("data", str(path), f"a CSV in UTF-8 ({reason_of(error)})") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    lines = io.StringIO(text, newline=None)  # any line ending
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InvalidValue("data", str(path), f"a CSV file ({reason_of(error)})") from error
    if len(rows) < 2:
        raise InvalidValue("data", str(path), "a CSV with a header line and at least one row")
    header, rows = [name.strip() for name in rows[0]], rows[1:]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InvalidValue("data", listed(row), f"{len(header)} values, as in the header (row {number})")
    named = [k for k, name in enumerate(header) if name.lower() in FILE_COLUMNS]
    if len(named) != 1:
        raise InvalidValue("data", listed(header), f"a CSV with one column of file names: {listed(FILE_COLUMNS)}")
    names = [name for k, name in enumerate(header) if k != named[0]]
    if not 1 <= len(names) <= MOST_FACTORS:
        raise InvalidValue("data", listed(header), f"a CSV with 1 to {MOST_FACTORS} factors and the file names")
    check_names("data", names)
    cells = {name: [row[k].strip() for row in rows] for k, name in enumerate(header)}
    columns = {name: _column(name, cells[name], decimal_comma=delimiter != ",") for name in names}
    return cells[header[named[0]]], columns


def _column(name: str, cells: list[str], *, decimal_comma: bool) -> np.ndarray:
    """Return a column of numbers if all cells are numbers, or of strings if none are."""
    written = [cell.replace(",", ".") if decimal_comma else cell for cell in cells]
    numeric = [NUMBER.fullmatch(cell) is not None for cell in written]
    if any(numeric) and not all(numeric):
        row = numeric.index(not numeric[0])
        raise InvalidValue(f"data.{name}", cells[row], f"all numbers or all strings (row {row} differs from row 0)")
    return column_of(f"data.{name}", [float(cell) for cell in written] if all(numeric) else cells, len(cells))
