"""Replaces the line `<!-- commands -->` of a page with the command-line reference, generated from the commands."""

from __future__ import annotations

import re
from typing import Any

MARK = "<!-- commands -->"


def reference() -> str:
    """Return every command with its flags as Markdown, with headings from the second level on."""
    from recombine.cli import app

    text = app.generate_docs(output_format="markdown")
    text = text[text.index("\n## recombine ") :]  # drop the title and table of contents
    text = text.replace("<!--", "&lt;!--")  # help texts that mention block marks
    return re.sub(r"^Example: (recombine .*)$", r"```sh\n\1\n```", text, flags=re.MULTILINE)


def _replace(app: Any, document: str, source: list[str]) -> None:
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, reference())


def setup(app: Any) -> dict[str, bool]:
    """Register the replacement with Sphinx."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True}
