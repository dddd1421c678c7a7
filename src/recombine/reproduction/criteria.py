"""What is asked of a number over networks, what the answer is, and Holm's correction for asking much.

- `effect(statistic, smallest)`: an effect counts from a smallest one that matters on. The interval above it:
  *supported*; below it: *not supported*, and *reversed* if below its negative; else *undecided*.
- `above` and `below`: a bound that is itself the statement, such as an accuracy of 90 %.
- `within`: an equivalence test, such as "marginal": the whole interval between two bounds.

Fewer than three quarters of the networks learnt: *not decidable*. Fewer than eight that did: no verdict but a
*direction*, the side on which the number lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from recombine.reproduction.intervals import CONFIDENCE, Estimate, Interval

Outcome = Literal[
    "supported", "not supported", "reversed", "undecided", "not decidable", "as claimed", "opposite", "not measured"
]
DIRECTIONS: tuple[Outcome, Outcome] = ("as claimed", "opposite")
FEWEST_NETWORKS = 8
"""Learnt networks that a verdict needs; fewer give a direction."""


@dataclass(frozen=True)
class Criterion:
    """A statistic, and the open range that it is claimed to lie in."""

    statistic: str
    """What it is, in words, with its unit."""
    low: float = -inf
    high: float = inf
    is_effect: bool = False
    """Whether 0 is no effect, so that one below `-low` is reversed."""

    @property
    def range(self) -> str:
        """The range in words."""
        if isfinite(self.low) and isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        return f"> {self.low:g}" if isfinite(self.low) else f"< {self.high:g}"

    def __str__(self) -> str:
        return f"{self.statistic} {self.range}"

    def outcome(self, interval: Interval) -> Outcome:
        """Where an interval lies."""
        if interval.low > self.low and interval.high < self.high:
            return "supported"
        if self.is_effect and interval.high < -self.low:
            return "reversed"
        if interval.high < self.low or interval.low > self.high:
            return "not supported"
        return "undecided"

    def direction(self, value: float) -> Outcome:
        """On which side a number lies: for an effect, of no effect."""
        if not isfinite(value):
            return "not measured"
        low = 0.0 if self.is_effect else self.low
        return "as claimed" if low < value < self.high else "opposite"

    def p_value(self, estimate: Estimate) -> float:
        """Of the hypothesis that decides nothing: twice the smaller tail."""
        inside = max(
            estimate.tail(self.low) if isfinite(self.low) else 0.0,
            1 - estimate.tail(self.high) if isfinite(self.high) else 0.0,
        )
        outside = min(
            1 - estimate.tail(self.low) if isfinite(self.low) else 1.0,
            estimate.tail(self.high) if isfinite(self.high) else 1.0,
        )
        return min(1.0, 2 * min(inside, outside))


def effect(statistic: str, smallest: float) -> Criterion:
    """An effect of at least the smallest that matters."""
    return Criterion(statistic, low=smallest, is_effect=True)


def above(statistic: str, bound: float) -> Criterion:
    """A number above a bound."""
    return Criterion(statistic, low=bound)


def below(statistic: str, bound: float) -> Criterion:
    """A number below a bound."""
    return Criterion(statistic, high=bound)


def within(statistic: str, low: float, high: float) -> Criterion:
    """A number between two bounds."""
    return Criterion(statistic, low=low, high=high)


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
