"""The reference of the command line, made from the commands themselves when the site is built.

The line `<!-- commands -->` of a page is replaced by it.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "<!-- commands -->"


def reference() -> str:
    """Every command with its flags, as Markdown with headings from the second level on."""
    from recombine.cli import app

    text = app.generate_docs(output_format="markdown")
    text = text[text.index("\n## recombine ") :]  # the title and a table of contents, which pages have anyway
    text = text.replace("<!--", "&lt;!--")  # marks of blocks, which are spoken of
    return re.sub(r"^Example: (recombine .*)$", r"```sh\n\1\n```", text, flags=re.MULTILINE)


def _replace(app: Any, document: str, source: list[str]) -> None:
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, reference())


def setup(app: Any) -> dict[str, bool]:
    """Register the replacement with Sphinx."""
    app.connect("source-read", _replace)
    return {"parallel_read_safe": True}
