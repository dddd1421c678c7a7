"""Removes the blank line at the end of examples, which only doctest needs."""

from __future__ import annotations

import re
from typing import Any

LAST_LINE = re.compile(r"(^```(?:python|pycon)\n(?:(?!```).*\n)*?)\n```$", re.MULTILINE)


def _trim(app: Any, document: str, source: list[str]) -> None:
    source[0] = LAST_LINE.sub(r"\1```", source[0])


def setup(app: Any) -> dict[str, bool]:
    """Register the filter with Sphinx."""
    app.connect("source-read", _trim)
    return {"parallel_read_safe": True}
