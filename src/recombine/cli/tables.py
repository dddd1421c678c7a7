"""Tables for the terminal, and text for stored specs and scores. Does not import torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from recombine.console import Screen, visible
from recombine.errors import typed
from recombine.keys import with_penalties
from recombine.store import Spread, Summary

UNLIMITED = 10_000
"""Width of a table outside a terminal, so that each row is on one line."""
SHORT, NARROWEST, GAP = 12, 5, 2
"""Width up to which cells are never wrapped, minimum width of other columns, and gap between columns."""
LONG = 1000
"""Tables with more rows are written as plain lines, since rich takes seconds for thousands of rows."""
HEADINGS = {
    "id_mse": "ID MSE", "ood_mse": "OOD MSE", "id_over_blank": "ID/blank", "ood_over_blank": "OOD/blank",
    "id_accuracy": "ID acc.", "ood_accuracy": "OOD acc.",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it."""

    heading: str
    cells: Sequence[str | Text]
    justify: Literal["left", "right"] = "right"


def write_table(screen: Screen, columns: Sequence[Column], title: str | None = None) -> None:
    """Write columns as a table; in a terminal, cells that do not fit are wrapped."""
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
        is_short = column.justify == "left" and width <= SHORT
        least += GAP + (width if is_short else min(width, NARROWEST))
        table.add_column(Text(column.heading), justify=column.justify, overflow="fold", no_wrap=is_short)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    if not screen.is_terminal or least > screen.width:  # rich would leave out columns; a terminal wraps lines
        screen.width = UNLIMITED
    screen.print(table, soft_wrap=screen.width == UNLIMITED)


def write_summary(screen: Screen, summaries: Sequence[Summary]) -> None:
    """Write mean ± standard deviation over seeds, one row per setting."""
    seeds = [f"{s.seeds}" + (f" (+{s.diverged} diverged)" if s.diverged else "") for s in summaries]
    columns = [
        Column("setting", [summary.label for summary in summaries], "left"),
        Column("seeds", seeds, "left"),
    ]
    for name, heading in HEADINGS.items():
        columns.append(Column(heading, [spread_text(name, summary.scores[name]) for summary in summaries]))
    write_table(screen, columns, "mean ± standard deviation over seeds")


def spread_text(name: str, value: Spread) -> str:
    """Return mean ± standard deviation of a score as text."""
    mean = score_text(name, value.mean)
    if math.isnan(value.mean) or math.isnan(value.deviation):
        return mean
    deviation = f"{100 * value.deviation:.1f}" if name.endswith("accuracy") else f"{value.deviation:.2g}"
    return f"{mean} ± {deviation}"


def score_text(name: str, value: float) -> str:
    """Return a score as text."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if name.endswith("accuracy") else f"{value:.3g}"


def field_text(value: Any, *, whole: bool = False) -> str:
    """Return a value as written in a flag, specs as `name:field=value`; shorten long lists unless `whole`."""
    if isinstance(value, Mapping):
        unwritten = ("kind", "version")  # a class has one version, which is not typed
        fields = {name: field for name, field in value.items() if name not in unwritten and field is not None}
        texts = {name: field_text(field, whole=whole) for name, field in fields.items()}
        inner = [f"{name}={f'({text})' if ':' in text else text}" for name, text in texts.items()]
        return ":".join([value["kind"], *inner])
    if isinstance(value, list) and len(value) > 8 and not whole:
        return f"{len(value)} {'points' if isinstance(value[0], list) else 'values'}"
    return typed(value)


def train_command(spec: Mapping[str, Any]) -> str | None:
    """Return the command that trains a stored spec, or None if it is too long to type."""
    task = {name: value for name, value in spec["task"].items() if name != "kind"}
    present = with_penalties(spec)
    remedies = "+".join(field_text(penalty, whole=True) for penalty in present["penalties"])
    fields = {"task": spec["task"]["kind"], **task, "decoder": spec["decoder"], **present["recipe"]}
    words = ["recombine", "train", *(["--remedy", remedies] if remedies else [])]
    for name, value in fields.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value is not None:
            words += [flag, field_text(value, whole=True)]
    command = shlex.join([*words, "--seeds", f"{spec['seed']}..{spec['seed']}"])
    return command if len(command) <= 4000 else None
