"""A folder of images (PNG, JPEG) with a CSV of their factors: a row per image, its file's name in one column.

The CSV is read as spreadsheets of all kinds write it: with or without a byte-order mark, in UTF-8 or UTF-16, lines that
end in any way, values separated by commas, semicolons, tabs or bars, and a decimal comma where commas do not separate.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recombine.data.columns import check_names, column_of
from recombine.data.images import LARGEST_SIDE, MOST_FACTORS, Source, check_images, rows_per_block
from recombine.errors import InvalidValue, listed, reason_of
from recombine.files import read_given

if TYPE_CHECKING:
    from PIL import Image

GREY, COLOUR = ("1", "L"), ("RGB", "P")
OPAQUE = 255
FILE_COLUMNS = ("file", "filename", "file_name", "image", "path")
"""Names, in any case, of the column with files' names."""
DELIMITERS = (",", ";", "\t", "|")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Labels(NamedTuple):
    """Files' names and the factors' columns."""

    files: list[str]
    columns: dict[str, np.ndarray]


def csv_of(folder: Path) -> Path:
    """The one CSV file of a folder."""
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".csv", ".tsv")))
    if len(names) != 1:
        raise InvalidValue("data", listed(names), f"a folder with one .csv file ({folder})")
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

    def image(row: int) -> np.ndarray:
        decoded = _decoded(paths[row], row)
        if decoded.shape != first.shape:
            raise InvalidValue("data", f"{paths[row].name} {decoded.shape}", f"images of one shape, {first.shape}")
        return decoded

    def blocks() -> Iterator[np.ndarray]:
        step = rows_per_block(shape, first.dtype)
        for begin in range(0, len(paths), step):
            yield np.stack([image(row) for row in range(begin, min(begin + step, len(paths)))])

    return Source(shape, first.dtype, labels.columns, blocks, table)


def _decoded(path: Path, row: int) -> np.ndarray:
    """The bytes of an image, grey or colour."""
    from PIL import Image

    content = read_given(path, "data")
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if max(image.size) > LARGEST_SIDE:
                raise ValueError(f"{image.size[0]} × {image.size[1]} pixels, {LARGEST_SIDE} at most")
            return _bytes(image)
    except Exception as error:  # a decoder may raise anything on bytes that are no image
        raise InvalidValue("data", str(path), f"a whole PNG or JPEG image (row {row}: {reason_of(error)})") from error


def _bytes(image: Image.Image) -> np.ndarray:
    if image.mode in ("RGBA", "LA", "PA"):
        if image.convert("RGBA").getchannel("A").getextrema()[0] != OPAQUE:
            raise ValueError("it is transparent")
        image = image.convert("L" if image.mode == "LA" else "RGB")
    if image.mode in GREY:
        return np.asarray(image.convert("L"))
    if image.mode not in COLOUR:
        raise ValueError(f"pixels of kind {image.mode}, not 8-bit grey or colour")
    if "transparency" in image.info:
        raise ValueError("it is transparent")
    return np.asarray(image.convert("RGB"))


def read_labels(path: Path) -> Labels:
    """The rows of a CSV file."""
    content = read_given(path, "data")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue("data", str(path), f"a CSV in UTF-8 ({reason_of(error)})") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    lines = io.StringIO(text, newline=None)  # which takes line ends of all kinds
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InvalidValue("data", str(path), f"a CSV file ({reason_of(error)})") from error
    if len(rows) < 2:
        raise InvalidValue("data", str(path), "a CSV whose first line names columns, with rows below it")
    header, rows = [name.strip() for name in rows[0]], rows[1:]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InvalidValue("data", listed(row), f"{len(header)} values, as in the header (row {number})")
    named = [k for k, name in enumerate(header) if name.lower() in FILE_COLUMNS]
    if len(named) != 1:
        raise InvalidValue("data", listed(header), f"a CSV with one column of files' names: {listed(FILE_COLUMNS)}")
    names = [name for k, name in enumerate(header) if k != named[0]]
    if not 1 <= len(names) <= MOST_FACTORS:
        raise InvalidValue("data", listed(header), f"a CSV with 1 to {MOST_FACTORS} factors beside the files' names")
    check_names("data", names)
    cells = {name: [row[k].strip() for row in rows] for k, name in enumerate(header)}
    columns = {name: _column(name, cells[name], decimal_comma=delimiter != ",") for name in names}
    return Labels(cells[header[named[0]]], columns)


def _column(name: str, cells: list[str], *, decimal_comma: bool) -> np.ndarray:
    """Numbers where all cells are numbers, texts where none is."""
    written = [cell.replace(",", ".") if decimal_comma else cell for cell in cells]
    numeric = [NUMBER.fullmatch(cell) is not None for cell in written]
    if any(numeric) and not all(numeric):
        row = numeric.index(not numeric[0])
        raise InvalidValue(f"data.{name}", cells[row], f"all numbers or all strings (row {row} is not as row 0)")
    return column_of(f"data.{name}", [float(cell) for cell in written] if all(numeric) else cells, len(cells))
