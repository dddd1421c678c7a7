"""The documentation lists what is registered."""

from pathlib import Path

from recombine.metrics.registry import STAGE_METRICS
from recombine.metrics.table import markdown, updated

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_table_of_stage_metrics_is_up_to_date():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == updated(text), "python -m recombine.metrics.table docs/metrics.md"


def test_every_column_has_a_row():
    assert len(markdown().splitlines()) == 2 + len(STAGE_METRICS.columns())
