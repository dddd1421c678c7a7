"""What a figure and a section of a report are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUMBERED = re.compile(r"fig\d+")


@dataclass(frozen=True)
class FigureSpec:
    """One figure of a paper (`fig4`), or an extra one."""

    name: str
    title: str
    studies: tuple[str, ...]
    """Whose Datasets `draw` and `caption` take, in this order."""
    draw: Callable[..., Any]
    caption: Callable[..., str]

    @property
    def numbered(self) -> bool:
        """Whether it is a figure of the paper."""
        return NUMBERED.fullmatch(self.name) is not None


def full_name(word: str) -> str:
    """The name of a figure that someone writes as `4` or `Fig4`."""
    return f"fig{word}" if word.isdigit() else word.lower()


@dataclass(frozen=True)
class Section:
    """A title, a paragraph in plain words on what is shown, and what belongs to it."""

    name: str
    """As the page's address has it, after `part-`."""
    title: str
    text: str
    figures: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
