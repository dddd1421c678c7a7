"""Outcomes of intervals, Holm's correction, and what simulated studies find."""

import numpy as np
import pytest

from recombine.reproduction.claims import Measured, Sample
from recombine.reproduction.criteria import Fit, above, below, effect, holm_levels, within
from recombine.reproduction.intervals import Interval, TrimmedMean


def interval(low, high):
    return Interval((low + high) / 2, low, high, 48)


@pytest.mark.parametrize(
    ("criterion", "low", "high", "outcome"),
    [
        (effect("a", 0.1), 0.11, 0.3, "yes"),
        (effect("a", 0.1), 0.09, 0.3, "open"),
        (effect("a", 0.1), -0.05, 0.09, "no"),
        (effect("a", 0.1), -0.3, -0.11, "reversed"),
        (above("a", 0.9), 0.91, 0.99, "yes"),
        (above("a", 0.9), 0.1, 0.2, "no"),
        (above("a", 0.9), -5, -2, "no"),
        (below("a", 0.9), 0.1, 0.89, "yes"),
        (below("a", 0.9), 0.91, 0.95, "no"),
        (within("a", 0, 0.3), 0.01, 0.29, "yes"),
        (within("a", 0, 0.3), -0.1, 0.29, "open"),
        (within("a", 0, 0.3), 0.31, 0.5, "no"),
        (within("a", 0, 0.3), -0.5, -0.1, "no"),
    ],
)
def test_where_an_interval_lies(criterion, low, high, outcome):
    assert criterion.outcome(interval(low, high)) == outcome


def test_directions_are_about_no_effect_or_the_bound():
    assert effect("a", 0.1).direction(0.01) == "as claimed"
    assert effect("a", 0.1).direction(-0.01) == "opposite"
    assert above("a", 0.9).direction(0.5) == "opposite"
    assert below("a", 0.9).direction(0.5) == "as claimed"
    assert within("a", 0, 0.3).direction(0.4) == "opposite"
    assert effect("a", 0.1).direction(np.nan) == "not measured"


def test_p_values_decide_as_intervals_do():
    generator = np.random.default_rng(0)
    for criterion in (effect("a", 0.1), above("a", 0.2), below("a", 0.15), within("a", 0.0, 0.3)):
        for mean in np.linspace(-0.4, 0.6, 41):
            estimate = TrimmedMean.of(generator.normal(mean, 0.2, 24))
            decided = criterion.outcome(estimate.interval(0.95)) != "open"
            assert decided == (criterion.p_value(estimate) < 0.05)


def holm_by_hand(p_values, alpha=0.05):
    """Which tests are rejected, from the textbook."""
    order, rejected = np.argsort(p_values), np.zeros(len(p_values), dtype=bool)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected.tolist()


def test_levels_reject_what_holm_rejects():
    generator = np.random.default_rng(1)
    for _ in range(200):
        p_values = generator.random(12) ** 4
        levels = holm_levels(p_values.tolist())
        assert [p <= 1 - level + 1e-15 for p, level in zip(p_values, levels, strict=True)] == holm_by_hand(p_values)


SPREAD = 1.2
"""Standard deviation between networks, in smallest effects, up to which a study of 48 networks finds twice that one."""


def found(planted, criterion, studies, tests=100, networks=48):
    """The share of simulated studies in which a planted effect is supported, among as many other clear tests."""
    generator, supported = np.random.default_rng(7), 0
    for _ in range(studies):
        estimate = TrimmedMean.of(generator.normal(planted, SPREAD * criterion.low, networks))
        level = holm_levels([criterion.p_value(estimate), *[1e-12] * (tests // 2), *[0.5] * (tests // 2)])[0]
        supported += criterion.outcome(estimate.interval(level)) == "yes"
    return supported / studies


def test_twice_the_smallest_effect_is_found_and_none_is_not():
    criterion = effect("a", 0.1)
    assert found(0.2, criterion, 400) >= 0.9
    assert found(0.0, criterion, 400) <= 0.05
    assert found(0.1, criterion, 400) <= 0.05


POPULATIONS = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "log-normal": lambda generator, shape: generator.lognormal(size=shape) - np.exp(0.5),
    "mirrored log-normal": lambda generator, shape: np.exp(0.18) - generator.lognormal(0, 0.6, shape),
    "bounded": lambda generator, shape: generator.beta(0.5, 2, size=shape) - 0.2,
    "mirrored bounded": lambda generator, shape: 0.2 - generator.beta(0.5, 2, size=shape),
}
"""Values of networks about a mean of zero."""


@pytest.mark.parametrize("population", POPULATIONS)
def test_an_effect_just_below_the_threshold_is_rarely_called_described(population):
    criterion, studies = effect("a", 0.1), 1000
    values = criterion.low + POPULATIONS[population](np.random.default_rng(5), (studies, 48))
    samples = (Sample(own, (Fit.known(np.ones(48, dtype=bool)),)) for own in values)
    outcomes = [Measured(criterion, "", own, "before the data").outcome(0.95) for own in samples]
    assert outcomes.count("yes") <= 0.05 * studies
