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
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "trees", ROOT / "docs"]
    done = subprocess.run([sys.executable, *map(str, command), str(tmp_path / "site")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert tmp_path / "site" / "api" / "training.html" in pages
    foreign = {own for page in pages for own in LOADED.findall(page.read_text()) if re.match(r"(?:https?:)?//", own)}
    assert foreign == set()
    styles = [path.read_text() for path in (tmp_path / "site").rglob("*.css")]
    assert not [style for style in styles if re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", style)]
