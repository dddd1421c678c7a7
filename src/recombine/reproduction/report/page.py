"""A page that opens from disk, without a network: the argument section by section, verdicts, settings and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recombine.reproduction.claims import Judgement
from recombine.reproduction.report.downloads import Download
from recombine.reproduction.report.parts import Parts, policy
from recombine.reproduction.report.sentences import interval_text, network_count, robustness, sentence, verdict_text
from recombine.reproduction.report.verdicts import evidence
from recombine.reproduction.sections import Section

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
    """The page as HTML.

    Parameters
    ----------
    title, source, question
        Of the paper: its title, where it appeared, and what it asks.
    preset
        Settings of the runs.
    provenance
        What was run, where and for how long.
    judgements
        The verdicts.
    figures
        The figures.
    sections
        Parts of the argument; those of which nothing is here are left out, and figures of none come last.
    panels
        By the name of a section, something live that stands in it. That of `question` is the explorer.
    downloads
        The data behind the figures.
    missing
        What to do where there is no explorer.

    Returns
    -------
    str
        HTML that needs no other file.
    """
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    for shown in (interval_text, network_count, robustness, sentence, verdict_text, evidence):
        environment.filters[shown.__name__] = shown
    environment.filters["markup"] = Markup
    folder = files("recombine.reproduction.report")
    panels = panels or {}
    parts = list(panels.values())
    scripts = [*(part.script for part in parts), (folder / "page.js").read_text(encoding="utf-8")]
    styles = [*(part.style for part in parts), (folder / "page.css").read_text(encoding="utf-8")]
    seeds = preset.get("seeds", 0)
    return environment.get_template("page.html.j2").render(
        policy=policy(scripts, styles, "data:", [name for part in parts for name in part.workers]),
        scripts=scripts,
        styles=styles,
        payloads=[part.payload for part in parts],
        bodies={name: part.body for name, part in panels.items()},
        title=title,
        source=source,
        question=question,
        preset=preset.get("name", "unnamed"),
        settings={name: value for name, value in preset.items() if name != "name"},
        facts={name: value for name, value in provenance.items() if name != "preset" and value is not None},
        seeds=seeds,
        directions=any(judgement.verdict == "direction only" for judgement in judgements),
        late=[judgement.claim for judgement in judgements if judgement.timing == "after the data"],
        unregistered=any(judgement.timing == "not registered" for judgement in judgements),
        causes=[judgement for judgement in judgements if judgement.controls],
        runs=provenance.get("runs", 0),
        judgements=judgements,
        sections=_filled(sections, judgements, figures, panels),
        opening=next((section for section in sections if section.name == QUESTION), None),
        downloads=downloads,
        missing=missing,
    )


@dataclass(frozen=True)
class FilledSection:
    """A section with what is here of it."""

    section: Section
    figures: list[DrawnFigure]
    judgements: list[Judgement]


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
