"""How a claim is decided: criteria as code, verdicts computed from data (SPEC §9).

A claim is judged case by case (C1: one case an encoding). Each case has *premises*, without which it says nothing, and
*conditions*; both compare a mean over seeds with a threshold through a bootstrap confidence interval:

- `holds` when the whole interval lies on the claimed side, `fails` when it lies on the other, `open` otherwise;
- a case `holds` when premises and conditions all hold, `fails` when the premises hold and a condition fails,
  and is `open` in between (a network that did not learn its training data decides nothing);
- the claim is *supported* when every case holds, *not supported* when every case fails, *undecided* when every case is
  open, and *partly supported* when some hold; with none that holds and some that fails it is *not supported* too.

Multiple comparisons: a case needs all its conditions at once, which needs no correction; the cases of a claim are
separate statements, so their intervals are widened together (Bonferroni: 1 − 0.05 / cases). Claims are not corrected
for one another: each is a question of its own.

No torch here: claims read numbers, wherever they came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from recombine.errors import InvalidValue, listed

CONFIDENCE = 0.95
RESAMPLES = 20_000
FEWEST_SEEDS = 3
"""Below this an interval over seeds means nothing and every case is open."""

Outcome = Literal["holds", "fails", "open"]
Verdict = Literal["supported", "partly supported", "not supported", "undecided"]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with a bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int


def bootstrap(values: Sequence[float], confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Interval:
    """Percentile bootstrap of the mean over seeds, with its own fixed random stream."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return Interval(np.nan, np.nan, np.nan, 0)
    draws = np.random.default_rng(0).integers(len(array), size=(resamples, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(array.mean()), float(low), float(high), len(array))


Values = Sequence[float] | Interval
"""A score of a case: its values over seeds, or the interval of a statistic that has no value a seed."""


@dataclass(frozen=True)
class Condition:
    """A score, and which side of a threshold its mean is claimed to be on."""

    score: str
    side: Literal["below", "above"]
    threshold: float

    def outcome(self, interval: Interval) -> Outcome:
        """Where the interval lies."""
        if interval.seeds < FEWEST_SEEDS:
            return "open"
        below, above = interval.high < self.threshold, interval.low > self.threshold
        claimed, opposite = (below, above) if self.side == "below" else (above, below)
        return "holds" if claimed else "fails" if opposite else "open"

    def __str__(self) -> str:
        return f"{self.score} {'<' if self.side == 'below' else '>'} {self.threshold:g}"


@dataclass(frozen=True)
class CaseResult:
    """What was found for one case."""

    name: str
    outcome: Outcome
    evidence: dict[str, Interval]
    outcomes: dict[str, Outcome]


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict with the evidence."""

    claim: str
    text: str
    criterion: str
    verdict: Verdict
    cases: list[CaseResult] = field(default_factory=list)
    confidence: float = CONFIDENCE
    """Of each case's intervals, after correction for the number of cases."""
    note: str = ""
    """Why nothing could be decided, where nothing could."""

    @property
    def seeds(self) -> int:
        """Fewest seeds behind any interval; 0 where there is none."""
        return min((interval.seeds for case in self.cases for interval in case.evidence.values()), default=0)

    def record(self) -> dict[str, Any]:
        """Plain data for a JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """A claim, and how it is decided."""

    name: str
    text: str
    premises: tuple[Condition, ...]
    conditions: tuple[Condition, ...]

    @property
    def criterion(self) -> str:
        """The criterion in words, from the conditions themselves."""
        given = ", ".join(map(str, self.premises))
        return (f"{given}; while " if given else "") + ", ".join(map(str, self.conditions))

    def judge(self, cases: Mapping[str, Mapping[str, Values]], note: str = "") -> Judgement:
        """The verdict on `{case: {score: values over seeds}}`; a score may also be an interval of its own."""
        level = 1 - (1 - CONFIDENCE) / max(1, len(cases))
        results = [self._case(name, scores, level) for name, scores in cases.items()]
        verdict = _verdict([case.outcome for case in results])
        return Judgement(self.name, self.text, self.criterion, verdict, results, level, note)

    def undecided(self, note: str) -> Judgement:
        """No verdict, and why."""
        return Judgement(self.name, self.text, self.criterion, "undecided", note=note)

    def _case(self, name: str, scores: Mapping[str, Values], level: float) -> CaseResult:
        premises_here = [c for c in self.premises if c.score in scores]
        conditions_here = [c for c in self.conditions if c.score in scores]
        if not conditions_here:
            raise InvalidValue("case", name, f"one with {listed(c.score for c in self.conditions)}")
        asked = [*premises_here, *conditions_here]
        evidence = {c.score: _interval(scores[c.score], level) for c in asked}
        outcomes = {str(c): c.outcome(evidence[c.score]) for c in asked}
        premises = [outcomes[str(c)] for c in premises_here]
        conditions = [outcomes[str(c)] for c in conditions_here]
        outcome: Outcome = "open"
        if all(found == "holds" for found in premises):
            outcome = "fails" if "fails" in conditions else "open" if "open" in conditions else "holds"
        return CaseResult(name, outcome, evidence, outcomes)


def _interval(values: Values, level: float) -> Interval:
    return values if isinstance(values, Interval) else bootstrap(values, level)


def _verdict(outcomes: list[Outcome]) -> Verdict:
    found = set(outcomes)
    if found == {"holds"}:
        return "supported"
    if "holds" in found:
        return "partly supported"
    return "not supported" if "fails" in found else "undecided"
