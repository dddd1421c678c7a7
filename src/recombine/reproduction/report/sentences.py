"""A claim's evidence in words: one sentence computed from the data, how robust it is, and over how many networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.criteria import DIRECTIONS
from recombine.reproduction.intervals import Interval

NAMED = 4
"""Cases that are named at most."""
ROUNDING = 1e-12
"""A limit that is nearer to 0 than this is 0."""


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
    parts = []
    for statistic in dict.fromkeys(test.statistic for test in judgement.tests):
        tests = [test for test in judgement.tests if test.statistic == statistic]
        parts.append(_statement(tests))
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
    outcomes = dict.fromkeys(test.outcome for test in tests)
    parts = []
    for outcome in outcomes:
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
