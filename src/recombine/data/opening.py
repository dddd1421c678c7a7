"""Data from a path, from an identity, or from arrays.

A path is an `.npz` or HDF5 file, a folder of images with a CSV, or that CSV. Data that are open already are not opened
again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from recombine.checks import given_path
from recombine.data import cache
from recombine.data.columns import check_names, column_of
from recombine.data.folder import csv_of, from_csv, image_paths
from recombine.data.labelled import Identity, LabelledImages
from recombine.data.labels_table import read_labels
from recombine.data.layouts import from_hdf5, from_npz
from recombine.data.pixels import Pixels, rows_per_block
from recombine.data.source import MOST_FACTORS, Source, check_images
from recombine.errors import InvalidValue
from recombine.keys import DIGEST_LENGTH

READERS = {
    ".npz": from_npz, ".h5": from_hdf5, ".hdf5": from_hdf5, ".hdf": from_hdf5, ".csv": from_csv, ".tsv": from_csv,
}  # fmt: skip
ALLOWED = "an .npz or HDF5 (.h5, .hdf5) file, a folder of images with a .csv, or that .csv"
IDENTITY = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")

_OPEN: WeakValueDictionary[str, LabelledImages] = WeakValueDictionary()
"""Data that are in use, by identity and by file."""


def open_images(data: Any) -> LabelledImages:
    """Images with their factors: of a path, of an identity that was opened before, or as they are."""
    if isinstance(data, LabelledImages):
        return data
    if isinstance(data, str) and IDENTITY.fullmatch(data):
        return _known(data)
    path = given_path("data", data)
    if not os.fspath(path) or (isinstance(data, str) and not data):
        raise InvalidValue("data", data, ALLOWED)
    if not path.exists():
        raise InvalidValue("data", str(path), f"a file or folder that exists: {ALLOWED}")
    table = csv_of(path) if path.is_dir() else path
    reader = READERS.get(table.suffix.lower())
    if reader is None:
        raise InvalidValue("data", str(path), ALLOWED)
    seen = cache.seen_as(_files(table))
    opened = _OPEN.get(seen)
    if opened is None:
        source = reader(table)
        pixels, digest, largest = cache.pixels_of(source, seen)
        opened = LabelledImages(pixels, source.columns, digest, largest, table.absolute())
        cache.keep(digest, {"path": os.path.realpath(table)})
        _OPEN[seen] = _OPEN[digest] = opened
    return opened


def _files(table: Path) -> list[Path]:
    """The files that data consist of."""
    is_table = READERS[table.suffix.lower()] is from_csv
    return [table, *(image_paths(table, read_labels(table).files) if is_table else [])]


def _known(digest: str) -> LabelledImages:
    """Data that were opened before, in this process or another."""
    already = _OPEN.get(digest)
    if already is not None:
        return already
    path = cache.known(digest).get("path")
    if isinstance(path, str) and os.path.exists(path):
        opened = open_images(Path(path))
        if opened.digest == digest:
            return opened
        raise InvalidValue("data", digest, f"data as they were ({path} has changed since)")
    raise InvalidValue("data", digest, "data that were opened here before; open their file, or make the arrays, again")


def with_factors(images: Any, factors: Any) -> LabelledImages:
    """Images and factors from arrays."""
    array = _array(images)
    check_images("images", array.shape, array.dtype)
    if not isinstance(factors, Mapping) or not 1 <= len(factors) <= MOST_FACTORS:
        raise InvalidValue("factors", factors, 'values by name, as {"x": [0, 1, …], "shape": ["heart", …]}')
    check_names("factors", factors)
    columns = {name: column_of(f"factors.{name}", values, len(array)) for name, values in factors.items()}

    def blocks() -> Iterator[np.ndarray]:
        step = rows_per_block(array.shape, array.dtype)
        return (array[first : first + step] for first in range(0, len(array), step))

    identity = Identity(Source(array.shape, array.dtype, columns, blocks, images_field="images"))
    for block in blocks():
        identity.add(block)
    return received(array, columns, identity.digest, identity.largest, "factors")


def _array(images: Any) -> np.ndarray:
    import torch

    try:
        array = np.asarray(images.detach().cpu() if isinstance(images, torch.Tensor) else images)
    except Exception:  # whatever a user's own object raises
        array = np.empty(0, dtype=object)
    if array.dtype.hasobject:
        raise InvalidValue("images", images, "an array of shape (row, y, x) or (row, y, x, channel)")
    return array


def reopened(path: Path, digest: str) -> LabelledImages:
    """Data in another process, from their file."""
    opened = open_images(path)
    if opened.digest != digest:
        raise InvalidValue("data", str(path), "a file that does not change while it is used")
    return opened


def received(
    array: np.ndarray, columns: dict[str, np.ndarray], digest: str, largest: float, field: str
) -> LabelledImages:
    """Data in another process, or a copy, from arrays."""
    opened = _OPEN.get(digest)
    if opened is None:
        opened = _OPEN[digest] = LabelledImages(Pixels(array), columns, digest, largest, None, field)
    return opened
