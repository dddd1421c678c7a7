"""A folder of images (PNG, JPEG) with a CSV of their factors beside them."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from recombine.data.labels_table import read_labels
from recombine.data.pixels import rows_per_block
from recombine.data.source import LARGEST_SIDE, Source, check_images
from recombine.errors import InvalidValue, listed, reason_of
from recombine.files import read_given

if TYPE_CHECKING:
    from PIL import Image

GREY, COLOUR = ("1", "L"), ("RGB", "P")
OPAQUE = 255


def csv_of(folder: Path) -> Path:
    """The one CSV file of a folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".csv", ".tsv")))
    except OSError as error:
        raise InvalidValue("data", str(folder), f"a readable folder ({error.strerror})") from None
    if len(names) != 1:
        raise InvalidValue("data", listed(names), f"one .csv file in {folder}, with the images' names and factors")
    return folder / names[0]


def image_paths(table: Path, files: list[str]) -> list[Path]:
    """Where the images are: below the folder of their CSV."""
    paths = []
    for row, name in enumerate(files):
        inside = PurePath(name.replace("\\", "/"))
        if not name or inside.is_absolute() or ".." in inside.parts:
            raise InvalidValue("data", name, f"names of files below the folder of the CSV (row {row})")
        paths.append(table.parent / inside)
    return paths


def from_csv(table: Path) -> Source:
    """The images that a CSV names, and its factors."""
    labels = read_labels(table)
    paths = image_paths(table, labels.files)
    first = _decoded(paths[0], 0)
    shape = (len(paths), *first.shape)
    check_images("data.images", shape, first.dtype)

    def blocks() -> Iterator[np.ndarray]:
        step = rows_per_block(shape, first.dtype)
        for begin in range(0, len(paths), step):
            yield np.stack([_alike(path, begin + k, first) for k, path in enumerate(paths[begin : begin + step])])

    return Source(shape, first.dtype, labels.columns, blocks, table)


def _alike(path: Path, row: int, first: np.ndarray) -> np.ndarray:
    """An image of the same size and kind as the first."""
    image = _decoded(path, row)
    if image.shape != first.shape:
        raise InvalidValue("data", f"{path.name} {image.shape}", f"images of one shape, {first.shape} (row {row})")
    return image


def _decoded(path: Path, row: int) -> np.ndarray:
    """The bytes of an image, grey or colour."""
    from PIL import Image, UnidentifiedImageError

    content = read_given(path, "data")
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if max(image.size) > LARGEST_SIDE:
                raise ValueError(f"{image.size[0]} × {image.size[1]} pixels, {LARGEST_SIDE} at most")
            return _bytes(image)
    except UnidentifiedImageError as error:  # which names an object of ours
        raise InvalidValue("data", str(path), f"a whole PNG or JPEG image (row {row})") from error
    except Exception as error:  # a decoder may raise anything on bytes that are no image
        raise InvalidValue("data", str(path), f"a whole PNG or JPEG image (row {row}: {reason_of(error)})") from error


def _bytes(image: Image.Image) -> np.ndarray:
    if image.mode in ("RGBA", "LA", "PA"):
        opaque = image.convert("RGBA").getchannel("A").getextrema()[0] == OPAQUE
        if not opaque:
            raise ValueError("it is transparent")
        image = image.convert("L" if image.mode == "LA" else "RGB")
    if image.mode in GREY:
        return np.asarray(image.convert("L"))
    if image.mode in COLOUR:
        if "transparency" in image.info:
            raise ValueError("it is transparent")
        return np.asarray(image.convert("RGB"))
    raise ValueError(f"pixels of kind {image.mode}, not 8-bit grey or colour")
