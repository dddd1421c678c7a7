"""A page that opens from disk, without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recombine.reproduction.claims import Judgement
from recombine.reproduction.report.sentences import interval_text, network_count, robustness, sentence, verdict_text
from recombine.reproduction.report.verdicts import evidence


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
    for shown in (interval_text, network_count, robustness, sentence, verdict_text, evidence):
        environment.filters[shown.__name__] = shown
    seeds = preset.get("seeds", 0)
    return environment.get_template("page.html.j2").render(
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
        figures=figures,
    )
