"""Means over seeds with bootstrap intervals, and scores that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 20_000
FEWEST_SEEDS = 3
"""Below this an interval over seeds means nothing and every case is open."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with a bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Absent:
    """A score that is missing, and why."""

    reason: str = "not measured"


Values = Sequence[float] | Interval | Absent
"""A score of a case: one value per seed, or the interval of a statistic without one; or that it is missing."""


def bootstrap(values: Sequence[float], confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Interval:
    """The mean over seeds with its percentile bootstrap interval, from a fixed random stream.

    Parameters
    ----------
    values
        One value per seed; those that are not finite are left out.
    confidence
        Share of the resampled means that lie inside the interval.
    resamples
        Number of resamples.

    Returns
    -------
    Interval
        NaN with no seeds where no value is finite.
    """
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return Interval(np.nan, np.nan, np.nan, 0)
    draws = np.random.default_rng(0).integers(len(array), size=(resamples, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(array.mean()), float(low), float(high), len(array))
