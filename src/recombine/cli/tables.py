"""Tables for the terminal, and stored specs and scores in the words of the command line. Nothing here imports torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from recombine.console import Screen, visible
from recombine.errors import typed
from recombine.store import Spread, Summary

UNLIMITED = 10_000
"""Columns of a table that is not written to a terminal: one line per row, whatever its length."""
SHORT, NARROWEST, GAP = 12, 5, 2
"""Characters of names that are not wrapped, of the narrowest other column, and between columns."""
LONG = 1000
"""Rows of a table that is written as plain lines, as rich takes seconds for thousands."""
LONGEST_LIST = 8
"""Points or numbers that a cell lists; of more it says how many there are."""
LONGEST_COMMAND = 4000
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


def write_table(screen: Screen, columns: Sequence[Column], title: str | None = None) -> None:
    """Write columns side by side; on a terminal, cells that do not fit are wrapped."""
    if title:
        screen.print(title, soft_wrap=True)
    rows = list(zip(*(column.cells for column in columns), strict=True))
    if len(rows) > LONG:
        screen.write_lines(
            "\t".join(visible(str(cell)) for cell in row) for row in ([c.heading for c in columns], *rows)
        )
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    least = 0
    for column in columns:
        width = max(len(str(cell)) for cell in (column.heading, *column.cells))
        is_short = column.holds is Holds.NAMES and width <= SHORT
        least += GAP + (width if is_short else min(width, NARROWEST))
        justify = "right" if column.holds is Holds.NUMBERS else "left"
        table.add_column(Text(column.heading), justify=justify, overflow="fold", no_wrap=is_short)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    if not screen.is_terminal or least > screen.width:  # rich would leave out columns; a terminal wraps lines
        screen.width = UNLIMITED
    screen.print(table, soft_wrap=screen.width == UNLIMITED)


def write_summary(screen: Screen, summaries: Sequence[Summary]) -> None:
    """Write mean ± standard deviation over seeds, a row per setting."""
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
    mean = score_text(name, value.mean)
    if math.isnan(value.mean) or math.isnan(value.deviation):
        return mean
    return f"{mean} ± {100 * value.deviation:.1f}" if _is_share(name) else f"{mean} ± {value.deviation:.2g}"


def score_text(name: str, value: float) -> str:
    """One score of one run."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if _is_share(name) else f"{value:.3g}"


def _is_share(name: str) -> bool:
    return name.endswith("accuracy")


def field_text(value: Any, *, whole: bool = False) -> str:
    """A value as its flag takes it; a long list only as its length, unless it is to be whole.

    A part prints as `name:field=value`; fields that are null are left out, as a part's are unless they are given.
    """
    if isinstance(value, Mapping):
        fields = {name: field for name, field in value.items() if name != "kind" and field is not None}
        texts = {name: field_text(field, whole=whole) for name, field in fields.items()}
        inner = [f"{name}={f'({text})' if ':' in text else text}" for name, text in texts.items()]
        return ":".join([value["kind"], *inner])
    if isinstance(value, list) and len(value) > LONGEST_LIST and not whole:
        return f"{len(value)} {'points' if isinstance(value[0], list) else 'values'}"
    return typed(value)


def train_command(spec: Mapping[str, Any]) -> str | None:
    """The command that trains a stored spec; none where it would be too long to type."""
    task = {name: value for name, value in spec["task"].items() if name != "kind"}
    rest = {
        name: value for name, value in spec.items() if name not in ("task", "decoder", "recipe", "revision", "seed")
    }
    fields = {"task": spec["task"]["kind"], **task, "decoder": spec["decoder"], **spec["recipe"], **rest}
    words = ["recombine", "train"]
    for name, value in fields.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value is not None:
            words += [flag, field_text(value, whole=True)]
    command = shlex.join([*words, "--seeds", f"{spec['seed']}..{spec['seed']}"])
    return command if len(command) <= LONGEST_COMMAND else None
