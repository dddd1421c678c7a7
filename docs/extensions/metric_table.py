"""Update the table of stage metrics in docs/metrics.md: `python docs/extensions/metric_table.py`."""

from __future__ import annotations

from pathlib import Path

import recombine.metrics  # noqa: F401  registers them
from recombine.metrics.registry import STAGE_METRICS, Column, StageMetric

BEGIN, END = "<!-- stage metrics: begin -->", "<!-- stage metrics: end -->"
HEADINGS = ("column of `diagnose`", "in studies", "axes", "what it is", "paper", "metric", "needs")


def markdown() -> str:
    """Return all columns of the registered metrics as a Markdown table."""
    rows = [HEADINGS, ("---",) * len(HEADINGS)]
    rows += [_row(metric, column) for metric in STAGE_METRICS.values() for column in metric.columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(metric: StageMetric, column: Column) -> tuple[str, ...]:
    name, study = f"`{column.name}`", f"`{column.study_name}`" if metric.in_studies else "–"
    axes = ", ".join(("stage", *column.dims))
    description = column.description.replace("|", "&#124;")
    needs = [*metric.needs, *(["`thorough`"] if metric.thorough else [])]
    return name, study, axes, description, column.reference or "–", f"`{metric.name}`", ", ".join(needs) or "–"


def updated(text: str) -> str:
    """Return the document with the table between its two marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    document = Path(__file__).parents[1] / "metrics.md"
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
