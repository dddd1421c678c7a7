"""The site without Sphinx: links lead somewhere, every page is in a table of contents, every name in the reference."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import recombine as rc
import recombine.arena
import recombine.metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
AUTODOC = re.compile(r"^\.\. auto(?:function|class|exception):: (\S+)", re.MULTILINE)
DATA = re.compile(r"^`+\{py:data\} (\S+)", re.MULTILINE)


def named(path):
    return str(path.relative_to(ROOT))


def prose(path):
    """A document without its blocks and pieces of code."""
    text = re.sub(r"^(`{3,}).*?^\1\s*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path):
    """Addresses of a document's headings, as GitHub and the site make them; of the command line, of its commands."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if path.name == "command_line.md":
        from recombine.cli import COMMANDS

        titles += [f"recombine {name}" for name in COMMANDS]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_somewhere(path):
    for link in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert file.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(file), link


def entries(path):
    """Pages that a page's tables of contents name."""
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                yield path.parent / f"{line}.md"


def test_every_page_is_in_a_table_of_contents():
    listed = [own for page in PAGES for own in entries(page)]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == {*PAGES} - {DOCS / "index.md"}


def test_the_gallery_shows_every_committed_figure_once():
    shown = re.findall(r"results/paper/figures/(\w+\.png)", (DOCS / "gallery.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(path.name for path in (ROOT / "results" / "paper" / "figures").glob("*.png"))


def test_the_command_line_is_in_the_reference(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    from commands import MARK, reference

    from recombine.cli import COMMANDS

    assert MARK in (DOCS / "command_line.md").read_text(encoding="utf-8")
    text = reference()
    assert [name for name in COMMANDS if f"\n## recombine {name}\n" not in text] == []
    assert "```sh\nrecombine train --encoding bump" in text
    assert "`--holdout" in text  # what follows is in the manner of the parser
    assert "<!--" not in text


def test_every_public_name_is_in_the_reference_once():
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    names = [name.removeprefix("recombine.") for name in AUTODOC.findall(text) + DATA.findall(text)]
    metrics = [name for name, own in vars(recombine.metrics).items() if name[0] != "_" and not inspect.ismodule(own)]
    own = vars(recombine.arena)
    arena = [f"arena.{name}" for name in own if name[0] != "_" and not inspect.ismodule(own[name])]
    assert sorted(names) == sorted([*rc.__all__, *metrics, *arena])


def test_the_index_of_the_reference_has_one_line_for_each_name(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    from names import MARK, index

    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert MARK in text
    lines = index(DOCS / "api", [path.stem for path in entries(DOCS / "api" / "index.md")])
    listed = dict(re.findall(r"^- \{py:obj\}`\w+ <recombine\.(\S+)>`: (\S.*)$", lines, flags=re.MULTILINE))
    metrics = [f"metrics.{name}" for name, own in vars(recombine.metrics).items() if not inspect.ismodule(own)]
    assert {*rc.__all__, *(name for name in metrics if "._" not in name)} - {"__version__"} <= set(listed)
    assert listed["MLP"] == "Multi-layer perceptron."
