"""Text that came from data or users, in Markdown: it stays text, whatever it contains."""

from __future__ import annotations

import re
from collections.abc import Iterable

ESCAPES = (
    (re.compile(r"\\(?=[!-/:-@\[-`{-~])"), r"\\\\"),  # first, as the next ones are escaped by one
    (re.compile(r"&(?=#?\w+;)"), "&amp;"),
    (re.compile(r"<(?! )"), "&lt;"),  # before a blank it is a comparison, and nowhere the start of a tag
    (re.compile(r"`"), r"\\`"),
    (re.compile(r"\](?=[(\[:])"), r"\\]"),  # links and pictures
)


def escaped(text: object) -> str:
    """One line that shows exactly this text: no tag, link or code in it is taken for one."""
    line = " ".join(str(text).split())
    for pattern, replacement in ESCAPES:
        line = pattern.sub(replacement, line)
    return line


def row(cells: Iterable[object]) -> str:
    """A row of a table; what would end a cell is escaped."""
    return "| " + " | ".join(escaped(cell).replace("|", r"\|") for cell in cells) + " |"
