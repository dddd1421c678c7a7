"""Data from a path, from an identity, or from arrays; and what is known of files from one command to the next.

A path is an `.npz` or HDF5 file, a folder of images with a CSV, or that CSV. Data that are open already are not opened
again. In the user's cache folder (`RECOMBINE_CACHE` names another), below `data`, are

- `FILE.json` of a file as it was seen, by path, size and time of change: its identity;
- `IDENTITY.pixels`: images that cannot be read row by row where they are (compressed archives, folders of pictures),
  unpacked once, as plain bytes;
- `IDENTITY.json`: where data with this identity were last opened, so that stored runs find them again.

Everything there can be deleted at any time: it is made again from the file.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from recombine.data.array_files import from_arrays
from recombine.data.columns import check_names, column_of
from recombine.data.folder import csv_of, from_csv, image_paths, read_labels
from recombine.data.images import MOST_FACTORS, FilePixels, Identity, LabelledImages, Pixels, Source, check_images
from recombine.errors import InvalidValue, RecombineError
from recombine.files import cache_folder, one_line_errors, parsed_json, read, remove_abandoned, write, write_parts
from recombine.keys import DIGEST_LENGTH, canonical_json, json_digest

READERS = {
    **dict.fromkeys((".npz", ".h5", ".hdf5", ".hdf"), from_arrays), ".csv": from_csv, ".tsv": from_csv,
}  # fmt: skip
ALLOWED = "an .npz or HDF5 (.h5, .hdf5) file, a folder of images with a .csv, or that .csv"
IDENTITY = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
SUFFIX = ".pixels"
IN_MEMORY = 2**26
"""Bytes of images up to which compressed ones are kept in memory instead of being unpacked to a file."""
SPARE = 2**28
"""Bytes of a disk that stay free."""
NOTABLE = 2**26
"""Bytes whose reading takes long enough to say so."""

_OPEN: WeakValueDictionary[str, LabelledImages] = WeakValueDictionary()
"""Data that are in use, by identity and by file."""


def open_images(data: LabelledImages | str | os.PathLike[str]) -> LabelledImages:
    """Images with their factors: of a path, of an identity that was opened before, or as they are."""
    if isinstance(data, LabelledImages):
        return data
    if isinstance(data, str) and IDENTITY.fullmatch(data):
        return _known(data)
    path = Path(data)
    if not os.path.exists(path) or not str(data):
        raise InvalidValue("data", str(data), f"a file or folder that exists: {ALLOWED}")
    table = csv_of(path) if path.is_dir() else path
    reader = READERS.get(table.suffix.lower())
    if reader is None:
        raise InvalidValue("data", str(path), ALLOWED)
    pictures = image_paths(table, read_labels(table).files) if reader is from_csv else []
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
    """Data that were opened before, in this process or another."""
    already = _OPEN.get(digest)
    if already is not None:
        return already
    path = _record(digest).get("path")
    if isinstance(path, str) and os.path.exists(path):
        return reopened(Path(path), digest)
    raise InvalidValue("data", digest, "data that were opened here before; open their file, or make the arrays, again")


def reopened(path: Path, digest: str) -> LabelledImages:
    """Data that were opened before, or in another process, from their file."""
    opened = open_images(path)
    if opened.digest != digest:
        raise InvalidValue("data", digest, f"data as they were ({path} has changed since)")
    return opened


def with_factors(images: Any, factors: Mapping[str, Any]) -> LabelledImages:
    """Images and factors from arrays."""
    array = np.asarray(images.detach().cpu() if isinstance(images, torch.Tensor) else images)
    check_images("images", array.shape, array.dtype)
    if not isinstance(factors, Mapping) or not 1 <= len(factors) <= MOST_FACTORS:
        raise InvalidValue("factors", factors, 'values by name, as {"x": [0, 1, …], "shape": ["heart", …]}')
    check_names("factors", factors)
    columns = {name: column_of(f"factors.{name}", values, len(array)) for name, values in factors.items()}
    pixels = Pixels(array)
    identity = Identity(Source(array.shape, array.dtype, columns, pixels.blocks, images_field="images"))
    for block in pixels.blocks():
        identity.add(block)
    return received(array, columns, identity.digest, identity.largest, "factors")


def received(
    array: np.ndarray, columns: dict[str, np.ndarray], digest: str, largest: float, field: str
) -> LabelledImages:
    """Data in another process, or a copy, from arrays."""
    opened = _OPEN.get(digest)
    if opened is None:
        opened = _OPEN[digest] = LabelledImages(Pixels(array), columns, digest, largest, None, field)
    return opened


# -- the cache ---------------------------------------------------------------------------------------------------------


def folder() -> Path:
    """The cache's own folder."""
    return cache_folder() / "data"


def _seen_as(paths: list[Path]) -> str:
    """A name for files as they are now: where, how long, last changed when."""
    states = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError as error:
            raise InvalidValue("data", str(path), f"a readable file ({error.strerror})") from None
        states.append([os.path.realpath(path), state.st_size, state.st_mtime_ns])
    return json_digest({"files": states})


def _record(name: str) -> dict[str, Any]:
    """A record of the cache; empty where there is none that can be read."""
    with suppress(OSError, ValueError):
        record = parsed_json(read(folder() / f"{name}.json"))
        if isinstance(record, dict):
            return record
    return {}


def _keep(name: str, record: dict[str, Any]) -> None:
    """Write a record where it is new; a cache that cannot be written is done without."""
    if _record(name) != record:
        with suppress(OSError, RecombineError):
            folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            write(folder() / f"{name}.json", canonical_json(record).encode(), "data")


def _pixels_of(source: Source, seen: str) -> tuple[Pixels, str, float]:
    """The images of a file, where they lie or in memory, with their identity and largest number."""
    record = _record(seen)
    digest, largest = record.get("digest"), record.get("largest")
    if isinstance(digest, str) and digest.isalnum() and isinstance(largest, int | float):
        pixels = _available(source, digest)
        if pixels is not None:
            return pixels, digest, float(largest)
    identity = Identity(source)
    pixels = _read(source, identity)
    _keep(seen, {"digest": identity.digest, "largest": identity.largest})
    return pixels, identity.digest, identity.largest


def _available(source: Source, digest: str) -> Pixels | None:
    """Images whose identity is known, if they can be read row by row."""
    assert source.path is not None
    if source.offset is not None:
        return FilePixels(source.path, source.offset, source.shape, source.dtype)
    unpacked = folder() / f"{digest}{SUFFIX}"
    with suppress(OSError):
        if unpacked.stat().st_size == source.nbytes and source.nbytes > IN_MEMORY:
            return FilePixels(unpacked, 0, source.shape, source.dtype)
    return None


def _read(source: Source, identity: Identity) -> Pixels:
    """Images that are read for the first time: all of them, once."""
    assert source.path is not None
    if source.offset is not None:
        _say(source, f"reading {source.path} once, to know it again")
        pixels = FilePixels(source.path, source.offset, source.shape, source.dtype)
        for block in pixels.blocks():
            identity.add(block)
        return pixels
    if source.nbytes <= IN_MEMORY:
        blocks = []
        for block in source.blocks():
            identity.add(block)
            blocks.append(block)
        return Pixels(np.concatenate(blocks))
    return _unpacked(source, source.path, identity)


def _unpacked(source: Source, path: Path, identity: Identity) -> Pixels:
    """Images in a file of the cache, where they can be read row by row."""
    _require_room(source)
    _say(source, f"unpacking {path} once, to {folder()}")

    def parts() -> Iterator[memoryview]:
        for block in source.blocks():
            identity.add(block)
            yield block.data

    arriving = folder() / f"{_seen_as([path])}{SUFFIX}"
    write_parts(arriving, parts(), "data")
    unpacked = folder() / f"{identity.digest}{SUFFIX}"
    os.replace(arriving, unpacked)
    return FilePixels(unpacked, 0, source.shape, source.dtype)


def _require_room(source: Source) -> None:
    """Refuse what the disk cannot hold, before anything is written."""
    with one_line_errors(folder(), "data"):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned(folder(), lambda name: name.endswith(SUFFIX))
    free = shutil.disk_usage(folder()).free
    if source.nbytes + SPARE > free:
        sizes = f"{source.nbytes / 2**30:.1f} GiB of images, {free / 2**30:.1f} free in {folder()}"
        raise InvalidValue("data", str(source.path), f"what fits the disk ({sizes}; RECOMBINE_CACHE names another)")


def _say(source: Source, line: str) -> None:
    """One line on standard error before what takes a while."""
    if source.nbytes >= NOTABLE and sys.stderr is not None:
        print(f"data: {line} ({source.nbytes / 1e9:.1f} GB)", file=sys.stderr, flush=True)
