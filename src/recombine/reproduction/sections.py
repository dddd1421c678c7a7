"""A part of a report: a step of the argument, with its figures and claims."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A title, a paragraph in plain words on what is shown, and what belongs to it."""

    name: str
    """As the page's address has it, after `part-`."""
    title: str
    text: str
    figures: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
