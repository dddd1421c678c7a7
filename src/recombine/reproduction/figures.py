"""Figures and sections of a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FigureSpec:
    """A figure from the paper (e.g. `fig4`) or an additional figure."""

    name: str
    title: str
    studies: tuple[str, ...]
    """Studies whose Datasets are passed to `draw` and `caption`, in this order."""
    draw: Callable[..., Any]
    caption: Callable[..., str]
    table: Callable[..., list[list[str]]] | None = None
    """Returns the rows of a table below the figure, headings first."""

    @property
    def numbered(self) -> bool:
        """Whether it is a figure from the paper."""
        return re.fullmatch(r"fig\d+", self.name) is not None


def cell(value: Any, digits: int = 2, *, percent: bool = False) -> str:
    """Return a number as a table shows it; a dash if it is not known."""
    number = float(value)
    if number != number:
        return "–"
    return f"{100 * number:.0f} %" if percent else f"{number:.{digits}f}"


def full_name(word: str) -> str:
    """Return the name of a figure written as `4` or `Fig4`."""
    return f"fig{word}" if word.isdigit() else word.lower()


@dataclass(frozen=True)
class Section:
    """A section of a report: a title, an introduction, and its figures and claims."""

    name: str
    """Anchor on the page, without the `part-` prefix."""
    title: str
    text: str
    figures: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
