"""Criteria as data: what is asked of a number over networks, registered before the data, and Holm's correction.

One frozen record (`Criterion`) says all that a verdict depends on. Code that judges has no threshold of its own, so a
changed bound, rule or correction is a changed record with another digest (`Registered.digest`).

- `effect(statistic, smallest)`: an effect counts from a smallest one that matters on. The interval above it:
  *supported*; below it: *not supported*, and *reversed* if below its negative; else *undecided*.
- `above` and `below`: a bound that is itself the statement, such as an accuracy of 90 %.
- `within`: an equivalence test, such as "marginal": the whole interval between two bounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any, Literal

from recombine.keys import canonical_json
from recombine.records import Frozen
from recombine.reproduction.intervals import CONFIDENCE, TRIM, Estimate, Interval

Outcome = Literal[
    "supported", "not supported", "reversed", "undecided", "not decidable", "as claimed", "opposite", "not measured"
]
DIRECTIONS: tuple[Outcome, Outcome] = ("as claimed", "opposite")


class Learnt(Frozen):
    """Which networks count, and how many of them a verdict needs."""

    largest_error: float = 0.1
    """On what a network was trained on, over that of a blank image: it learnt if its error is below."""
    smallest_accuracy: float = 0.95
    """On what a network was trained on: it learnt if its accuracy is above."""
    smallest_share: float = 0.75
    """Share of the trained networks that must have learnt; with fewer, a test is *not decidable*."""
    fewest_networks: int = 8
    """Networks that must have learnt; with fewer, there is no verdict but a *direction*."""


class Criterion(Frozen):
    """A statistic, the open range that it is claimed to lie in, and how that is decided."""

    statistic: str
    """What is measured, in words, with its unit."""
    low: float | None = None
    """Lower end of the range. Of an effect, the smallest that matters."""
    high: float | None = None
    """Upper end of the range."""
    is_effect: bool = False
    """Whether 0 is no effect, so that one below `-low` is reversed."""
    parameters: Mapping[str, float] = {}
    """Thresholds and settings of the measure."""
    stage: str = ""
    """Stages that it is measured at, if the statistic does not say."""
    region: str = ""
    """Part of the grid that it is measured on, if the statistic does not say."""
    contrast: str = ""
    """Networks that are compared, if the statistic does not say."""
    cases: tuple[str, ...] = ()
    """Cases that are judged; all that there are if left out."""
    combine: Literal["all", "any"] = "all"
    """Whether all cases must be supported, or one of them suffices."""
    confidence: float = CONFIDENCE
    """Level of the intervals, before correction."""
    correction: Literal["holm", "none"] = "holm"
    """Correction for the other primary tests of the paper."""
    trim: float = TRIM
    """Share of the networks left out at either end of a mean."""
    learnt: Learnt = Learnt()
    """Which networks count."""
    unseen_seeds: str = ""
    """Seeds that nobody had seen when it was registered, as `1000–1055`."""

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the range; infinite where it is open."""
        return -inf if self.low is None else self.low, inf if self.high is None else self.high

    @property
    def range(self) -> str:
        """The range in words."""
        if self.low is not None and self.high is not None:
            return f"between {self.low:g} and {self.high:g}"
        return f"< {self.high:g}" if self.low is None else f"> {self.low:g}"

    def outcome(self, interval: Interval) -> Outcome:
        """Where an interval lies."""
        low, high = self.ends
        if interval.low > low and interval.high < high:
            return "supported"
        if self.is_effect and interval.high < -low:
            return "reversed"
        return "not supported" if interval.high < low or interval.low > high else "undecided"

    def direction(self, value: float) -> Outcome:
        """On which side a number lies: for an effect, of no effect."""
        if not isfinite(value):
            return "not measured"
        low, high = self.ends
        return "as claimed" if (0.0 if self.is_effect else low) < value < high else "opposite"

    def p_value(self, estimate: Estimate) -> float:
        """Of the hypothesis that decides nothing: twice the smaller tail."""
        below_low = 0.0 if self.low is None else estimate.tail(self.low)
        below_high = 1.0 if self.high is None else estimate.tail(self.high)
        inside, outside = max(below_low, 1 - below_high), min(1 - below_low, below_high)
        return min(1.0, 2 * min(inside, outside))


class Registered(Frozen):
    """One test of a claim as it is registered: the criterion, and how its Datasets are measured."""

    claim: str
    part: Literal["tests", "alternatives", "controls"]
    criterion: Criterion
    exploratory: bool = False
    """Whether its claim has numbers and no verdict."""
    versions: Mapping[str, Mapping[str, int]] = {}
    """By study that it reads, declared versions of what measures it, as far as they were raised since the first."""

    @property
    def digest(self) -> str:
        """SHA-256 of the record as JSON."""
        return record_digest(self.model_dump(mode="json"))


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record as a file has it, whatever edition wrote it."""
    return hashlib.sha256(canonical_json(record).encode()).hexdigest()


def effect(statistic: str, smallest: float, **fields: Any) -> Criterion:
    """An effect of at least the smallest that matters."""
    return Criterion(statistic=statistic, low=smallest, is_effect=True, **fields)


def above(statistic: str, bound: float, **fields: Any) -> Criterion:
    """A number above a bound."""
    return Criterion(statistic=statistic, low=bound, **fields)


def below(statistic: str, bound: float, **fields: Any) -> Criterion:
    """A number below a bound."""
    return Criterion(statistic=statistic, high=bound, **fields)


def within(statistic: str, low: float, high: float, **fields: Any) -> Criterion:
    """A number between two bounds."""
    return Criterion(statistic=statistic, low=low, high=high, **fields)


def holm_levels(p_values: Sequence[float], confidence: float = CONFIDENCE) -> list[float]:
    """Each test's level of confidence under Holm's procedure, in which all of them keep one error rate together.

    Tests are taken from the smallest p-value on, each at α over the number of tests left; from the first that fails on,
    all have its level.

    >>> [round(level, 4) for level in holm_levels([0.5, 0.001, 0.04])]
    [0.975, 0.9833, 0.975]
    """
    alpha, levels = 1 - confidence, [confidence] * len(p_values)
    level, failed = alpha, False
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if not failed:
            level = alpha / (len(p_values) - rank)
            failed = p_values[index] > level
        levels[index] = 1 - level
    return levels
