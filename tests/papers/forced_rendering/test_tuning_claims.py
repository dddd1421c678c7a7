"""Verdicts on tuning, from planted indices."""

import numpy as np
import pytest

from recombine.papers.forced_rendering.stripes import FULL, WITH
from recombine.papers.forced_rendering.tuning import CLAIMS
from tests.papers.forced_rendering.planted_remedies import ALL, NUMBERS, outcomes, stripes_data, verdict_of

C13, C24 = CLAIMS
YES, NO = "yes", "no"


def tuned(fall_alone, fall_striped, per_log=0.05):
    """Stripe index and localisation by stage: input, two hidden stages, output."""
    stripe = {(WITH, n): [0.1, 0.8, 0.8 - fall_striped / 2, 0.8 - fall_striped] for n in NUMBERS}
    stripe[FULL, ALL] = [0.1, 0.8, 0.8 - fall_alone / 2, 0.8 - fall_alone]
    local = {
        (WITH, n): [0.9, 0.1, *[0.1 + fall_striped + (per_log * np.log(n / 100) if n else 0)] * 2] for n in NUMBERS
    }
    local[FULL, ALL] = [0.9, 0.1, 0.1 + fall_alone, 0.1 + fall_alone]
    return {"stripes": stripes_data(stripe_index=stripe, localisation_index=local)}


@pytest.mark.parametrize(
    ("alone", "striped", "described", "specific"),
    [
        (0.2, 0.5, YES, YES),
        (0.2, 0.22, YES, NO),  # in networks trained on bumps alone as well
        (0.5, 0.2, YES, "reversed"),
        (0.0, 0.08, NO, YES),
        (0.1, -0.3, "reversed", "reversed"),
        (0.05, 0.1, "open", "open"),
    ],
)
def test_change_along_stages_and_against_networks_that_fail(alone, striped, described, specific):
    found = verdict_of(C13, tuned(alone, striped))
    assert outcomes(found.tests) == [described, specific] * 2
    assert (found.described, found.specific) == (described, specific)
    by_case = {(test.statistic, test.case): test for test in found.alternatives}
    for test in found.tests:
        assert by_case[test.statistic, "stripes alone"].case
        middle = by_case[test.statistic, "to layer 1"].interval.value
        if "stripe index" in test.statistic:
            assert middle == pytest.approx(test.interval.value / 2, abs=0.002)


@pytest.mark.parametrize(("slope", "outcome"), [(0.05, YES), (0.01, NO), (-0.05, "reversed")])
def test_slope_of_localisation_against_the_logarithm_of_bumps(slope, outcome):
    found = verdict_of(C24, tuned(0.2, 0.4, slope))
    assert outcomes(found.tests) == [outcome]
    assert found.tests[0].interval.value == pytest.approx(slope, abs=0.002)
    by_case = {test.case: test for test in found.alternatives}
    assert by_case["output"].outcome == outcome
    assert by_case["stripe index, falling"].interval.value == pytest.approx(0, abs=0.002)


def test_a_seed_counts_for_the_slope_if_all_its_networks_learnt():
    data = tuned(0.2, 0.4)
    data["stripes"]["training_over_blank"].loc[{"family": WITH, "bumps": 10, "seed": [0, 1]}] = 0.5
    (test,) = verdict_of(C24, data).tests
    assert (test.learnt, test.trained) == (10, 12)
