"""The site as a browser gets it: built without a warning, and asking no network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"([^\"]*)\"")


@pytest.mark.slow
def test_it_is_built_without_a_warning_and_asks_no_network(tmp_path):
    pytest.importorskip("sphinx", reason="pip install -e '.[docs]'")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    options += ["-D", "nb_execution_mode=off"]  # notebooks are run by tests of their own, and by `make docs`
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert tmp_path / "site" / "api" / "training.html" in pages
    foreign = {own for page in pages for own in LOADED.findall(page.read_text()) if re.match(r"(?:https?:)?//", own)}
    assert foreign == set()
    styles = [path.read_text() for path in (tmp_path / "site").rglob("*.css")]
    assert not [style for style in styles if re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", style)]
