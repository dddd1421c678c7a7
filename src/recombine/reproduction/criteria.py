"""Criteria, which are records registered before the data are collected, and Holm's correction.

A frozen record (`Criterion`) contains everything that a verdict depends on. The judging code has no thresholds of its
own, so changing a bound, rule or correction changes the record and its digest (`record_digest`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from recombine.keys import canonical_json
from recombine.records import Frozen
from recombine.reproduction.intervals import CONFIDENCE, TRIM, Estimate, Interval

Outcome = Literal["yes", "no", "reversed", "open", "not decidable", "as claimed", "opposite", "not measured"]
DIRECTIONS: tuple[Outcome, Outcome] = ("as claimed", "opposite")
Part = Literal["tests", "alternatives", "controls"]
Word = Literal["described", "specific"]


class Fit(NamedTuple):
    """How well each network of an arm fits what it was trained on."""

    error: np.ndarray
    """Error relative to that of a blank image."""
    score: np.ndarray
    """Score from 0 to 1, such as the accuracy; NaN if the task has none."""
    trained: np.ndarray
    """Whether each network was trained, even if it diverged."""

    @classmethod
    def known(cls, learnt: np.ndarray, trained: np.ndarray | None = None) -> Self:
        """Return the fit of networks of which it is known whether they learnt."""
        error = np.where(learnt, 0.0, np.inf)
        return cls(error, np.full(error.shape, np.nan), np.ones_like(learnt) if trained is None else trained)


class Learnt(Frozen):
    """Which networks count as having learnt, and how many of them a verdict requires."""

    largest_error: float = 0.1
    """A network has learnt if its error on the training set, relative to that of a blank image, is below this."""
    smallest_accuracy: float = 0.95
    """A network has learnt if its score on the training set, in the score that is judged, is above this."""
    smallest_share: float = 0.75
    """Fraction of the trained networks that must have learnt; with fewer, a test is *not decidable*."""
    fewest_networks: int = 8
    """Number of networks that must have learnt; with fewer, a test gives a *direction* instead of a verdict."""

    def learnt(self, fit: Fit) -> np.ndarray:
        """Return which trained networks learnt."""
        scored = (fit.score > self.smallest_accuracy) | np.isnan(fit.score)
        return np.asarray((fit.error < self.largest_error) & scored & fit.trained, dtype=bool)


class Criterion(Frozen):
    """A statistic, the open range in which it is claimed to lie, and the rules for deciding whether it does."""

    statistic: str
    """What is measured, in words, with its unit."""
    word: Word = "described"
    """Whether it tests that networks do as claimed, or that this tells failing networks from others."""
    low: float | None = None
    """Lower limit of the range; for an effect, the smallest effect that matters."""
    high: float | None = None
    """Upper limit of the range."""
    is_effect: bool = False
    """Whether 0 means no effect, so that values below `-low` count as reversed."""
    parameters: Mapping[str, float | str | tuple[float | str, ...]] = {}
    """Thresholds and settings of the measure, passed by name to the functions that compute its samples."""
    stage: str = ""
    """Stages at which it is measured, if not stated in `statistic`."""
    region: str = ""
    """Region of the grid on which it is measured, if not stated in `statistic`."""
    contrast: str = ""
    """Networks that are compared, if not stated in `statistic`."""
    cases: tuple[str, ...] = ()
    """Cases to judge. Default: all."""
    combine: Literal["all", "any", "contrast"] = "all"
    """Whether every case counts, one suffices, or the statement is a contrast, which holds only if all cases do."""
    confidence: float = CONFIDENCE
    """Confidence level of the intervals before correction."""
    correction: Literal["holm", "none"] = "holm"
    """Multiple-testing correction across the paper's primary tests."""
    trim: float = TRIM
    """Fraction of networks trimmed at each end before averaging."""
    both_means: bool = True
    """Whether the plain mean must have the same outcome as the trimmed one; otherwise the test is open."""
    learnt: Learnt = Learnt()
    """Which networks count."""
    unseen_seeds: str = ""
    """Seeds still unseen when the criterion was registered, e.g. `1000–1055`."""

    @property
    def ends(self) -> tuple[float, float]:
        """Both limits of the range; infinite if unbounded."""
        return -inf if self.low is None else self.low, inf if self.high is None else self.high

    @property
    def range(self) -> str:
        """The range in words, where δ marks the smallest effect that matters."""
        if self.low is None or self.high is None:
            delta = "δ = " if self.is_effect and self.low else ""
            text = f"< {self.high:g}" if self.low is None else f"> {delta}{self.low:g}"
        else:
            text = f"between {self.low:g} and {self.high:g}"
        return f"{text} in at least one case" if self.combine == "any" else text

    def record(self) -> dict[str, Any]:
        """Return the fields for registration; fields added later are left out if they have their default."""
        fields, added = type(self).model_fields, ("word", "both_means")
        return self.model_dump(mode="json", exclude={n for n in added if getattr(self, n) == fields[n].default})

    def outcome(self, interval: Interval) -> Outcome:
        """Return the outcome for an interval estimate."""
        low, high = self.ends
        if interval.low > low and interval.high < high:
            return "yes"
        if self.is_effect and interval.high < -low:
            return "reversed"
        return "no" if interval.high < low or interval.low > high else "open"

    def direction(self, value: float) -> Outcome:
        """Return whether a value points in the claimed direction; for an effect, whether it is positive."""
        if not isfinite(value):
            return "not measured"
        low, high = self.ends
        return "as claimed" if (0.0 if self.is_effect else low) < value < high else "opposite"

    def p_value(self, estimate: Estimate) -> float:
        """Return the two-sided p-value of the hypothesis under which the criterion is open."""
        below_low = 0.0 if self.low is None else estimate.tail(self.low)
        below_high = 1.0 if self.high is None else estimate.tail(self.high)
        inside, outside = max(below_low, 1 - below_high), min(1 - below_low, below_high)
        return min(1.0, 2 * min(inside, outside))


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a statement's record in `criteria.json` (`Claim.record`)."""
    return hashlib.sha256(canonical_json(record).encode()).hexdigest()


def effect(statistic: str, smallest: float, **fields: Any) -> Criterion:
    """Return a criterion that requires more than the smallest effect of interest."""
    return Criterion(statistic=statistic, low=smallest, is_effect=True, **fields)


def above(statistic: str, bound: float, **fields: Any) -> Criterion:
    """Return a criterion for a value above a bound that the claim itself states, such as an accuracy of 90 %."""
    return Criterion(statistic=statistic, low=bound, **fields)


def below(statistic: str, bound: float, **fields: Any) -> Criterion:
    """Return a criterion for a value below a bound."""
    return Criterion(statistic=statistic, high=bound, **fields)


def within(statistic: str, low: float, high: float, **fields: Any) -> Criterion:
    """Return an equivalence criterion: the value must lie between two bounds."""
    return Criterion(statistic=statistic, low=low, high=high, **fields)


def holm_levels(p_values: Sequence[float], confidence: float = CONFIDENCE) -> list[float]:
    """Return each test's confidence level under Holm's procedure, which bounds the family-wise error rate.

    Tests are taken in increasing order of their p-values, each at α divided by the number of remaining tests; all
    tests after the first failure get the level of that test.

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
