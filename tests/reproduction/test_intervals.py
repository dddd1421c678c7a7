"""Intervals cover what they promise; estimates and tails agree with each other and with slow, obvious ones."""

import numpy as np
import pytest
from scipy import stats

from recombine.reproduction.intervals import TRIM, Interval, Resampled, Share, TrimmedMean

NOMINAL, LEAST = 0.95, 0.93


def normal(generator, shape):
    return generator.normal(2.0, 1.0, shape)


def log_normal(generator, shape):
    return generator.lognormal(0.0, 1.0, shape)


def outliers(generator, shape):
    """One network in 32 lies far off."""
    values = generator.normal(0.0, 1.0, shape)
    return np.where(generator.random(shape) < 1 / 32, values + 20.0, values)


POPULATIONS = {"normal": normal, "log-normal": log_normal, "one outlier in 32": outliers}


def trimmed_truth(population):
    """The trimmed mean of the population itself, from very many draws."""
    values = np.sort(population(np.random.default_rng(99), 2_000_000))
    cut = int(TRIM * len(values))
    return values[cut:-cut].mean()


def covered(population, size, studies, seed=1):
    """The share of simulated studies whose interval holds the truth."""
    truth, draws = trimmed_truth(population), population(np.random.default_rng(seed), (studies, size))
    intervals = [TrimmedMean.of(row).interval(NOMINAL) for row in draws]
    return np.mean([interval.low <= truth <= interval.high for interval in intervals])


@pytest.mark.parametrize("population", POPULATIONS)
def test_trimmed_means_are_covered(population):
    """With 2000 studies the share itself is known to ±1 %."""
    assert covered(POPULATIONS[population], 32, 2000) >= LEAST - 0.01


def test_a_plain_mean_would_not_be_covered():
    """Why means are trimmed: Student's interval misses the mean where outliers are rare."""
    draws = outliers(np.random.default_rng(1), (2000, 32))
    half = stats.t.isf(0.025, 31) * draws.std(axis=1, ddof=1) / np.sqrt(32)
    assert np.mean(np.abs(draws.mean(axis=1) - 20 / 32) <= half) < 0.8


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_shares_are_covered(share):
    counts = np.random.default_rng(0).binomial(48, share, 2000)
    intervals = {count: Share(int(count), 48).interval() for count in set(counts)}
    assert np.mean([intervals[count].low <= share <= intervals[count].high for count in counts]) >= LEAST - 0.01


def test_a_trimmed_mean_is_scipys():
    values = np.random.default_rng(3).lognormal(size=37)
    own = TrimmedMean.of(values)
    assert own.value == pytest.approx(stats.trim_mean(values, TRIM))
    oracle = stats.ttest_1samp(values, 1.2, trim=TRIM) if "trim" in stats.ttest_1samp.__doc__ else None
    cut = int(TRIM * 37)
    winsorized = stats.mstats.winsorize(values, limits=(cut / 37, cut / 37)).data
    error = winsorized.std(ddof=1) / ((1 - 2 * cut / 37) * np.sqrt(37))
    assert own.error == pytest.approx(error)
    assert oracle is None or own.tail(1.2) == pytest.approx(oracle.pvalue / 2)


@pytest.mark.parametrize(
    "estimate", [TrimmedMean.of(np.random.default_rng(0).normal(1, 2, 48)), Share(31, 48)], ids=["mean", "share"]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_tails_and_intervals_say_the_same(estimate, confidence):
    interval = estimate.interval(confidence)
    assert estimate.tail(interval.low) == pytest.approx((1 - confidence) / 2, rel=1e-6)
    assert estimate.tail(interval.high) == pytest.approx((1 + confidence) / 2, rel=1e-6)


def test_resamples_that_never_get_there_open_an_end():
    draws = (*np.linspace(1, 3, 900), *[np.inf] * 100)
    estimate = Resampled(2.0, draws, 24)
    assert estimate.interval().low == pytest.approx(1.054, abs=0.01)
    assert estimate.interval().high == np.inf
    assert estimate.tail(2.0) == pytest.approx(0.45, abs=0.01)
    assert Resampled(2.0, (2.5,) * 99, 24).tail(1.0) == 0.01


def test_degenerate_samples():
    assert TrimmedMean.of([1.0] * 10).interval() == Interval(1.0, 1.0, 1.0, 10)
    assert TrimmedMean.of([1.0] * 10).tail(0.9) == 0.0
    assert TrimmedMean.of([1.0] * 10).tail(1.0) == 0.5
    assert TrimmedMean.of([4.0]).interval() == Interval(4.0, -np.inf, np.inf, 1)
    assert TrimmedMean.of([np.nan]).networks == 0
    assert Share.of([1, 0, np.nan, 1]) == Share(2, 3)
    assert np.isnan(Share(0, 0).interval().low)
