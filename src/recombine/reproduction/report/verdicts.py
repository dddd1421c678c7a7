"""Verdicts as text: for tables in a terminal, on the page and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from recombine.reproduction.claims import CaseResult, Judgement
from recombine.reproduction.intervals import Interval
from recombine.reproduction.report.markdown import escaped, row

MARK = re.compile(r"<!-- (\w+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)
"""`recombine report --write FILE` writes the block of that name between such marks."""


def interval_text(interval: Interval) -> str:
    """Mean and interval."""
    if not interval.seeds:
        return "no value"
    return f"{interval.mean:.3g} [{_limit(interval.low)}, {_limit(interval.high)}]"


def _limit(value: float) -> str:
    """An end of an interval; one that is open is infinite."""
    return f"{value:.3g}" if isfinite(value) else "∞" if value > 0 else "-∞"


def case_text(case: CaseResult) -> str:
    """All evidence of a case in one line, and what is missing."""
    evidence = [f"{name.replace('_', ' ')} {interval_text(interval)}" for name, interval in case.evidence.items()]
    return "; ".join([*evidence, *(f"no {name.replace('_', ' ')}: {why}" for name, why in case.absent.items())])


def tally(judgement: Judgement) -> str:
    """How many cases hold, fail and are open."""
    counts = {o: sum(case.outcome == o for case in judgement.cases) for o in ("holds", "fails", "open")}
    words = {"holds": "hold" if counts["holds"] != 1 else "holds", "fails": "fail" if counts["fails"] != 1 else "fails"}
    text = ", ".join(f"{count} {words.get(outcome, outcome)}" for outcome, count in counts.items() if count)
    return f"{text} of {len(judgement.cases)}"


def headline(judgement: Judgement) -> str:
    """The evidence of the weakest case: a failing one if there is any, and of those the one that fails most clearly."""
    if not judgement.cases:
        return ""
    order = {"fails": 0, "open": 1, "holds": 2}
    case = min(judgement.cases, key=lambda case: (order[case.outcome], case.strength))
    return f"{case.name}: {case_text(case)}"


def markdown_table(judgements: Sequence[Judgement]) -> str:
    """The verdicts as a Markdown table."""
    lines = ["| claim | verdict | cases | seeds | weakest case, mean [interval] |", "|---|---|---|---|---|"]
    for judgement in judgements:
        text = f"**{judgement.claim}** {judgement.text}"
        cells = (text, judgement.verdict, tally(judgement), str(judgement.seeds or "–"), headline(judgement))
        lines.append(row(cells))
    return "\n".join(lines)


def claim_by_claim(judgements: Sequence[Judgement]) -> str:
    """Every claim with its criterion and the evidence of every case, as Markdown."""
    parts = []
    for judgement in judgements:
        parts.append(f"### {escaped(judgement.claim)}: {judgement.verdict}\n\n{escaped(judgement.text)}\n")
        parts.append(f"Criterion: {escaped(judgement.criterion.replace('_', ' '))}.")
        if judgement.cases:
            level = f"{100 * judgement.confidence:.4g} %"
            lines = [f"\n| case | evidence, mean [{level} interval] | outcome |", "|---|---|---|"]
            lines += [row((case.name, case_text(case), case.outcome)) for case in judgement.cases]
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def provenance_table(provenance: Mapping[str, Any]) -> str:
    """What was run, where and for how long, as Markdown."""
    facts = {name: value for name, value in provenance.items() if name != "preset" and value is not None}
    lines = ["| | |", "|---|---|"]
    return "\n".join([*lines, *(row((name.replace("_", " "), value)) for name, value in facts.items())])


def marked_blocks(text: str) -> list[str]:
    """Names of the blocks that a document has marks for."""
    return [mark.group(1) for mark in MARK.finditer(text)]


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """A document with the content of its marked blocks written again."""

    def block(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return f"<!-- {name}: begin -->\n{blocks[name]}\n<!-- {name}: end -->" if name in blocks else mark.group(0)

    return MARK.sub(block, text)
