"""A page that opens from disk, without a network: the argument section by section, verdicts, settings and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recombine.reproduction.claims import Judgement
from recombine.reproduction.figures import Section
from recombine.reproduction.report import verdicts
from recombine.reproduction.report.parts import Parts, policy

QUESTION = "question"
"""Name of the section that begins the page, with the explorer."""


@dataclass(frozen=True)
class DrawnFigure:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    kind: str
    """Of the image: `png` or `svg+xml`."""
    image: str
    """In base64."""
    studies: tuple[str, ...] = ()
    """Whose data it is drawn from."""


@dataclass(frozen=True)
class Download:
    """A study's Dataset behind the figures."""

    study: str
    path: str
    """From the page on."""
    content: str | None
    """netCDF-4, compressed by zlib, in base64; none where it is only a link."""


@dataclass(frozen=True)
class FilledSection:
    """A section with what is here of it."""

    section: Section
    figures: list[DrawnFigure]
    judgements: list[Judgement]


def page(
    *,
    title: str,
    source: str,
    question: str,
    preset: Mapping[str, Any],
    provenance: Mapping[str, Any],
    judgements: Sequence[Judgement],
    figures: Sequence[DrawnFigure],
    sections: Sequence[Section] = (),
    panels: Mapping[str, Parts] | None = None,
    downloads: Sequence[Download] = (),
    missing: str = "",
) -> str:
    """The page as HTML that needs no other file.

    Sections of which nothing is here are left out, and figures of none come last. `panels` are live parts by the name
    of the section that they stand in; that of `question` is the explorer, and `missing` says what to do without one.
    """
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    for name in ("interval_text", "network_count", "robustness", "sentence", "verdict_text", "evidence"):
        environment.filters[name] = getattr(verdicts, name)
    environment.filters["markup"] = Markup
    folder = files("recombine.reproduction.report")
    panels = panels or {}
    parts = list(panels.values())
    scripts = [*(part.script for part in parts), (folder / "page.js").read_text(encoding="utf-8")]
    styles = [*(part.style for part in parts), (folder / "page.css").read_text(encoding="utf-8")]
    return environment.get_template("page.html.j2").render(
        policy=policy(scripts, styles, "data:", [name for part in parts for name in part.workers]),
        scripts=scripts,
        styles=styles,
        payloads=[part.payload for part in parts],
        bodies={name: part.body for name, part in panels.items()},
        title=title,
        source=source,
        question=question,
        preset=preset,
        provenance=provenance,
        judgements=judgements,
        sections=_filled(sections, judgements, figures, panels),
        opening=next((section for section in sections if section.name == QUESTION), None),
        downloads=downloads,
        missing=missing,
    )


def _filled(
    sections: Sequence[Section],
    judgements: Sequence[Judgement],
    figures: Sequence[DrawnFigure],
    panels: Mapping[str, Parts],
) -> list[FilledSection]:
    """The sections that have something to show, without the first one."""
    drawn, judged = ({own.name: own for own in figures}, {own.claim: own for own in judgements})
    placed = {name for section in sections for name in section.figures}
    rest = Section("figures", "More figures" if sections else "Figures", "", tuple(n for n in drawn if n not in placed))
    filled = [
        FilledSection(
            section,
            [drawn[name] for name in section.figures if name in drawn],
            [judged[name] for name in section.claims if name in judged],
        )
        for section in (*sections, rest)
        if section.name != QUESTION
    ]
    return [own for own in filled if own.figures or own.judgements or own.section.name in panels]
