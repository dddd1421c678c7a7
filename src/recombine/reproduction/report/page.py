"""A page that opens from disk, without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recombine.reproduction.claims import Judgement
from recombine.reproduction.report.verdicts import case_text

INDICATIVE = 8
"""With fewer seeds than this an interval is little more than the range of the values, and the page says so."""


@dataclass(frozen=True)
class DrawnFigure:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    image: str
    """PNG in base64."""


def page(
    *,
    title: str,
    source: str,
    question: str,
    preset: Mapping[str, Any],
    provenance: Mapping[str, Any],
    judgements: Sequence[Judgement],
    figures: Sequence[DrawnFigure],
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

    Returns
    -------
    str
        HTML that needs no other file.
    """
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["case_text"] = case_text
    seeds = preset.get("seeds", 0)
    return environment.get_template("page.html.j2").render(
        title=title,
        source=source,
        question=question,
        preset=preset.get("name", "unnamed"),
        settings={name: value for name, value in preset.items() if name != "name"},
        facts={name: value for name, value in provenance.items() if name != "preset" and value is not None},
        seeds=seeds,
        indicative=0 < seeds < INDICATIVE,
        runs=provenance.get("runs", 0),
        judgements=judgements,
        figures=figures,
    )
