"""Tables for a terminal, and for files that terminals are redirected to."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from recombine.store import Spread, Summary

PLAIN_WIDTH = 160
"""Columns where the output is not a terminal."""

HEADINGS = {
    "id_mse": "ID MSE", "ood_mse": "OOD MSE", "id_over_blank": "ID / blank", "ood_over_blank": "OOD / blank",
    "id_accuracy": "ID acc.", "ood_accuracy": "OOD acc.",
}  # fmt: skip


def console() -> Console:
    """Standard output; wide enough for a table when it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Mean ± standard deviation over seeds, an arm a row."""
    table = Table(title="mean ± standard deviation over seeds", title_justify="left")
    for heading in ("setting", "seeds"):
        table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries:
        lost = f" (+{summary.diverged} diverged)" if summary.diverged else ""
        cells = [cell(name, summary.scores[name]) for name in HEADINGS]
        table.add_row(summary.label, f"{summary.seeds}{lost}", *cells)
    return table


def cell(name: str, value: Spread) -> str:
    """One score as the table shows it."""
    if math.isnan(value.mean):
        return "–"
    percent = name.endswith("accuracy")
    scale, digits = (100, ".1f") if percent else (1, ".3g")
    mean = f"{value.mean * scale:{digits}}" + (" %" if percent else "")
    return mean if math.isnan(value.deviation) else f"{mean} ± {value.deviation * scale:{'.1f' if percent else '.2g'}}"
