"""Examples in the docstrings of the metrics and of the theory, and the table of stage metrics in the documentation."""

import doctest
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import recombine.metrics
import recombine.theory

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [
    info.name
    for package in (recombine.metrics, recombine.theory)
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed


def test_the_table_of_stage_metrics_is_up_to_date(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    from metric_table import updated

    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert text == updated(text), "python docs/extensions/metric_table.py"
