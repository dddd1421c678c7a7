"""Tables that fit the terminal they are written to, and lose nothing there.

A column names its row, holds a number, or holds prose. Prose is wrapped; columns of numbers that do not fit go into a
further table below, whose rows are named again; where that takes more lines than a block of lines for every row, or
even one number does not fit beside the names, rows are written as blocks.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import zip_longest

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from recombine.console import Screen, visible
from recombine.store import Spread, Summary

GAP = 2
"""Spaces between columns."""
HEAD_LINES = 3
"""Lines that a table takes beside its rows: headings, rule, and an empty line before the next."""
NARROWEST_PROSE = 28
INDENT = "  "

HEADINGS = {
    "id_mse": "ID MSE", "ood_mse": "OOD MSE", "id_over_blank": "ID/blank", "ood_over_blank": "OOD/blank",
    "id_accuracy": "ID acc.", "ood_accuracy": "OOD acc.",
}  # fmt: skip


class Holds(Enum):
    """What the cells of a column are."""

    NAMES = "what tells rows apart"
    NUMBERS = "numbers, or words as short"
    PROSE = "sentences"


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it."""

    heading: str
    cells: Sequence[str | Text]
    holds: Holds = Holds.NUMBERS

    @cached_property
    def contents(self) -> list[str | Text]:
        """The cells with control characters written out."""
        return [cell if isinstance(cell, Text) else visible(cell) for cell in self.cells]

    @cached_property
    def width(self) -> int:
        """Columns of the terminal that it takes on one line."""
        return max(_length(self.heading), *(_length(content) for content in self.contents))

    @cached_property
    def least(self) -> int:
        """The fewest columns of the terminal that it can do with."""
        return min(self.width, NARROWEST_PROSE) if self.holds is Holds.PROSE else self.width


def write_table(screen: Screen, columns: Sequence[Column], title: str | None = None) -> None:
    """Write the columns in the way that suits the screen's width."""
    if title:
        screen.print(title, soft_wrap=True)
    parts = _even_parts(columns, screen.width)
    rows = len(columns[0].cells)
    stacked = len(parts) * (rows + HEAD_LINES)
    if all(_least(part) <= screen.width for part in parts) and stacked <= rows * len(columns) + HEAD_LINES:
        for number, part in enumerate(parts):
            screen.write_lines([*([""] if number else []), *_table_lines(part, screen.width)])
    else:
        for row in range(rows):
            _write_block(screen, columns, row)


def _parts(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """The columns divided among tables that fit, each with the names of the rows."""
    names = [column for column in columns if column.holds is Holds.NAMES]
    part = list(names)
    for column in columns:
        if column.holds is Holds.NAMES:
            continue
        if len(part) > len(names) and _least([*part, column]) > width:
            yield part
            part = list(names)
        part.append(column)
    yield part


def _even_parts(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The parts that fit, as even as their number allows."""
    parts = list(_parts(columns, width))
    if len(parts) > 1:
        while len(narrower := list(_parts(columns, width - 1))) == len(parts) and width > 1:
            parts, width = narrower, width - 1
    return parts


def _least(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def _table_lines(columns: Sequence[Column], width: int) -> Iterator[str | Text]:
    """A table's lines. Not rich's, which takes seconds for thousands of rows."""
    free, widths = width - _least(columns), []
    for column in columns:  # prose takes what the others leave, from the left
        widths.append(min(column.width, column.least + free))
        free -= widths[-1] - column.least
    head = [Column(column.heading, [column.heading], column.holds) for column in columns]
    yield from _joined(head, widths)
    yield "─" * (sum(widths) + GAP * (len(widths) - 1))
    yield from _joined(_wrapped(columns, widths), widths)


def _wrapped(columns: Sequence[Column], widths: Sequence[int]) -> list[Column]:
    """The columns with prose wrapped between words, and empty cells beside its further lines."""
    if all(column.holds is not Holds.PROSE for column in columns):
        return list(columns)
    rows = []
    for cells in zip(*(column.contents for column in columns), strict=True):
        stacks = [
            textwrap.wrap(str(cell), width) if column.holds is Holds.PROSE else [cell]
            for cell, column, width in zip(cells, columns, widths, strict=True)
        ]
        rows += list(zip_longest(*stacks, fillvalue=""))
    return [Column(c.heading, cells, c.holds) for c, *cells in zip(columns, *rows, strict=True)]


def _joined(columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str | Text]:
    """The columns side by side."""
    for cells in zip(*(_padded(c, width) for c, width in zip(columns, widths, strict=True)), strict=True):
        if any(isinstance(cell, Text) for cell in cells):
            line = Text(" " * GAP).join(_cell(cell) for cell in cells)
            line.rstrip()
            yield line
        else:
            yield (" " * GAP).join(cells).rstrip()


def _padded(column: Column, width: int) -> list[str | Text]:
    """Cells of one width."""
    right = column.holds is Holds.NUMBERS
    cells: list[str | Text] = []
    for content in column.contents:
        padding = " " * (width - _length(content))
        if isinstance(content, Text):
            cells.append(Text.assemble(padding, content) if right else Text.assemble(content, padding))
        else:
            cells.append(padding + content if right else content + padding)
    return cells


def _length(content: str | Text) -> int:
    if isinstance(content, Text):
        return content.cell_len
    return len(content) if content.isascii() else cell_len(content)


def _write_block(screen: Screen, columns: Sequence[Column], row: int) -> None:
    """A row on its own lines: its names, then everything else below its heading."""
    names = [column for column in columns if column.holds is Holds.NAMES]
    others = [column for column in columns if column.holds is not Holds.NAMES]
    screen.print(Text(" " * GAP).join(_named(column, row, alone=len(names) == 1) for column in names))
    write_fields(screen, {column.heading: column.cells[row] for column in others}, INDENT)


def _named(column: Column, row: int, *, alone: bool) -> Text:
    cell = _cell(column.cells[row])
    return cell if alone or not column.heading else Text(f"{column.heading} ").append_text(cell)


def write_fields(screen: Screen, fields: Mapping[str, str | Text], indent: str = "") -> None:
    """Write names and values side by side, or values below their names where that is too narrow."""
    names = max((cell_len(name) for name in fields), default=0)
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    values = max((cell_len(str(value)) for value in fields.values()), default=0)
    beside = len(indent) + names + GAP + min(values, NARROWEST_PROSE) <= screen.width
    for name, value in fields.items():
        if beside:
            grid.add_row(indent + name, _cell(value))
        else:
            screen.print(Text(indent + name))
            screen.print(Text(2 * indent or INDENT).append_text(_cell(value)), overflow="fold")
    if beside:
        screen.print(grid)


def _cell(content: str | Text) -> Text:
    return content if isinstance(content, Text) else Text(visible(content))


def write_summary(screen: Screen, summaries: Sequence[Summary]) -> None:
    """Write mean ± standard deviation over seeds, a row per arm."""
    seeds = [f"{s.seeds}" + (f" (+{s.diverged} diverged)" if s.diverged else "") for s in summaries]
    columns = [
        Column("setting", [summary.label for summary in summaries], Holds.NAMES),
        Column("seeds", seeds, Holds.NAMES),
    ]
    for name, heading in HEADINGS.items():
        columns.append(Column(heading, [spread_text(name, summary.scores[name]) for summary in summaries]))
    write_table(screen, columns, "mean ± standard deviation over seeds")


def spread_text(name: str, value: Spread) -> str:
    """One score as the summary shows it."""
    mean = score_text(name, None if math.isnan(value.mean) else value.mean)
    if math.isnan(value.mean) or math.isnan(value.deviation):
        return mean
    return f"{mean} ± {100 * value.deviation:.1f}" if _is_share(name) else f"{mean} ± {value.deviation:.2g}"


def score_text(name: str, value: float | None) -> str:
    """One score of one run."""
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if _is_share(name) else f"{value:.3g}"


def _is_share(name: str) -> bool:
    return name.endswith("accuracy")
