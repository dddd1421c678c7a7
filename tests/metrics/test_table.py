"""The documentation lists what is registered."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_stage_metrics_is_up_to_date(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    from metric_table import updated

    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert text == updated(text), "python docs/extensions/metric_table.py"
