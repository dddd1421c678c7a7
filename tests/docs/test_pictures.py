"""Pictures of the documents, compared with what is drawn today: from committed data, or from tasks alone."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from benchmarks.performance import write_document
from matplotlib.testing.compare import compare_images

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOLERANCE = 3.0
"""Root mean square of grey values: another machine's rounding passes, a panel that moved does not."""


def assert_up_to_date(name, found):
    assert compare_images(str(DOCS / "images" / name), str(found), TOLERANCE) is None


@pytest.mark.parametrize("machine", ["cpu", "h200"])
def test_times(machine, tmp_path):
    """`python -m benchmarks.performance --from … --write docs/performance.md` draws them."""
    (tmp_path / "images").mkdir()
    copy = Path(shutil.copy(DOCS / "performance.md", tmp_path))
    write_document(copy, {machine: json.loads((ROOT / "results" / "performance" / f"{machine}.json").read_text())})
    assert_up_to_date(f"performance_{machine}.png", tmp_path / "images" / f"performance_{machine}.png")


@pytest.mark.parametrize("code", ["bump", "onehot"])
def test_remedies(code, tmp_path, monkeypatch):
    """`python docs/extensions/remedy_table.py` draws them."""
    monkeypatch.syspath_prepend(DOCS / "extensions")
    from remedy_table import DPI, comparison

    found = tmp_path / "found.png"
    comparison(code).draw().savefig(found, dpi=DPI)
    assert_up_to_date(f"remedies_{code}.png", found)


def test_tasks(tmp_path, monkeypatch):
    """`python docs/contact_sheet.py` draws them."""
    monkeypatch.syspath_prepend(DOCS)
    import contact_sheet

    found = tmp_path / "found.png"
    monkeypatch.setattr(sys, "argv", ["contact_sheet.py", "--out", str(found)])
    contact_sheet.main()
    assert_up_to_date("tasks.png", found)
