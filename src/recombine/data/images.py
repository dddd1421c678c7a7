"""Images with known factors, loaded from a file, folder or arrays, or looked up by their identity.

Images are `(row, y, x)` or `(row, y, x, channel)`; pixels are uint8 (0 … 255, or 0 and 1 if none is larger), bool, or
floats from 0 to 1. The identity is a SHA-256 of all pixels, factor names and values, independent of the file format.
It is computed when a file is first read. The folder `data` in the user's cache (or `RECOMBINE_CACHE`) contains

- `FILE.json`: the identity of a file, looked up by its path, size and modification time;
- `IDENTITY.pixels`: images unpacked from compressed archives and from image folders;
- `IDENTITY.json`: where the data were last opened, so that stored runs can find them again.

All of these can be deleted at any time and are recreated from the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from recombine.data.readers import csv_of, from_arrays, from_csv, image_paths, read_labels
from recombine.data.sources import MOST_FACTORS, Source, check_images, check_names, column_of, rows_per_block
from recombine.errors import InvalidValue, RecombineError
from recombine.files import cache_folder, one_line_errors, open_regular, parsed_json, read, remove_abandoned, write
from recombine.keys import DIGEST_LENGTH, canonical_json, json_digest

SAMPLED = 2048
"""Number of images used to estimate the mean."""
READERS = {
    **dict.fromkeys((".npz", ".h5", ".hdf5", ".hdf"), from_arrays), ".csv": from_csv, ".tsv": from_csv,
}  # fmt: skip
ALLOWED = "an .npz or HDF5 (.h5, .hdf5) file, a folder of images with a .csv, or that .csv"
IDENTITY = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
SUFFIX = ".pixels"
IN_MEMORY = 2**26
"""Compressed images up to this size, in bytes, are kept in memory instead of being unpacked to a file."""
SPARE_BYTES = 2**28
NOTABLE = 2**26
"""Size in bytes above which reading is slow enough to be announced."""


class Pixels:
    """Images in memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of some rows in their stored format."""
        return self.array[rows]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, in blocks."""
        step = rows_per_block(self.shape, self.dtype)
        for first in range(0, len(self), step):
            yield self.take(np.arange(first, min(first + step, len(self))))


class FilePixels(Pixels):
    """Uncompressed images in a file, starting at an offset and read row by row."""

    # not a memory map: its pages would count as the process's memory, and truncating a mapped file kills the process
    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.path, self.offset, self.shape, self.dtype = path, offset, shape, dtype
        self.row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._file = os.fdopen(open_regular(path, follow=True), "rb", buffering=0)
        needed = offset + shape[0] * self.row_bytes
        if os.fstat(self._file.fileno()).st_size < needed:
            raise InvalidValue("data", str(path), f"a file of at least {needed} bytes")

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of some rows in their stored format; consecutive rows are read at once."""
        images = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        content = images.reshape(-1).view(np.uint8).data
        ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)] if len(rows) else []
        for begin, end in zip([0, *ends], ends, strict=False):
            part = content[begin * self.row_bytes : end * self.row_bytes]
            place, done = self.offset + int(rows[begin]) * self.row_bytes, 0
            while done < len(part):
                count = os.preadv(self._file.fileno(), [part[done:]], place + done)
                if not count:
                    raise InvalidValue("data", str(self.path), "a file that is not truncated while in use")
                done += count
        return images


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and one column of values per factor."""

    pixels: Pixels
    columns: dict[str, np.ndarray]
    digest: str
    largest: float
    """Largest pixel value, as stored."""
    path: Path | None = None
    """The file that contains the images, if any."""
    factors_field: str = "data"
    """Prefix of factor names in error messages, followed by a dot."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(y, x)`, or `(channel, y, x)` for colour."""
        _, rows, columns, *channels = self.pixels.shape
        return (channels[0], rows, columns) if channels and channels[0] > 1 else (rows, columns)

    def images(self, rows: np.ndarray) -> Float[Tensor, " row *image"]:
        """Return the selected images as floats in [0, 1], channels first."""
        stored = torch.from_numpy(self.pixels.take(rows))
        images = stored.float()
        if stored.dtype == torch.uint8 and self.largest > 1:
            images /= 255
        if images.ndim == 4:
            images = images.movedim(-1, 1) if images.shape[-1] > 1 else images[..., 0]
        return images.contiguous()

    def sample(self) -> np.ndarray:
        """Return the indices of evenly spaced rows, as a representative sample."""
        return np.unique(np.linspace(0, len(self) - 1, min(len(self), SAMPLED)).round().astype(np.int64))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickle the path, so that another process reopens the file, or the arrays if there is no file."""
        if self.path is not None:
            return reopened, (self.path, self.digest)
        return received, (self.pixels.array, self.columns, self.digest, self.largest, self.factors_field)


class Identity:
    """A digest of images, updated block by block, and their largest value."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, columns: Mapping[str, np.ndarray], field: str) -> None:
        self._field, self._rows, self.largest = field, 0, 0.0
        values = {
            name: column.tolist() if column.dtype.kind == "U" else hashlib.sha256(column.tobytes()).hexdigest()
            for name, column in columns.items()
        }
        sides = shape[:-1] if len(shape) == 4 and shape[3] == 1 else shape
        header = {"shape": list(sides), "kind": dtype.name, "columns": list(values.items())}
        self._digest = hashlib.sha256(canonical_json(header).encode())

    def fed(self, blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Pass blocks on, adding each to the digest; raise an error if floats are outside [0, 1]."""
        for block in blocks:
            high = float(block.max())
            if block.dtype.kind == "f" and not (block.min() >= 0 and high <= 1):  # also catches NaN
                row, *place = np.argwhere(~((block >= 0) & (block <= 1)))[0].tolist()
                allowed = f"bytes, or numbers from 0 to 1 (row {self._rows + row} has other values)"
                raise InvalidValue(self._field, float(block[(row, *place)]), allowed)
            self.largest = max(self.largest, high)
            self._rows += len(block)
            self._digest.update(np.ascontiguousarray(block).data)
            yield block

    @property
    def digest(self) -> str:
        """Digest of all blocks so far."""
        return self._digest.hexdigest()[:DIGEST_LENGTH]


_OPEN: WeakValueDictionary[str, LabelledImages] = WeakValueDictionary()
"""Data currently in use, by identity and by file."""


def open_images(data: LabelledImages | str | os.PathLike[str]) -> LabelledImages:
    """Return images with their factors, given a path or the identity of previously opened data."""
    if isinstance(data, LabelledImages):
        return data
    if isinstance(data, str) and IDENTITY.fullmatch(data):
        return _known(data)
    path = Path(data)
    if not os.path.exists(path) or not str(data):
        raise InvalidValue("data", str(data), f"an existing file or folder: {ALLOWED}")
    table = csv_of(path) if path.is_dir() else path
    reader = READERS.get(table.suffix.lower())
    if reader is None:
        raise InvalidValue("data", str(path), ALLOWED)
    pictures = image_paths(table, read_labels(table)[0]) if reader is from_csv else []
    seen = _seen_as([table, *pictures])
    opened = _OPEN.get(seen)
    if opened is None:
        source = reader(table)
        pixels, digest, largest = _pixels_of(source, seen)
        opened = LabelledImages(pixels, source.columns, digest, largest, table.absolute())
        _keep(digest, {"path": os.path.realpath(table)})
        _OPEN[seen] = _OPEN[digest] = opened
    return opened


def _known(digest: str) -> LabelledImages:
    """Return data previously opened in this process or another."""
    opened = _OPEN.get(digest)
    if opened is not None:
        return opened
    path = _record(digest).get("path")
    if isinstance(path, str) and os.path.exists(path):
        return reopened(Path(path), digest)
    raise InvalidValue("data", digest, "previously opened data; open the file or pass the arrays again")


def reopened(path: Path, digest: str) -> LabelledImages:
    """Reopen data from a file that was opened earlier or in another process."""
    opened = open_images(path)
    if opened.digest != digest:
        raise InvalidValue("data", digest, f"unchanged data ({path} has changed since)")
    return opened


def with_factors(images: Any, factors: Any) -> LabelledImages:
    """Return images with their factors from arrays, in a dictionary or a DataFrame."""
    array = np.asarray(images.detach().cpu() if isinstance(images, torch.Tensor) else images)
    check_images("images", array.shape, array.dtype)
    if hasattr(factors, "columns"):  # a DataFrame
        factors = {name: factors[name] for name in factors.columns}
    if not isinstance(factors, Mapping) or not 1 <= len(factors) <= MOST_FACTORS:
        raise InvalidValue("factors", factors, 'values by name, such as {"x": [0, 1, …], "shape": ["heart", …]}')
    check_names("factors", factors)
    columns = {name: column_of(f"factors.{name}", values, len(array)) for name, values in factors.items()}
    identity = Identity(array.shape, array.dtype, columns, "images")
    for _ in identity.fed(Pixels(array).blocks()):
        pass
    return received(array, columns, identity.digest, identity.largest, "factors")


def received(
    array: np.ndarray, columns: dict[str, np.ndarray], digest: str, largest: float, field: str
) -> LabelledImages:
    """Return data received from another process, or the same data if they are already open."""
    opened = _OPEN.get(digest)
    if opened is None:
        opened = _OPEN[digest] = LabelledImages(Pixels(array), columns, digest, largest, None, field)
    return opened


def folder() -> Path:
    """Return the cache folder."""
    return cache_folder() / "data"


def _seen_as(paths: list[Path]) -> str:
    """Return a digest of the paths, sizes and modification times of files."""
    states = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError as error:
            raise InvalidValue("data", str(path), f"a readable file ({error.strerror})") from None
        states.append([os.path.realpath(path), state.st_size, state.st_mtime_ns])
    return json_digest({"files": states})


def _record(name: str) -> dict[str, Any]:
    """Return a record from the cache, or an empty one if it is missing or unreadable."""
    with suppress(OSError, ValueError):
        record = parsed_json(read(folder() / f"{name}.json"))
        if isinstance(record, dict):
            return record
    return {}


def _keep(name: str, record: dict[str, Any]) -> None:
    """Write a record to the cache unless it is already there; ignore a cache that is not writable."""
    if _record(name) != record:
        with suppress(OSError, RecombineError):
            folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            write(folder() / f"{name}.json", canonical_json(record).encode(), "data")


def _pixels_of(source: Source, seen: str) -> tuple[Pixels, str, float]:
    """Return a file's images with their identity and largest value; all images are read unless both are known."""
    record = _record(seen)
    identity = Identity(source.shape, source.dtype, source.columns, source.images_field)
    digest, largest = record.get("digest"), record.get("largest")
    is_known = isinstance(digest, str) and digest.isalnum() and isinstance(largest, int | float)
    known = (str(digest), float(largest or 0)) if is_known else None
    pixels: Pixels
    if source.offset is not None:
        pixels = FilePixels(source.path, source.offset, source.shape, source.dtype)
        if known is not None:
            return pixels, *known
        _say(source, f"reading {source.path} once to compute its digest")
        for _ in identity.fed(pixels.blocks()):
            pass
    elif source.nbytes <= IN_MEMORY:
        pixels = Pixels(np.concatenate(list(identity.fed(source.blocks()))))
    else:
        unpacked = folder() / f"{digest}{SUFFIX}"
        with suppress(OSError):
            if known is not None and unpacked.stat().st_size == source.nbytes:
                return FilePixels(unpacked, 0, source.shape, source.dtype), *known
        pixels = _unpacked(source, identity)
    _keep(seen, {"digest": identity.digest, "largest": identity.largest})
    return pixels, identity.digest, identity.largest


def _unpacked(source: Source, identity: Identity) -> Pixels:
    """Unpack compressed images into the cache."""
    with one_line_errors(folder(), "data"):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned(folder(), lambda name: name.endswith(SUFFIX))
    free = shutil.disk_usage(folder()).free
    if source.nbytes + SPARE_BYTES > free:
        sizes = f"{source.nbytes / 2**30:.1f} GiB of images, {free / 2**30:.1f} free in {folder()}"
        raise InvalidValue("data", str(source.path), f"small enough for the disk ({sizes}; see RECOMBINE_CACHE)")
    _say(source, f"unpacking {source.path} into {folder()} (only needed once)")
    arriving = folder() / f"{_seen_as([source.path])}{SUFFIX}"
    write(arriving, (block.data for block in identity.fed(source.blocks())), "data")
    unpacked = folder() / f"{identity.digest}{SUFFIX}"
    os.replace(arriving, unpacked)
    return FilePixels(unpacked, 0, source.shape, source.dtype)


def _say(source: Source, line: str) -> None:
    if source.nbytes >= NOTABLE and sys.stderr is not None:
        print(f"data: {line} ({source.nbytes / 1e9:.1f} GB)", file=sys.stderr, flush=True)
