"""Claims of the paper: criteria as code, written before the runs; verdicts computed from data (SPEC §9).

A claim is judged case by case (C1: one case an encoding). Each case has *premises*, without which it says nothing, and
*conditions*; both compare a mean over seeds with a threshold through a bootstrap confidence interval:

- `holds` when the whole interval lies on the claimed side, `fails` when it lies on the other, `open` otherwise;
- a case `holds` when premises and conditions all hold, `fails` when the premises hold and a condition fails,
  and is `open` in between (a network that did not learn its training data decides nothing);
- the claim is *supported* when every case holds, *not supported* when every case fails, *undecided* when every case is
  open, and *partly supported* otherwise.

No torch here: claims read numbers, wherever they came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
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
        return ", ".join(map(str, self.premises)) + "; while " + ", ".join(map(str, self.conditions))

    def judge(self, cases: Mapping[str, Mapping[str, Sequence[float]]]) -> Judgement:
        """The verdict on `{case: {score: values over seeds}}`."""
        results = [self._case(name, scores) for name, scores in cases.items()]
        return Judgement(self.name, self.text, self.criterion, _verdict([case.outcome for case in results]), results)

    def _case(self, name: str, scores: Mapping[str, Sequence[float]]) -> CaseResult:
        evidence = {c.score: bootstrap(scores[c.score]) for c in (*self.premises, *self.conditions)}
        outcomes = {str(c): c.outcome(evidence[c.score]) for c in (*self.premises, *self.conditions)}
        premises = [outcomes[str(c)] for c in self.premises]
        conditions = [outcomes[str(c)] for c in self.conditions]
        outcome: Outcome = "open"
        if all(found == "holds" for found in premises):
            outcome = "fails" if "fails" in conditions else "open" if "open" in conditions else "holds"
        return CaseResult(name, outcome, evidence, outcomes)


def _verdict(outcomes: list[Outcome]) -> Verdict:
    found = set(outcomes)
    if found == {"holds"}:
        return "supported"
    if found == {"fails"}:
        return "not supported"
    return "undecided" if found <= {"open"} else "partly supported"


CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            "C1",
            "Every disentangled encoding fails to compose, although it learns what it is trained on (§3.2, Fig. 1)",
            premises=(Condition("id_over_blank", "below", 0.1), Condition("id_accuracy", "above", 0.95)),
            conditions=(Condition("ood_over_blank", "above", 0.5),),
        ),
    )
}
