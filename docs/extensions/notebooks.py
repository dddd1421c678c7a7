"""The tutorials' table of contents: every notebook of the folder, those named here first and in this order.

The line `<!-- notebooks -->` of a page is replaced by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK = "<!-- notebooks -->"
FIRST = (
    "reproduce_a_figure",
    "diagnose_my_model",
    "fix_my_model",
    "new_holdout",
    "add_a_decoder",
    "my_own_data",
)
"""In the order in which one learns."""


def contents(folder: Path) -> str:
    """A toctree of the notebooks in a folder; nothing where there are none."""
    names = {path.stem for path in folder.glob("*.ipynb")}
    ordered = [name for name in FIRST if name in names] + sorted(names - {*FIRST})
    return "\n".join(["```{toctree}", ":hidden:", ":maxdepth: 1", "", *ordered, "```"]) if ordered else ""


def _replace(app: Any, document: str, source: list[str]) -> None:
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, contents(Path(app.env.doc2path(document)).parent))


def setup(app: Any) -> dict[str, bool]:
    """Register the replacement with Sphinx."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True}
