"""Verdicts in words: sentences computed from the data, and tables for a terminal, the page and Markdown.

Text that came from data or users stays text in Markdown, whatever it contains.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from recombine.errors import listed
from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.criteria import DIRECTIONS
from recombine.reproduction.figures import Section
from recombine.reproduction.intervals import Interval

NAMED = 4
"""Cases that are named at most."""
ROUNDING = 1e-12
"""A limit that is nearer to 0 than this is 0."""
MARK = re.compile(r"<!-- (\w+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)
"""`recombine report --write FILE` writes the block of that name between such marks."""
SPECIAL = re.compile(r"\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)|<(?! )|`|\](?=[(\[:])")
"""What Markdown would take for an escape, an entity, a tag, code or a link; before a blank `<` is a comparison."""


def interval_text(interval: Interval) -> str:
    """A number with its interval; an end that is open is infinite."""
    if not interval.networks:
        return "no value"
    if not (isfinite(interval.low) or isfinite(interval.high)):
        return f"{interval.value:.3g}"
    return f"{interval.value:.3g} [{_limit(interval.low)}, {_limit(interval.high)}]"


def _limit(value: float) -> str:
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    return "0" if abs(value) < ROUNDING else f"{value:.3g}"


def sentence(judgement: Judgement) -> str:
    """What the primary tests came to: for every statistic its values, the claimed range, and the cases that differ."""
    if judgement.tests and not any(test.learnt for test in judgement.tests):
        return f"None of {max(test.trained for test in judgement.tests)} networks learnt what it was trained on."
    statistics = dict.fromkeys(test.statistic for test in judgement.tests)
    parts = [_statement([test for test in judgement.tests if test.statistic == own]) for own in statistics]
    text = "; ".join(parts) or "nothing measured"
    return f"{text[0].upper()}{text[1:]}."


def _statement(tests: Sequence[Test]) -> str:
    first = tests[0]
    if len(tests) == 1:
        case = f" ({first.case})" if first.case else ""
        return f"{first.statistic}{case} {interval_text(first.interval)}, claimed {first.claimed}"
    values = [test.interval.value for test in tests if isfinite(test.interval.value)]
    span = f"{min(values):.3g} to {max(values):.3g}" if values else "no value"
    agreeing = [test for test in tests if test.outcome in ("supported", "as claimed")]
    text = f"{first.statistic} {span}, claimed {first.claimed}, in {len(agreeing)} of {len(tests)} cases"
    others = [test for test in tests if test not in agreeing]
    return f"{text} ({_named(others)})" if others else text


def _named(tests: Sequence[Test]) -> str:
    """Cases by outcome."""
    parts = []
    for outcome in dict.fromkeys(test.outcome for test in tests):
        names = list(dict.fromkeys(test.case for test in tests if test.outcome == outcome))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        parts.append(f"{outcome}: {' / '.join(names[:NAMED])}{more}")
    return "; ".join(parts)


def robustness(judgement: Judgement) -> str:
    """How many alternatives agree, which do not, and how many controls support a cause."""
    parts = []
    if compared := judgement.comparable():
        differing = judgement.differing()
        text = f"agree {len(compared) - len(differing)} of {len(compared)}"
        parts.append(f"{text} ({_named(differing)})" if differing else text)
    if judgement.controls:
        held = [test for test in judgement.controls if test.outcome in ("supported", "as claimed")]
        parts.append(f"controls {len(held)} of {len(judgement.controls)}")
    return "; ".join(parts) or "–"


def network_count(judgement: Judgement) -> str:
    """Fewest networks that learnt, of those trained, over the primary tests."""
    counted = [(test.learnt, test.trained) for test in judgement.tests if test.trained]
    if not counted:
        return "–"
    learnt, trained = min(counted, key=lambda pair: (pair[0] / pair[1], pair[1]))
    return f"{learnt}/{trained}"


def verdict_text(judgement: Judgement) -> str:
    """The verdict; of few networks, how many tests point the way that is claimed. Late criteria are marked."""
    text: str = judgement.verdict
    if judgement.verdict == "direction only":
        ways = [test.outcome for test in judgement.tests if test.outcome in DIRECTIONS]
        text = f"direction: as claimed in {ways.count('as claimed')} of {len(ways)}"
    return f"{text} (after the data)" if judgement.timing == "after the data" else text


def escaped(text: object) -> str:
    """One line that shows exactly this text: no tag, link or code in it is taken for one."""
    entities = {"<": "&lt;", "&": "&amp;"}  # which show the same where backslashes are not read
    return SPECIAL.sub(lambda own: entities.get(own[0], f"\\{own[0]}"), " ".join(str(text).split()))


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; what would end a cell is escaped."""
    head = "|" + "".join(f" {name} |" if name else " |" for name in heads)
    lines = ("| " + " | ".join(escaped(cell).replace("|", r"\|") for cell in cells) + " |" for cells in rows)
    return "\n".join([head, "|" + "---|" * len(heads), *lines])


def markdown_table(judgements: Sequence[Judgement]) -> str:
    """The verdicts as a Markdown table; beside directions, the verdict of the reference results."""
    referenced = any(judgement.verdict == "direction only" for judgement in judgements)
    heads = ["claim", "verdict", *(["reference"] if referenced else []), "evidence", "robustness", "learnt / trained"]
    return table(heads, (
        (
            f"**{judgement.claim}** {judgement.text} ({judgement.where})", verdict_text(judgement),
            *([judgement.reference or "–"] if referenced else []),
            sentence(judgement), robustness(judgement), network_count(judgement),
        )
        for judgement in judgements
    ))  # fmt: skip


def brief_table(judgements: Sequence[Judgement], sections: Sequence[Section]) -> str:
    """How many claims have each verdict, and which they are, by section of the report, as Markdown."""
    texts = {judgement.claim: verdict_text(judgement) for judgement in judgements}
    counts = Counter(texts.values())
    number = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    placed = {name for section in sections for name in section.claims}
    rest = Section("rest", "Others", "", claims=tuple(name for name in texts if name not in placed))
    rows = []
    for section in (*sections, rest):
        groups: dict[str, list[str]] = {}
        for name in section.claims:
            if name in texts:
                groups.setdefault(texts[name], []).append(name)
        if groups:
            rows.append((section.title, "; ".join(f"{text}: {listed(names)}" for text, names in groups.items())))
    return f"{len(texts)} claims: {escaped(number)}.\n\n{table(('', ''), rows)}"


def claim_by_claim(judgements: Sequence[Judgement]) -> str:
    """Every claim with the evidence of every test, alternative and control, as Markdown."""
    parts = []
    for judgement in judgements:
        parts.append(f"### {escaped(judgement.claim)}: {verdict_text(judgement)}\n")
        parts.append(f"{escaped(judgement.text)} ({escaped(judgement.where)}).\n\n{escaped(sentence(judgement))}\n")
        rows = [
            (kind, test.case, test.statistic, interval_text(test.interval), test.claimed,
             test.outcome + (" (after the data)" if test.timing == "after the data" else ""),
             f"{test.learnt}/{test.trained}")
            for kind, test in evidence(judgement)
        ]  # fmt: skip
        heads = ("", "case", "statistic", "estimate [95 % interval]", "claimed", "outcome", "learnt / trained")
        parts += [table(heads, rows) + "\n"] if rows else []
    return "\n".join(parts)


def evidence(judgement: Judgement) -> list[tuple[str, Test]]:
    """Tests, alternatives and controls, each with what it is called."""
    kinds = {"test": judgement.tests, "alternative": judgement.alternatives, "control": judgement.controls}
    return [(kind, test) for kind, tests in kinds.items() for test in tests]


def causes_table(judgements: Sequence[Judgement]) -> str:
    """What the paper gives as causes of failure, each with its controls, as Markdown."""
    return table(("claim", "control", "estimate [95 % interval]", "claimed", "outcome"), (
        (f"**{own.claim}** {test.statistic}", test.case, interval_text(test.interval), test.claimed, test.outcome)
        for own in judgements
        for test in own.controls
    ))  # fmt: skip


def provenance_table(provenance: Mapping[str, Any]) -> str:
    """What was run, where and for how long, as Markdown."""
    facts = {name: value for name, value in provenance.items() if name != "preset" and value is not None}
    return table(("", ""), ((name.replace("_", " "), value) for name, value in facts.items()))


def costs_table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """What each study cost, and all of them, as Markdown."""
    heads = ("study", "networks", "training, s", "measuring, s")
    columns = ("training", "measuring")
    rows = [(study, round(own["networks"]), *(f"{own[name]:.1f}" for name in columns)) for study, own in costs.items()]
    total = (f"{sum(own[name] for own in costs.values()):.1f}" for name in columns)
    return table(heads, [*rows, ("**all**", "–", *total)])


def marked_blocks(text: str) -> list[str]:
    """Names of the blocks that a document has marks for."""
    return [mark.group(1) for mark in MARK.finditer(text)]


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """A document with the content of its marked blocks written again."""

    def block(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return f"<!-- {name}: begin -->\n{blocks[name]}\n<!-- {name}: end -->" if name in blocks else mark.group(0)

    return MARK.sub(block, text)
