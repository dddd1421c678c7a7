"""Images and columns of factor values, from a file or from arrays, and the grid spanned by the factors.

Numbers and angles keep their values, whether evenly spaced or not; categories are numbered from 0 in sorted order.
Angles are in degrees unless the size of a full turn is given. A factor with a single value is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recombine.errors import InvalidValue, listed
from recombine.factors import LARGEST_GRID, TURN, Factor, FactorGrid, Form

BLOCK = 2**24
"""Size of the blocks in which rows are read, in bytes."""
CHANNELS = (1, 3)
LARGEST_SIDE = 4096
MOST_FACTORS = 64
PIXEL_TYPES = ("uint8", "bool", "float16", "float32", "float64")
EVEN = 1e-4
"""Tolerance for even spacing, relative to the spacing, since labels are often stored in single precision."""
ROUNDING = 1e-9
"""Values closer than this, relative to a factor's range, count as equal up to rounding."""
WRITTEN = 1e-5
"""Relative tolerance for a full turn, which is often written with few digits, such as 6.28319."""


@dataclass(frozen=True)
class Source:
    """Images and factors in a file; the images have not been read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    columns: dict[str, np.ndarray]
    blocks: Callable[[], Iterator[np.ndarray]]
    """Yields all images in order, in blocks."""
    path: Path
    offset: int | None = None
    """Byte offset of the images in the file if they are uncompressed."""
    images_field: str = "data.images"
    """Name of the images in error messages."""

    @property
    def nbytes(self) -> int:
        """Size of all images in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def check_images(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise an error unless the shape and type are valid for images."""
    if len(shape) not in (3, 4):
        raise InvalidValue(name, shape, "an array of shape (row, y, x) or (row, y, x, channel)")
    if len(shape) == 4 and shape[3] not in CHANNELS:
        raise InvalidValue(name, shape, "an array with one (grey) or three (RGB) channels, channels last")
    if not 1 <= shape[0] <= LARGEST_GRID or not all(1 <= side <= LARGEST_SIDE for side in shape[1:3]):
        raise InvalidValue(name, shape, f"1 to {LARGEST_GRID} images of 1 to {LARGEST_SIDE} rows and columns")
    if dtype.name not in PIXEL_TYPES or not dtype.isnative:
        allowed = "uint8, bool or floats from 0 to 1, in native byte order"
        raise InvalidValue(name, "Python objects" if dtype.hasobject else dtype.str, allowed)


def rows_per_block(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return the number of images in a block."""
    return max(1, BLOCK // max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize))


class Levels(NamedTuple):
    """A factor, its distinct values, and the index of each row's value among them."""

    factor: Factor
    values: tuple[Any, ...]
    positions: np.ndarray


class Coverage(NamedTuple):
    """How many images each combination has, and how far values were moved to bins."""

    combinations: int
    present: int
    """Number of combinations with images."""
    fewest: int
    """Smallest number of images of a combination that has any."""
    median: float
    most: int
    moved: dict[str, float]
    """Longest distance from a value to its bin, by factor."""

    def __str__(self) -> str:
        """Return a one-line summary."""
        images = f"{self.fewest} to {self.most} each, median {self.median:g}"
        moved = "".join(f"; {name} moved by at most {distance:.3g}" for name, distance in self.moved.items())
        return f"{self.present} of {self.combinations} combinations have images ({images}){moved}"


class Arrangement(NamedTuple):
    """The grid spanned by the columns, and the rows of each combination."""

    grid: FactorGrid
    levels: dict[str, tuple[Any, ...]]
    rows: np.ndarray
    """All rows, in the order of their combinations."""
    starts: np.ndarray
    """Place in `rows` of each combination's first row, and at the end the number of rows."""
    moved: dict[str, float]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each combination."""
        return np.diff(self.starts)

    @property
    def coverage(self) -> Coverage:
        """Numbers of images per combination."""
        counts = self.counts[self.counts > 0]
        ends = int(counts.min()), float(np.median(counts)), int(counts.max())
        return Coverage(self.grid.size, len(counts), *ends, self.moved)

    def rows_of(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all rows of some combinations in ascending order, and the place of each row's one among `points`."""
        counts = self.starts[points + 1] - self.starts[points]
        owners = np.repeat(np.arange(len(points)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.rows[self.starts[points][owners] + within]
        order = np.argsort(rows, kind="stable")  # rows that lie together in a file are read at once
        return rows[order], owners[order]


def column_of(field: str, values: Any, rows: int) -> np.ndarray:
    """Return a column as float64 numbers or strings, one value per row."""
    array = np.asarray(values)
    is_text = array.ndim == 1 and array.dtype.kind in "OT" and all(isinstance(value, str) for value in array)
    if array.ndim != 1 or (array.dtype.kind not in "biufUS" and not is_text):
        raise InvalidValue(field, array if array.ndim != 1 else str(array.dtype), "a list of numbers or of strings")
    if len(array) != rows:
        raise InvalidValue(field, len(array), f"{rows} values, one per image")
    if array.dtype.kind in "biuf":
        numbers = array.astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise InvalidValue(field, float(numbers[row]), f"finite numbers (row {row})")
        return numbers
    texts = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array.astype(str)
    if (texts == "").any():
        raise InvalidValue(field, "", f"a value in every row (row {int(np.flatnonzero(texts == '')[0])} is empty)")
    return texts


def parse_bins(bins: Mapping[str, Any] | str) -> dict[str, int | Factor]:
    """Return the number of bins, or a factor with their values, by name in alphabetical order.

    >>> bins = parse_bins("y=0:9,x=10")
    >>> bins["x"], bins["y"].count
    (10, 10)
    """
    given, parts = bins, []
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.removeprefix("(").removesuffix(")").split(",") if part]
        given = {name.strip(): value.strip() for name, _, value in parts if value.strip()}
    if not isinstance(given, Mapping) or len(given) < len(parts):
        raise InvalidValue("bins", bins, 'text such as "x=10,y=0:9" or a dictionary such as {"x": 10, "y": range(10)}')
    found: dict[str, int | Factor] = {}
    for name in sorted(given):
        is_count = isinstance(given[name], int | np.integer) or str(given[name]).isdecimal()
        found[name] = int(given[name]) if is_count else Factor.over(name, given[name])
        if is_count and not 1 <= found[name] <= LARGEST_GRID:  # type: ignore[operator]
            raise InvalidValue(f"bins.{name}", given[name], f"1 to {LARGEST_GRID} bins")
    return found


def bins_text(bins: Mapping[str, Any] | str) -> str:
    """Return bins as text, in one way for equal bins.

    >>> bins_text({"y": range(10), "x": 10})
    'x=10,y=0:9:10'
    """
    return ",".join(f"{name}={own.text if isinstance(own, Factor) else own}" for name, own in parse_bins(bins).items())


def binned(name: str, column: np.ndarray, to: int | Factor, period: float = np.inf) -> tuple[np.ndarray, float]:
    """Return a column with every number moved to the nearest bin, and the longest distance; angles have a period."""
    if column.dtype.kind == "U":
        raise InvalidValue(f"bins.{name}", str(column[0]), "omitted, since the values of the factor are names")
    low, high = float(column.min()), float(column.max())
    if isinstance(to, Factor):
        centers = to.values.numpy()
    else:
        centers = low + (high - low) * (np.arange(to) + 0.5) / to if high > low else np.array([low])
    values = column
    if np.isfinite(period):  # each angle within half a turn of the bins' middle
        start = (centers[0] + centers[-1] - period) / 2
        values = (column - start) % period + start
    moved = centers[np.searchsorted((centers[:-1] + centers[1:]) / 2, values)]
    return moved, float(np.abs(values - moved).max())


def check_names(field: str, names: Iterable[str]) -> None:
    """Raise an error unless all names are valid and distinct."""
    names = list(names)
    for name in names:
        if not (isinstance(name, str) and name.isidentifier()):
            raise InvalidValue(field, name, "factor names made of letters, digits and underscores")
    if len(set(names)) < len(names):
        raise InvalidValue(field, names, "different names")


def factor_of(name: str, column: np.ndarray, form: Form = "number", turn: float = TURN, field: str = "data") -> Levels:
    """Return the factor described by a column, with its values."""
    is_text = column.dtype.kind == "U"
    if is_text and form == "angle":
        raise InvalidValue(f"{field}.{name}", str(column[0]), "numbers, since the factor is an angle")
    values, positions = np.unique(column, return_inverse=True)
    levels, count = tuple(values.tolist()), len(values)
    if is_text or form == "category":
        return Levels(Factor(name, 0, count - 1, count, "category", labels=levels), levels, positions)
    gaps = np.diff(values)
    if count > 1 and gaps.min() <= ROUNDING * (values[-1] - values[0]):
        near = values[int(gaps.argmin()) :][:2].tolist()
        allowed = f"values that differ by more than rounding, or a categorical factor, or binned (bins, e.g. {name}=10)"
        raise InvalidValue(f"{field}.{name}", near, allowed)
    span = float(values[-1] - values[0])
    period: float | None = None
    if form == "angle":
        if span > turn * (1 + WRITTEN):
            raise InvalidValue(f"{field}.{name}", [levels[0], levels[-1]], f"angles within one turn ({turn:g})")
        period = span if abs(span - turn) <= WRITTEN * turn else turn  # the values' span, so that both ends coincide
    even = np.linspace(values[0], values[-1], count)
    spacing = span / max(1, count - 1)
    if bool((np.abs(values - even) <= EVEN * spacing).all()):
        return Levels(Factor(name, levels[0], levels[-1], count, form, None, period), levels, positions)
    return Levels(Factor.of(name, levels, form, period), levels, positions)


def arranged(
    columns: Mapping[str, np.ndarray], forms: Mapping[str, Form], turn: float, field: str, bins: str = "",
    repeats: str | None = None,
) -> Arrangement:  # fmt: skip
    """Return the grid of the factors that vary, and the rows of each combination."""
    columns, moved = dict(columns), dict[str, float]()
    for name, to in parse_bins(bins).items():
        period = turn if forms.get(name) == "angle" else np.inf
        columns[name], moved[name] = binned(name, columns[name], to, period)
    every = [factor_of(name, column, forms.get(name, "number"), turn, field) for name, column in columns.items()]
    varying = [level for level in every if level.factor.count > 1]
    if not varying:
        raise InvalidValue(field, listed(columns), "at least one factor that varies")
    shape = tuple(level.factor.count for level in varying)
    combinations = int(np.prod(np.array(shape, dtype=np.float64)))
    if combinations > LARGEST_GRID:
        counts = ", ".join(f"{level.factor.name} {level.factor.count}" for level in varying)
        allowed = f"factors with at most {LARGEST_GRID} combinations in total; bins, e.g. x=10, merges values"
        raise InvalidValue(field, counts, allowed)
    flat = np.ravel_multi_index(tuple(level.positions for level in varying), shape)
    order = np.argsort(flat, kind="stable")
    repeated = np.flatnonzero(np.diff(flat[order]) == 0)
    if len(repeated) and repeats is None:
        one, other = (int(row) for row in order[repeated[0] : repeated[0] + 2])
        named = ", ".join(f"{level.factor.name}={level.values[level.positions[one]]}" for level in varying)
        allowed = f"images of different combinations (see rows {one} and {other}), unless repeats is mean or keep"
        raise InvalidValue(field, named, allowed)
    starts = np.zeros(combinations + 1, dtype=np.int64)
    np.cumsum(np.bincount(flat, minlength=combinations), out=starts[1:])
    return Arrangement(
        FactorGrid(tuple(level.factor for level in varying)),
        {level.factor.name: level.values for level in varying},
        order,
        starts,
        moved,
    )
