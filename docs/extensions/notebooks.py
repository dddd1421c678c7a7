"""Replaces the line `<!-- notebooks -->` of a page with a table of contents of the notebooks in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK = "<!-- notebooks -->"
FIRST = (
    "reproduce_a_figure",
    "diagnose_my_model",
    "encoder_or_decoder",
    "modules_of_other_libraries",
    "fix_my_model",
    "remedy_in_my_loop",
    "new_holdout",
    "add_a_decoder",
    "my_own_data",
)
"""These come first, in this order; the rest follow alphabetically."""


def contents(folder: Path) -> str:
    """Return a toctree of the notebooks in a folder, or an empty string."""
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
