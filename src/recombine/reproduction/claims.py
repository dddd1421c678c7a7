"""How a claim is decided: criteria as code, verdicts computed from data.

A claim is judged case by case (for instance one case per encoding). Each case has *premises*, without which it says
nothing, and *conditions*; both compare a mean over seeds with a threshold through a bootstrap confidence interval:

- `holds` when the whole interval lies on the claimed side, `fails` when it lies on the other, `open` otherwise;
- a case `holds` when premises and conditions all hold, `fails` when the premises hold and a condition fails,
  and is `open` in between (a network that did not learn its training data decides nothing);
- a score that a case needs and does not have leaves its condition open, with the reason: what was not measured cannot
  hold. Cases that are each about one of a claim's conditions (`Claim.one_condition_per_case`) need only that one;
- a seed counts for a case when all of the case's scores have a value for it, and is left out of all of them otherwise;
- the claim is *supported* when every case holds, *not supported* when every case fails, *undecided* when every case is
  open, and *partly supported* when some hold; with none that holds and some that fails it is *not supported* too.

Multiple comparisons: a case needs all its conditions at once, which needs no correction; the cases of a claim are
separate statements, so their intervals are widened together (Bonferroni: 1 − 0.05 / cases). Claims are not corrected
for one another: each is a question of its own.

Where a claim is a comparison, each case is one statement, in the direction in which the paper makes it, and its score
`effect` (`EFFECT`) is positive when the statement is true of a seed.

No torch here: claims read numbers, wherever they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

from recombine.errors import InvalidValue, listed
from recombine.reproduction.intervals import CONFIDENCE, FEWEST_SEEDS, Absent, Interval, Values, bootstrap

Outcome = Literal["holds", "fails", "open"]
Verdict = Literal["supported", "partly supported", "not supported", "undecided"]


@dataclass(frozen=True)
class Condition:
    """A score, and which side of a threshold its mean is claimed to be on."""

    score: str
    side: Literal["below", "above"]
    threshold: float

    def outcome(self, interval: Interval | None) -> Outcome:
        """Where the interval lies."""
        if interval is None or interval.seeds < FEWEST_SEEDS:
            return "open"
        below, above = interval.high < self.threshold, interval.low > self.threshold
        claimed, opposite = (below, above) if self.side == "below" else (above, below)
        return "holds" if claimed else "fails" if opposite else "open"

    def strength(self, interval: Interval | None) -> float:
        """How far the mean lies on the claimed side, in half widths of the interval: beyond about ±1 it decides.

        0 where nothing is known: no score, too few seeds, or an interval without an end.
        """
        if interval is None or interval.seeds < FEWEST_SEEDS:
            return 0.0
        distance = interval.mean - self.threshold if self.side == "above" else self.threshold - interval.mean
        half_width = (interval.high - interval.low) / 2
        if half_width > 0:
            return distance / half_width
        return inf if distance > 0 else -inf if distance < 0 else 0.0

    def __str__(self) -> str:
        return f"{self.score} {'<' if self.side == 'below' else '>'} {self.threshold:g}"


EFFECT = (Condition("effect", "above", 0.0),)
"""The condition of a comparison."""


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case, with its evidence."""

    name: str
    outcome: Outcome
    evidence: dict[str, Interval]
    outcomes: dict[str, Outcome]
    strength: float = 0.0
    """The least of its premises' and conditions' (`Condition.strength`): the smaller, the weaker the case."""
    absent: dict[str, str] = field(default_factory=dict)
    """Scores that it needs and that are missing, and why."""


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

    @property
    def seeds(self) -> int:
        """Fewest seeds behind any interval; 0 where there is none."""
        return min((interval.seeds for case in self.cases for interval in case.evidence.values()), default=0)

    def record(self) -> dict[str, Any]:
        """Plain data for a JSON file; what is not a finite number (an open end of an interval) is null."""
        plain = _plain(asdict(self))
        assert isinstance(plain, dict)
        return plain


@dataclass(frozen=True)
class Claim:
    """A claim, and how it is decided."""

    name: str
    text: str
    premises: tuple[Condition, ...]
    conditions: tuple[Condition, ...]
    one_condition_per_case: bool = False
    """Whether each case is about one of the conditions only, the one whose score it has."""

    @property
    def criterion(self) -> str:
        """The criterion in words, from the conditions themselves."""
        premises = ", ".join(map(str, self.premises))
        return (f"{premises}; while " if premises else "") + ", ".join(map(str, self.conditions))

    @property
    def scores(self) -> list[str]:
        """Names of the scores that its premises and conditions are about, each once."""
        return list(dict.fromkeys(c.score for c in (*self.premises, *self.conditions)))

    def judge(self, cases: Mapping[str, Mapping[str, Values]]) -> Judgement:
        """The verdict on the cases.

        Parameters
        ----------
        cases
            By the case's name, its scores by theirs: values over seeds, an interval, or that the score is missing.

        Returns
        -------
        Judgement
            The verdict with every case's outcome and evidence.
        """
        level = 1 - (1 - CONFIDENCE) / max(1, len(cases))
        results = [self._case(name, scores, level) for name, scores in cases.items()]
        verdict = _verdict([case.outcome for case in results])
        return Judgement(self.name, self.text, self.criterion, verdict, results, level)

    def _case(self, name: str, scores: Mapping[str, Values], level: float) -> CaseResult:
        if not any(c.score in scores for c in self.conditions):
            raise InvalidValue("case", name, f"one with {listed(c.score for c in self.conditions)}")
        needed = [*self.premises, *(c for c in self.conditions if c.score in scores or not self.one_condition_per_case)]
        values = {c.score: scores.get(c.score, Absent()) for c in needed}
        evidence = _intervals(name, values, level)
        outcomes = {str(c): c.outcome(evidence.get(c.score)) for c in needed}
        conditions = [outcomes[str(c)] for c in needed if c not in self.premises]
        outcome: Outcome = "open"
        if all(outcomes[str(c)] == "holds" for c in self.premises):
            outcome = "fails" if "fails" in conditions else "open" if "open" in conditions else "holds"
        absent = {score: value.reason for score, value in values.items() if isinstance(value, Absent)}
        strength = min(c.strength(evidence.get(c.score)) for c in needed)
        return CaseResult(name, outcome, evidence, outcomes, strength, absent)


def _intervals(case: str, scores: Mapping[str, Values], level: float) -> dict[str, Interval]:
    """The scores that are not missing as intervals, over the seeds for which all of them have a value."""
    present = {score: value for score, value in scores.items() if not isinstance(value, Absent)}
    lists = {score: np.asarray(v, dtype=float) for score, v in present.items() if not isinstance(v, Interval)}
    if len({len(values) for values in lists.values()}) > 1:
        raise InvalidValue("case", case, "one whose scores have the same seeds")
    counts = np.all([np.isfinite(values) for values in lists.values()], axis=0) if lists else None
    return {
        score: value if isinstance(value, Interval) else bootstrap(lists[score][counts].tolist(), level)
        for score, value in present.items()
    }


def _plain(value: Any) -> Any:
    """Nested data with null in the place of numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _verdict(outcomes: list[Outcome]) -> Verdict:
    distinct = set(outcomes)
    if distinct == {"holds"}:
        return "supported"
    if "holds" in distinct:
        return "partly supported"
    return "not supported" if "fails" in distinct else "undecided"
