"""Verdicts as text: for tables in a terminal, on the page and in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recombine.errors import listed
from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.report.markdown import escaped, row
from recombine.reproduction.report.sentences import (
    interval_text,
    network_count,
    robustness,
    sentence,
    verdict_text,
)
from recombine.reproduction.sections import Section

MARK = re.compile(r"<!-- (\w+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)
"""`recombine report --write FILE` writes the block of that name between such marks."""


def markdown_table(judgements: Sequence[Judgement]) -> str:
    """The verdicts as a Markdown table."""
    referenced = _has_reference(judgements)
    heads = ["claim", "verdict", *(["reference"] if referenced else []), "evidence", "robustness", "learnt / trained"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for judgement in judgements:
        reference = [judgement.reference or "–"] if referenced else []
        cells = (
            f"**{judgement.claim}** {judgement.text} ({judgement.where})", verdict_text(judgement), *reference,
            sentence(judgement), robustness(judgement), network_count(judgement),
        )  # fmt: skip
        lines.append(row(cells))
    return "\n".join(lines)


def _has_reference(judgements: Sequence[Judgement]) -> bool:
    """Whether some claim has a direction only, beside which the reference verdict is shown."""
    return any(judgement.verdict == "direction only" for judgement in judgements)


def brief_table(judgements: Sequence[Judgement], sections: Sequence[Section]) -> str:
    """How many claims have each verdict, and which they are, by section of the report, as Markdown."""
    texts = {judgement.claim: verdict_text(judgement) for judgement in judgements}
    counts = Counter(texts.values())
    number = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    placed = {name for section in sections for name in section.claims}
    rest = Section("rest", "Others", "", claims=tuple(name for name in texts if name not in placed))
    lines = [f"{len(texts)} claims: {escaped(number)}.", "", "| | |", "|---|---|"]
    for section in (*sections, rest):
        groups: dict[str, list[str]] = {}
        for name in section.claims:
            if name in texts:
                groups.setdefault(texts[name], []).append(name)
        if groups:
            lines.append(row((section.title, "; ".join(f"{text}: {listed(names)}" for text, names in groups.items()))))
    return "\n".join(lines)


def claim_by_claim(judgements: Sequence[Judgement]) -> str:
    """Every claim with the evidence of every test, alternative and control, as Markdown."""
    parts = []
    for judgement in judgements:
        parts.append(f"### {escaped(judgement.claim)}: {verdict_text(judgement)}\n")
        parts.append(f"{escaped(judgement.text)} ({escaped(judgement.where)}).\n\n{escaped(sentence(judgement))}\n")
        rows = [
            row((kind, test.case, test.statistic, interval_text(test.interval), test.claimed, *_outcome(test)))
            for kind, tests in evidence(judgement)
            for test in tests
        ]
        if rows:
            head = "| | case | statistic | estimate [95 % interval] | claimed | outcome | learnt / trained |"
            parts.append("\n".join([head, "|---|---|---|---|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def evidence(judgement: Judgement) -> list[tuple[str, list[Test]]]:
    """Tests, alternatives and controls, by what they are called."""
    return [
        ("test", judgement.tests), ("alternative", judgement.alternatives), ("control", judgement.controls),
    ]  # fmt: skip


def _outcome(test: Test) -> tuple[str, str]:
    late = f" ({test.timing})" if test.timing == "after the data" else ""
    return f"{test.outcome}{late}", f"{test.learnt}/{test.trained}"


def causes_table(judgements: Sequence[Judgement]) -> str:
    """What the paper gives as causes of failure, each with its controls, as Markdown."""
    lines = ["| claim | control | estimate [95 % interval] | claimed | outcome |"]
    lines.append("|---|---|---|---|---|")
    for judgement in judgements:
        for test in judgement.controls:
            name = f"**{judgement.claim}** {test.statistic}"
            lines.append(row((name, test.case, interval_text(test.interval), test.claimed, test.outcome)))
    return "\n".join(lines)


def provenance_table(provenance: Mapping[str, Any]) -> str:
    """What was run, where and for how long, as Markdown."""
    facts = {name: value for name, value in provenance.items() if name != "preset" and value is not None}
    lines = ["| | |", "|---|---|"]
    return "\n".join([*lines, *(row((name.replace("_", " "), value)) for name, value in facts.items())])


def costs_table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """What each study cost, and all of them, as Markdown."""
    lines = ["| study | networks | training, s | measuring, s |", "|---|---|---|---|"]
    for study, cost in costs.items():
        seconds = (f"{cost[name]:.1f}" for name in ("training", "measuring"))
        lines.append(row((study, round(cost["networks"]), *seconds)))
    total = (f"{sum(cost[name] for cost in costs.values()):.1f}" for name in ("training", "measuring"))
    return "\n".join([*lines, row(("**all**", "–", *total))])


def marked_blocks(text: str) -> list[str]:
    """Names of the blocks that a document has marks for."""
    return [mark.group(1) for mark in MARK.finditer(text)]


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """A document with the content of its marked blocks written again."""

    def block(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return f"<!-- {name}: begin -->\n{blocks[name]}\n<!-- {name}: end -->" if name in blocks else mark.group(0)

    return MARK.sub(block, text)
