"""A CSV of factor values: one row per image, its file's name in one column, a factor in each other.

Read as spreadsheets of all kinds write it: with or without a byte-order mark, in UTF-8 or UTF-16, lines that end in any
way, values separated by commas, semicolons, tabs or bars, and a decimal comma where commas do not separate.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recombine.data.columns import check_names, column_of
from recombine.data.source import MOST_FACTORS
from recombine.errors import InvalidValue, listed, reason_of
from recombine.factors import LARGEST_GRID
from recombine.files import read_given

FILE_COLUMNS = ("file", "filename", "file_name", "image", "path")
"""Names, in any case, of the column with files' names."""
DELIMITERS = (",", ";", "\t", "|")
NAMED_COLUMNS = "a CSV whose first line names columns, separated by commas, semicolons, tabs or bars"
LARGEST_BYTES = 2**30
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class LabelsTable(NamedTuple):
    """Files' names and the factors' columns."""

    files: list[str]
    columns: dict[str, np.ndarray]


def read_labels(path: Path) -> LabelsTable:
    """The rows of a CSV file."""
    if path.is_file() and path.stat().st_size > LARGEST_BYTES:
        raise InvalidValue("data", str(path), f"a CSV of at most {LARGEST_BYTES} bytes")
    text = _decoded(path, read_given(path, "data"))
    lines = io.StringIO(text, newline=None)  # which takes line ends of all kinds
    delimiter = _delimiter(path, text)
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InvalidValue("data", str(path), f"a CSV file ({reason_of(error)})") from error
    if not rows:  # separators alone
        raise InvalidValue("data", str(path), NAMED_COLUMNS)
    header, rows = [name.strip() for name in rows[0]], rows[1:]
    _check_rows(path, header, rows)
    named = [k for k, name in enumerate(header) if name.lower() in FILE_COLUMNS]
    if len(named) != 1:
        raise InvalidValue("data", listed(header), f"one column with the files' names, called {listed(FILE_COLUMNS)}")
    names = [name for k, name in enumerate(header) if k != named[0]]
    if not 1 <= len(names) <= MOST_FACTORS:
        raise InvalidValue("data", listed(header), f"1 to {MOST_FACTORS} columns of factors beside the files' names")
    check_names("data", names)
    cells = {name: [row[k].strip() for row in rows] for k, name in enumerate(header)}
    columns = {name: _column(name, cells[name], decimal_comma=delimiter != ",") for name in names}
    return LabelsTable(cells[header[named[0]]], columns)


def _decoded(path: Path, content: bytes) -> str:
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue("data", str(path), f"a CSV in UTF-8 ({reason_of(error)})") from None


def _delimiter(path: Path, text: str) -> str:
    """What separates the names of the first line that has any."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    counts = {delimiter: first.count(delimiter) for delimiter in DELIMITERS}
    if not max(counts.values()):
        raise InvalidValue("data", first if first else str(path), NAMED_COLUMNS)
    return max(counts, key=lambda delimiter: counts[delimiter])


def _check_rows(path: Path, header: list[str], rows: list[list[str]]) -> None:
    if len(set(header)) < len(header):
        raise InvalidValue("data", listed(header), "columns with different names")
    if not 1 <= len(rows) <= LARGEST_GRID:
        raise InvalidValue("data", str(path), f"a CSV with 1 to {LARGEST_GRID} rows below its header")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InvalidValue(
                "data", listed(row), f"{len(header)} values in every row, as in the header (row {number})"
            )


def _column(name: str, cells: list[str], *, decimal_comma: bool) -> np.ndarray:
    """Numbers where all cells are numbers, texts where none is."""
    written = [cell.replace(",", ".") if decimal_comma else cell for cell in cells]
    numeric = [NUMBER.fullmatch(cell) is not None for cell in written]
    for row, cell in enumerate(cells):
        if not cell:
            raise InvalidValue(f"data.{name}", "", f"a value in every row (row {row} has none)")
    if any(numeric) and not all(numeric):
        row = numeric.index(not numeric[0]) if numeric[0] else 0
        raise InvalidValue(f"data.{name}", cells[row], f"numbers only or texts only (row {row} differs from others)")
    return column_of(f"data.{name}", [float(cell) for cell in written] if all(numeric) else cells, len(cells))
