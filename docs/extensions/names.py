"""Replaces the line `<!-- names -->` of a page with the names on the pages beside it, each with its first line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

MARK = "<!-- names -->"
ENTRY = re.compile(
    r"^\.\. auto(?:function|class|exception):: (?P<auto>\S+)"
    r"|^\.\. automodule:: (?P<module>\S+)"
    r"|^`+\{py:data\} (?P<data>\S+)\n(?P<text>.+(?:\n.+)*)",
    re.MULTILINE,
)
SENTENCE = re.compile(r"(?<=\.)(?<!Eq\.)(?<!e\.g\.)\s")


def _first(about: str) -> str:
    """Return the first sentence of a docstring."""
    return SENTENCE.split(" ".join(about.split("\n\n")[0].split()))[0]


def _entries(text: str, module: str) -> Iterator[tuple[str, str]]:
    """Yield the full name of everything that a page documents, and its documentation."""
    for own in ENTRY.finditer(text):
        if own["module"]:
            room = import_module(own["module"])
            public = [(name, thing) for name, thing in vars(room).items() if name[0] != "_" and callable(thing)]
            mine = [(name, thing) for name, thing in public if getattr(thing, "__module__", "") == own["module"]]
            yield from ((f"{own['module']}.{name}", inspect.getdoc(thing) or "") for name, thing in mine)
            continue
        name = (own["auto"] or own["data"]).removeprefix(f"{module}.")
        yield f"{module}.{name}", own["text"] or inspect.getdoc(attrgetter(name)(import_module(module))) or ""


def index(folder: Path, pages: list[str]) -> str:
    """Return a list of the names of each page, each linked and with the first sentence about it."""
    parts = []
    for page in pages:
        text = (folder / f"{page}.md").read_text(encoding="utf-8")
        title = re.findall(r"^# (.+)$", text, re.MULTILINE)[0]
        module = title if title.startswith("recombine.") else "recombine"
        lines = [
            f"- {{py:obj}}`{name.rpartition('.')[2]} <{name}>`: {_first(about)}"
            for name, about in _entries(text, module)
        ]
        parts.append(f"**[{title}]({page}.md)**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _replace(app: Any, document: str, source: list[str]) -> None:
    if MARK in source[0]:
        pages = re.search(r"^```\{toctree\}\n(?::.*\n)*\n((?:.+\n)+)```", source[0], re.MULTILINE)
        assert pages, f"{document} has no table of contents"
        folder = Path(app.env.doc2path(document)).parent
        source[0] = source[0].replace(MARK, index(folder, pages[1].split()))


def setup(app: Any) -> dict[str, bool]:
    """Register the replacement with Sphinx."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True}
