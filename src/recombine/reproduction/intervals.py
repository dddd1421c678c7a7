"""Estimates across networks, with intervals that attain their nominal coverage.

If one network in 32 is an outlier, no interval for the plain mean attains its nominal coverage, since many samples
contain no outlier. Yuen's interval (Tukey and McLaughlin's t) for the mean of the middle 60 % of the values
(`TrimmedMean`) does, for normal, log-normal and outlier data (test_intervals.py).

Every estimate has `interval(confidence)` and `tail(bound)`, the one-sided p-value of the hypothesis that the true value
is at most the bound. An interval of confidence 1 − α lies above a bound if and only if `tail(bound)` < α / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95
TRIM = 0.2  # fraction of values trimmed at each end before averaging


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval and the number of networks that it is based on."""

    value: float
    low: float
    high: float
    networks: int


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return array[np.isfinite(array)]


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
    def of(cls, values: ArrayLike, trim: float = TRIM) -> TrimmedMean:
        """Return the trimmed mean of the finite values; NaN if there are none."""
        array = np.sort(_finite(values))
        networks = len(array)
        if not networks:
            return cls(nan, nan, 0, 0)
        cut = int(trim * networks)
        middle = array[cut : networks - cut]
        winsorized = np.clip(array, middle[0], middle[-1])
        error = winsorized.std(ddof=1) / ((1 - 2 * cut / networks) * sqrt(networks)) if networks > 1 else inf
        return cls(float(middle.mean()), float(error), len(middle) - 1, networks)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return Yuen's interval, which is infinite for a single network."""
        from scipy.special import stdtrit

        if self.freedom < 1:
            return Interval(self.value, -inf if self.networks else nan, inf if self.networks else nan, self.networks)
        half = float(-stdtrit(self.freedom, (1 - confidence) / 2)) * self.error
        return Interval(self.value, self.value - half, self.value + half, self.networks)

    def tail(self, bound: float) -> float:
        """Return the p-value from Student's t-distribution."""
        from scipy.special import stdtr

        if self.freedom < 1:
            return 0.5
        if self.error == 0:
            return 0.0 if self.value > bound else 1.0 if self.value < bound else 0.5
        return float(stdtr(self.freedom, (bound - self.value) / self.error))


@dataclass(frozen=True)
class PlainMean:
    """A mean with its standard error and the skewness of the values, for which its interval is corrected.

    Student's interval lies above the mean in 10 % of samples of 48 if large deviations are mostly downwards (a mirrored
    log-normal distribution), Hall's in 5 %.

    >>> PlainMean.of([1.0, 2.0, 3.0]).interval().value
    2.0
    """

    value: float
    error: float
    skewness: float
    networks: int

    @classmethod
    def of(cls, values: ArrayLike) -> PlainMean:
        """Return the mean of the finite values; NaN if there are none."""
        array = _finite(values)
        networks = len(array)
        if not networks:
            return cls(nan, nan, nan, 0)
        deviations = array - array.mean()
        spread = float(np.sqrt((deviations**2).mean()))
        skewness = float((deviations**3).mean()) / spread**3 if spread else 0.0
        error = spread / sqrt(networks - 1) if networks > 1 else inf
        return cls(float(array.mean()), error, skewness, networks)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return Hall's interval (1992), from a transformation of Student's t without skewness."""
        from scipy.special import stdtrit

        if self.networks < 2:
            return TrimmedMean(self.value, inf, 0, self.networks).interval(confidence)
        quantile, n = float(-stdtrit(self.networks - 1, (1 - confidence) / 2)), self.networks

        def deviation(q: float) -> float:  # in standard errors
            if abs(self.skewness) < 1e-9:
                return q
            inner = 1 + self.skewness * (q / sqrt(n) - self.skewness / (6 * n))
            return 3 * sqrt(n) / self.skewness * (float(np.cbrt(inner)) - 1)

        low, high = (self.value - deviation(q) * self.error for q in (quantile, -quantile))
        return Interval(self.value, low, high, n)


@dataclass(frozen=True)
class Share:
    """A proportion of networks.

    >>> Share(8, 8).interval().high
    1.0
    """

    count: int
    networks: int

    @classmethod
    def of(cls, values: ArrayLike) -> Share:
        """Return the proportion of ones among the finite values, each 0 or 1."""
        array = _finite(values)
        return cls(int(array.sum()), len(array))

    @property
    def value(self) -> float:
        """The proportion; NaN if there are no networks."""
        return self.count / self.networks if self.networks else nan

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return Wilson's interval."""
        from scipy.special import ndtri

        if not self.networks:
            return Interval(nan, nan, nan, 0)
        z, n = float(-ndtri((1 - confidence) / 2)), self.networks
        center = (self.value + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(self.value * (1 - self.value) / n + z * z / (4 * n * n))
        return Interval(self.value, max(0.0, center - half), min(1.0, center + half), n)

    def tail(self, bound: float) -> float:
        """Return the p-value of the score test, from which Wilson's interval is derived."""
        from scipy.special import ndtr

        if not self.networks or not 0 < bound < 1:
            return 0.5 if not self.networks else float(self.value <= bound)
        return float(ndtr((bound - self.value) / sqrt(bound * (1 - bound) / self.networks)))


@dataclass(frozen=True)
class Resampled:
    """A statistic computed from all networks jointly, with its bootstrap resamples, which may be infinite."""

    value: float
    draws: tuple[float, ...]
    networks: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return quantiles of the resamples without interpolation, so that infinite resamples give an unbounded end."""
        low = np.quantile(self.draws, (1 - confidence) / 2, method="lower")
        high = np.quantile(self.draws, (1 + confidence) / 2, method="higher")
        return Interval(self.value, float(low), float(high), self.networks)

    def tail(self, bound: float) -> float:
        """Return the fraction of resamples at or below the bound, with the add-one correction."""
        below = int((np.asarray(self.draws) <= bound).sum())
        return (below + 1) / (len(self.draws) + 1) if below < len(self.draws) else 1.0


Estimate = TrimmedMean | Share | Resampled
