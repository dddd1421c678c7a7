"""Verdicts in words: sentences computed from the data, and Markdown tables with all text escaped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, get_args

from recombine.errors import listed
from recombine.reproduction.claims import Judgement, Test, Verdict
from recombine.reproduction.criteria import DIRECTIONS, Word
from recombine.reproduction.figures import Section
from recombine.reproduction.intervals import CONFIDENCE, Interval

WORDS: tuple[Word, ...] = get_args(Word)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
AGREEING = ("yes", "as claimed")
NAMED = 4  # maximum number of cases named in a sentence
ROUNDING = 1e-12  # interval limits closer to 0 than this are written as 0
DIRECTION = (
    "As claimed: too few networks learnt for a verdict, so a test only says whether its estimate lies on the claimed "
    "side of its bound, or of 0 for an effect."
)
TIMING = {
    "before the data": "criteria registered before the data",
    "after the data": "criteria changed after the data",
    "not registered": "not known when the criteria were written",
}
LEGEND = (
    "Described: do the networks do what is claimed? Specific: does it tell failing networks from composing or "
    "untrained ones? In brackets: 95 % intervals; beside them, plain means. δ: the smallest effect that matters. "
    "Learnt: networks that count, of those trained."
)
MARK = re.compile(r"<!-- (\w+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)
"""Markers between which `recombine report --write FILE` inserts the block with the given name."""
SPECIAL = re.compile(r"\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)|<(?! )|`|\](?=[(\[:])")
"""Markdown escapes, entities, tags, code and links; `<` before a space is a comparison."""


def interval_text(interval: Interval) -> str:
    """Return an estimate with its interval."""
    if not interval.networks:
        return "no value"
    if not (isfinite(interval.low) or isfinite(interval.high)):
        return f"{interval.value:.3g}"
    return f"{interval.value:.3g} [{_limit(interval.low)}, {_limit(interval.high)}]"


def _limit(value: float) -> str:
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    return "0" if abs(value) < ROUNDING else f"{value:.3g}"


def statements(judgement: Judgement) -> list[str]:
    """Say for each statement what was measured, on how many networks, what came out, and how that is judged."""
    if judgement.tests and not any(test.learnt for test in judgement.tests):
        most = max(test.trained for test in judgement.tests)
        return [f"In no case did any of {most} networks learn its training set."]
    statistics = dict.fromkeys(test.statistic for test in judgement.tests)
    parts = [_statement([test for test in judgement.tests if test.statistic == own]) for own in statistics]
    return parts or ["Nothing was measured."]


def sentence(judgement: Judgement) -> str:
    """Return all statements as one text."""
    return " ".join(statements(judgement))


def _statement(tests: Sequence[Test]) -> str:
    first, others = tests[0], [test for test in tests if test.outcome not in AGREEING]
    statistic = f"{first.statistic[0].upper()}{first.statistic[1:]}"
    case = f" ({first.case})" if first.case and len(tests) == 1 else ""
    counts = zip(*((test.learnt, test.trained) for test in tests), strict=True)
    networks = " of ".join(f"{min(own)}" if min(own) == max(own) else f"{min(own)}–{max(own)}" for own in counts)
    if not any(test.trained for test in tests):
        return f"{statistic} was not measured."
    values = [test.interval.value for test in tests if isfinite(test.interval.value)]
    if not values:
        return f"{statistic}{case} has no value: {networks} networks count."
    if len(tests) == 1:
        value, outcome = f"{interval_text(first.interval)} over", str(first.outcome)
        if first.outcome == "open" and first.level > CONFIDENCE:  # the interval shown may be clear
            outcome += f" at {100 * first.level:.4g} %, the level corrected for several tests"
    else:
        word = "as claimed" if any(test.outcome in DIRECTIONS for test in tests) else "yes"
        value = f"{min(values):.3g} to {max(values):.3g} in {len(tests)} cases, each over"
        outcome = f"{word} in {len(tests) - len(others)} of {len(tests)}"
        outcome += f" ({_named(others)})" if others else ""
    found = f"{statistic}{case} came out at {value} the {networks} networks that learnt"
    return f"{found}; claimed {first.claimed}: {outcome}."


def explained(judgement: Judgement) -> list[str]:
    """Return a claim's evidence, the verdict that follows, and how far it depends on choices, in sentences."""
    counts = Counter(test.outcome for test in judgement.tests)
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    tests = "1 test" if len(judgement.tests) == 1 else f"{len(judgement.tests)} tests"
    verdict = f"Verdict: {verdict_text(judgement)} ({tests}: {outcomes}); {TIMING[judgement.timing]}."
    lines = [*statements(judgement), verdict]
    lines += [DIRECTION] if has_directions(judgement) else []
    if (others := robustness(judgement)) != "–":
        lines.append(f"Other measures, stages and networks, which do not change the verdict: {others}.")
    return lines


def _named(tests: Sequence[Test]) -> str:
    """List cases by outcome."""
    parts = []
    for outcome in dict.fromkeys(test.outcome for test in tests):
        names = list(dict.fromkeys(test.case for test in tests if test.outcome == outcome))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        parts.append(f"{outcome}: {' / '.join(names[:NAMED])}{more}")
    return "; ".join(parts)


def robustness(judgement: Judgement) -> str:
    """Return the numbers of alternatives and of controls by outcome, and names those that are not *yes*."""
    parts = []
    for name, tests in (("alternatives", judgement.alternatives), ("controls", judgement.controls)):
        if measured := [test for test in tests if test.outcome not in ("not measured", "not decidable")]:
            outcomes = ["no" if test.outcome == "reversed" else test.outcome for test in measured]
            order = ("yes", "no", "open", *DIRECTIONS)
            counts = ", ".join(f"{outcomes.count(own)} {own}" for own in order if own in outcomes)
            others = [test for test in measured if test.outcome not in AGREEING]
            parts.append(f"{name}: {counts}" + (f" ({_named(others)})" if others else ""))
    return "; ".join(parts) or "–"


def has_directions(judgement: Judgement) -> bool:
    """Return whether too few networks learnt for a verdict."""
    return "direction only" in judgement.words.values()


def network_count(judgement: Judgement) -> str:
    """Return the numbers of learnt / trained networks in the primary test with the smallest learnt fraction."""
    counted = [(test.learnt, test.trained) for test in judgement.tests if test.trained]
    if not counted:
        return "–"
    learnt, trained = min(counted, key=lambda pair: (pair[0] / pair[1], pair[1]))
    return f"{learnt}/{trained}"


def verdict_text(judgement: Judgement) -> str:
    """Return both verdicts or, if there are too few networks, how many tests point in the claimed direction."""
    text = judgement.headline
    if has_directions(judgement):
        directions = [test.outcome for test in judgement.tests if test.outcome in DIRECTIONS]
        text = f"direction: as claimed in {directions.count('as claimed')} of {len(directions)} tests"
    return f"{text} (after the data)" if judgement.timing == "after the data" else text


def escaped(text: object) -> str:
    """Return one line of Markdown that renders as exactly this text."""
    entities = {"<": "&lt;", "&": "&amp;"}  # entities also work where backslashes do not escape
    return SPECIAL.sub(lambda own: entities.get(own[0], f"\\{own[0]}"), " ".join(str(text).split()))


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    head = "|" + "".join(f" {name} |" if name else " |" for name in heads)
    lines = ("| " + " | ".join(escaped(cell).replace("|", r"\|") for cell in cells) + " |" for cells in rows)
    return "\n".join([head, "|" + "---|" * len(heads), *lines])


def markdown_table(judgements: Sequence[Judgement], *, ours: bool = False) -> str:
    """Return the verdicts on the paper's claims or ours as Markdown, with reference verdicts beside directions."""
    chosen = [judgement for judgement in judgements if judgement.ours == ours]
    referenced = any(has_directions(judgement) and judgement.reference for judgement in chosen)
    heads = ["claim", "verdict", *(["reference"] if referenced else []), "evidence", "robustness", "learnt / trained"]
    return table(heads, (
        (
            f"**{judgement.claim}** {judgement.text} ({judgement.where})", verdict_text(judgement),
            *([judgement.reference or "–"] if referenced else []),
            sentence(judgement), robustness(judgement), network_count(judgement),
        )
        for judgement in chosen
    ))  # fmt: skip


OWNERS = {"The paper": False, "This project": True}


def brief_table(judgements: Sequence[Judgement], sections: Sequence[Section]) -> str:
    """Return the number of claims per verdict, and their names by report section, as Markdown.

    The paper's claims and ours have separate counts and columns.
    """
    owners = {name: [own for own in judgements if own.ours == ours] for name, ours in OWNERS.items()}
    texts = {owner: {own.claim: verdict_text(own) for own in claims} for owner, claims in owners.items() if claims}
    counts = [f"{owner}: {counted(claims)}." for owner, claims in owners.items() if claims]
    placed = {name for section in sections for name in section.claims}
    rest = Section("rest", "Others", "", claims=tuple(own.claim for own in judgements if own.claim not in placed))
    rows = []
    for section in (*sections, rest):
        cells = [_by_verdict(verdicts, section.claims) for verdicts in texts.values()]
        if any(cells):
            rows.append((section.title, *cells))
    return f"{escaped(' '.join(counts))}\n\n{table(('', *texts), rows)}"


def counted(judgements: Sequence[Judgement]) -> str:
    """Return how many claims there are, and how many have each verdict, for each word."""
    parts = [f"{len(judgements)} claims"]
    for word in WORDS:
        verdicts = Counter(own.words[word] for own in judgements if word in own.words)
        numbers = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS if verdicts[verdict])
        parts += [f"{word}: {numbers}"] if numbers else []
    return "; ".join(parts)


def _by_verdict(verdicts: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the claims with these names, grouped by verdict."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if name in verdicts:
            groups.setdefault(verdicts[name], []).append(name)
    return "; ".join(f"{text}: {listed(claims)}" for text, claims in groups.items())


def claim_by_claim(judgements: Sequence[Judgement]) -> str:
    """Return every claim with all its tests, alternatives and controls as Markdown."""
    parts = []
    for judgement in judgements:
        parts.append(f"### {escaped(judgement.claim)}: {verdict_text(judgement)}\n")
        parts.append(
            f"{escaped(judgement.text)} ({escaped(judgement.where)}).\n\n{escaped(' '.join(explained(judgement)))}\n"
        )
        rows = [
            (kind, test.case, test.measured, interval_text(test.interval), plain_text(test), test.claimed,
             test.outcome + (" (after the data)" if test.timing == "after the data" else ""),
             f"{test.learnt}/{test.trained}")
            for kind, test in evidence(judgement)
        ]  # fmt: skip
        heads = ("", "case", "measured", "estimate [95 % interval]", "mean", "claimed", "outcome", "learnt / trained")
        parts += [table(heads, rows) + "\n"] if rows else []
    return "\n".join(parts)


def evidence(judgement: Judgement) -> list[tuple[str, Test]]:
    """Return a claim's tests, alternatives and controls, each with its kind; for tests, the word that they decide."""
    kinds = {"alternative": judgement.alternatives, "control": judgement.controls}
    decisive = [(str(test.word), test) for test in judgement.tests]
    return [*decisive, *((kind, test) for kind, tests in kinds.items() for test in tests)]


def plain_text(test: Test) -> str:
    """Return the plain mean beside a trimmed one."""
    return "–" if test.plain is None or not test.plain.networks else f"{test.plain.value:.3g}"


def causes_table(judgements: Sequence[Judgement]) -> str:
    """Return all comparisons of failing networks with others as Markdown: specific tests, then controls."""
    return table(("claim", "compared", "estimate [95 % interval]", "claimed", "outcome"), (
        (f"**{own.claim}** {test.statistic}", test.case, interval_text(test.interval), test.claimed, test.outcome)
        for own in judgements
        for test in comparisons(own)
    ))  # fmt: skip


def comparisons(judgement: Judgement) -> list[Test]:
    """Return the comparisons of failing networks with others."""
    return [*(test for test in judgement.tests if test.word == "specific"), *judgement.controls]


def changed_table(judgements: Sequence[Judgement], editions: Mapping[str, Mapping[str, str]]) -> str:
    """Return what changed since the previous edition, and why, as Markdown."""
    rows = [
        (own.claim, editions[own.claim]["before"], verdict_text(own), editions[own.claim]["why"])
        for own in judgements
        if own.claim in editions
    ]
    return table(("claim", "before", "now", "why"), rows)


def provenance_table(provenance: Mapping[str, Any]) -> str:
    """Return the provenance as a Markdown table."""
    facts = {name: value for name, value in provenance.items() if name != "preset" and value is not None}
    return table(("", ""), ((name.replace("_", " "), value) for name, value in facts.items()))


def costs_table(costs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the seeds and the cost of each study, and the total cost, as Markdown."""
    columns = ("training", "measuring")
    rows = [
        (study, own["seeds"], own["networks"], *(f"{own[name]:.1f}" for name in columns))
        for study, own in costs.items()
    ]
    total = (f"{sum(own[name] for own in costs.values()):.1f}" for name in columns)
    heads = ("study", "seeds", "networks", "training, s", "measuring, s")
    return table(heads, [*rows, ("**all**", "–", "–", *total)])


def marked_blocks(text: str) -> list[str]:
    """Return the names of the marked blocks in a document."""
    return [mark.group(1) for mark in MARK.finditer(text)]


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Return a document with its marked blocks replaced."""

    def block(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return f"<!-- {name}: begin -->\n{blocks[name]}\n<!-- {name}: end -->" if name in blocks else mark.group(0)

    return MARK.sub(block, text)
