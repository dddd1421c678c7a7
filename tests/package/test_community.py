"""Files that people and services look for beside the code: they are complete, and say what is so."""

import re
from pathlib import Path

import pytest
import yaml

from recombine.cli import COMMANDS
from recombine.version import __version__

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TEXTS = ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "docs/installation.md", "docs/deprecations.md")


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_of_the_paper(citation):
    assert citation["version"] == __version__
    paper = citation["preferred-citation"]
    assert paper["title"] == "Compositional Generalization via Forced Rendering of Disentangled Latents"
    assert [author["family-names"] for author in paper["authors"]] == ["Liang", "Qian", "Ziyin", "Fiete"]
    assert paper["year"] == 2025
    for name in ("README.md", "docs/index.md", "docs/verdicts.md"):
        assert paper["url"] in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEXTS)
def test_targets_commands_and_links_exist(name):
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", MAKEFILE, flags=re.MULTILINE), target
    assert set(re.findall(r"`recombine ([a-z]+)", text)) <= set(COMMANDS)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (path.parent / link).exists(), link
