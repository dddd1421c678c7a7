"""Estimates over networks, with intervals that cover what they promise.

- `TrimmedMean`: the mean of the middle 60 % of the values, with Yuen's interval (Tukey and McLaughlin's t). The plain
  mean has no interval that covers where one network in 32 is an outlier: samples without one say nothing of it. The
  20 % trimmed mean has, for normal, log-normal and outlier data alike (tests/reproduction/test_intervals.py).
- `Share`: a share of networks, with Wilson's interval.
- `Resampled`: a statistic of all networks together, with the quantiles of its resamples.

Each has `interval(confidence)`, and `tail(bound)`: the one-sided p-value of the hypothesis that the truth is not above
a bound. An interval of confidence 1 − α lies above a bound exactly where the tail there is below α / 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95
TRIM = 0.2
"""Share of the values that is left out at either end of a trimmed mean."""


@dataclass(frozen=True)
class Interval:
    """A number over networks with its interval."""

    value: float
    low: float
    high: float
    networks: int


class Estimate(Protocol):
    """A number over networks, and how sure it is."""

    @property
    def value(self) -> float: ...

    @property
    def networks(self) -> int: ...

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The interval at a level of confidence."""
        ...

    def tail(self, bound: float) -> float:
        """How likely an estimate at least as large is where the truth is at the bound."""
        ...


@dataclass(frozen=True)
class TrimmedMean:
    """A 20 % trimmed mean with its standard error and degrees of freedom.

    >>> TrimmedMean.of([1.0, 2.0, 3.0, 4.0, 500.0]).value
    3.0
    """

    value: float
    error: float
    freedom: int
    networks: int

    @classmethod
    def of(cls, values: Sequence[float] | ArrayLike, trim: float = TRIM) -> TrimmedMean:
        """Of the finite ones among the values; NaN where there is none."""
        array = np.asarray(values, dtype=float)
        array = np.sort(array[np.isfinite(array)])
        networks = len(array)
        if not networks:
            return cls(nan, nan, 0, 0)
        cut = int(trim * networks)
        middle = array[cut : networks - cut]
        winsorized = np.clip(array, middle[0], middle[-1])
        error = winsorized.std(ddof=1) / ((1 - 2 * cut / networks) * sqrt(networks)) if networks > 1 else inf
        return cls(float(middle.mean()), float(error), len(middle) - 1, networks)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Yuen's interval; without ends for one network."""
        from scipy.stats import t

        if self.freedom < 1:
            return Interval(self.value, -inf if self.networks else nan, inf if self.networks else nan, self.networks)
        half = float(t.isf((1 - confidence) / 2, self.freedom)) * self.error
        return Interval(self.value, self.value - half, self.value + half, self.networks)

    def tail(self, bound: float) -> float:
        """From Student's t."""
        from scipy.stats import t

        if self.freedom < 1:
            return 0.5
        if self.error == 0:
            return 0.0 if self.value > bound else 1.0 if self.value < bound else 0.5
        return float(t.sf((self.value - bound) / self.error, self.freedom))


@dataclass(frozen=True)
class Share:
    """A share of networks.

    >>> Share(8, 8).interval().high
    1.0
    """

    count: int
    networks: int

    @classmethod
    def of(cls, values: Sequence[float] | ArrayLike) -> Share:
        """Of networks for which a value is 1, of those for which it is 0 or 1."""
        array = np.asarray(values, dtype=float)
        array = array[np.isfinite(array)]
        return cls(int(array.sum()), len(array))

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.networks if self.networks else nan

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Wilson's interval."""
        from scipy.stats import norm

        if not self.networks:
            return Interval(nan, nan, nan, 0)
        z, n = float(norm.isf((1 - confidence) / 2)), self.networks
        center = (self.value + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(self.value * (1 - self.value) / n + z * z / (4 * n * n))
        return Interval(self.value, max(0.0, center - half), min(1.0, center + half), n)

    def tail(self, bound: float) -> float:
        """From the score test, which Wilson's interval inverts."""
        from scipy.stats import norm

        if not self.networks or not 0 < bound < 1:
            return 0.5 if not self.networks else float(self.value <= bound)
        return float(norm.sf((self.value - bound) / sqrt(bound * (1 - bound) / self.networks)))


@dataclass(frozen=True)
class Resampled:
    """A statistic of all networks together, and what it is in resamples of them; those may be infinite."""

    value: float
    draws: tuple[float, ...]
    networks: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Quantiles of the resamples, each taken from one of them, so that infinite ones open an end."""
        tails = [(1 - confidence) / 2, (1 + confidence) / 2]
        low = np.quantile(self.draws, tails[0], method="lower")
        high = np.quantile(self.draws, tails[1], method="higher")
        return Interval(self.value, float(low), float(high), self.networks)

    def tail(self, bound: float) -> float:
        """The share of the resamples, and the statistic itself, that do not lie above the bound."""
        below = int((np.asarray(self.draws) <= bound).sum())
        return (below + 1) / (len(self.draws) + 1) if below < len(self.draws) else 1.0
