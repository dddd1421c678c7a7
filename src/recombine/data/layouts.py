"""Layouts of files with arrays, `.npz` and HDF5 alike: which key has the images, which the factors.

| images | factors | of |
|---|---|---|
| `imgs` | `latents_values`, a column each | dSprites |
| `images` | `labels`, a column each | 3D Shapes |
| `images` | none: all combinations in order, the last factor fastest | MPI3D |

Names come from `factor_names` where the file has it, and are the published ones for the published numbers of columns.
Without labels, `factor_sizes` says how many values each factor has; MPI3D's own are known. `metadata`, which dSprites
keeps as pickled objects, is never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from recombine.data.columns import check_names, column_of
from recombine.data.hdf5 import Hdf5File
from recombine.data.npz import Described, NpzFile
from recombine.data.source import MOST_FACTORS, Source, check_images
from recombine.errors import InvalidValue, listed

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


class Container(Protocol):
    """A file with arrays."""

    path: Path
    kind: str
    keys: list[str]

    def describe(self, key: str) -> Described: ...
    def load(self, key: str) -> np.ndarray: ...
    def blocks(self, key: str) -> Iterator[np.ndarray]: ...


def from_npz(path: Path) -> Source:
    """The images and factors of an `.npz` file."""
    return _source(NpzFile(path))


def from_hdf5(path: Path) -> Source:
    """The images and factors of an HDF5 file."""
    return _source(Hdf5File(path))


def _source(file: Container) -> Source:
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
        raise InvalidValue(f"data.{key}", shape, f"a column for each factor, {MOST_FACTORS} at most: (row, factor)")
    if shape[0] != rows:
        raise InvalidValue(f"data.{key}", shape[0], f"{rows} rows, one per image")
    labels = file.load(key)
    names = _names(file, key, shape[1])
    return {name: column_of(f"data.{name}", labels[:, k], rows) for k, name in enumerate(names)}


def _in_order(file: Container, rows: int) -> dict[str, np.ndarray]:
    if SIZES in file.keys:
        given = file.load(SIZES)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not 1 <= len(given) <= MOST_FACTORS or given.min() < 1:
            raise InvalidValue(f"data.{SIZES}", given, "a list of whole numbers, how many values each factor has")
        sizes = tuple(int(size) for size in given)
    elif rows in MPI3D_SIZES:
        sizes = MPI3D_SIZES[rows]
    else:
        known = listed(MPI3D_SIZES)
        raise InvalidValue("data", listed(file.keys), f"labels, or {SIZES}, beside images unless there are {known}")
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
            raise InvalidValue(f"data.{NAMES}", given, f"{count} texts, one per factor")
        names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in given.tolist()]
    check_names(f"data.{NAMES}", names)
    return names
