"""Verdicts from numbers: known answers."""

import json

import numpy as np
import pytest

from recombine.errors import InvalidValue
from recombine.papers import DEFAULT
from recombine.papers.forced_rendering.threshold.limits import exponent_limits, threshold_limits
from recombine.reproduction.claims import Claim, Condition
from recombine.reproduction.intervals import Absent, Interval, bootstrap
from recombine.reproduction.report.verdicts import case_text, headline

CLAIMS = DEFAULT.claims
C1 = CLAIMS["C1"]
LEARNT = {"id_over_blank": [0.01, 0.02, 0.015], "id_accuracy": [1.0, 0.99, 1.0]}
FAILS_TO_COMPOSE = {**LEARNT, "ood_over_blank": [0.9, 1.1, 1.0]}
COMPOSES = {**LEARNT, "ood_over_blank": [0.1, 0.05, 0.2]}
UNCLEAR = {**LEARNT, "ood_over_blank": [0.2, 0.5, 0.9]}
UNTRAINED = {**FAILS_TO_COMPOSE, "id_over_blank": [0.9, 0.8, 1.0]}


@pytest.mark.parametrize(
    ("cases", "verdict", "outcomes"),
    [
        ([FAILS_TO_COMPOSE, FAILS_TO_COMPOSE], "supported", ["holds", "holds"]),
        ([COMPOSES, COMPOSES], "not supported", ["fails", "fails"]),
        ([FAILS_TO_COMPOSE, COMPOSES], "partly supported", ["holds", "fails"]),
        ([FAILS_TO_COMPOSE, UNCLEAR], "partly supported", ["holds", "open"]),
        ([UNTRAINED, UNCLEAR], "undecided", ["open", "open"]),
    ],
)
def test_verdicts(cases, verdict, outcomes):
    judgement = C1.judge({str(k): case for k, case in enumerate(cases)})
    assert judgement.verdict == verdict
    assert [case.outcome for case in judgement.cases] == outcomes


def test_an_untrained_network_is_no_evidence():
    (case,) = C1.judge({"a": UNTRAINED}).cases
    assert case.outcomes["ood_over_blank > 0.5"] == "holds"
    assert case.outcome == "open"


def test_too_few_seeds_decide_nothing():
    two = {name: values[:2] for name, values in FAILS_TO_COMPOSE.items()}
    assert C1.judge({"a": two}).verdict == "undecided"


def test_bootstrap_agrees_with_the_normal_interval_on_many_seeds():
    values = np.random.default_rng(1).normal(3.0, 0.5, size=400)
    interval = bootstrap(values.tolist())
    half = 1.96 * 0.5 / 20
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.01)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.01)
    assert bootstrap(values.tolist()) == interval


def test_diverged_seeds_are_left_out():
    assert bootstrap([1.0, float("nan"), 3.0]).seeds == 2
    assert bootstrap([float("nan")]).seeds == 0


def test_a_score_that_is_absent_leaves_its_case_open():
    """C11: an exponent of one with stripes says nothing about bumps that never get there."""
    linear = Interval(1.0, 1.0, 1.0, 32)
    claim = CLAIMS["C11"]
    judgement = claim.judge({"a": {"exponent_bumps": Absent("90 % not reached"), "exponent_stripes": linear}})
    (case,) = judgement.cases
    assert (judgement.verdict, case.outcome) == ("undecided", "open")
    assert case.outcomes["exponent_stripes < 1.25"] == "holds"
    assert case.outcomes["exponent_bumps > 2.5"] == "open"
    assert case_text(case) == "exponent stripes 1 [1, 1]; no exponent bumps: 90 % not reached"
    assert claim.judge({"a": {"exponent_stripes": linear}}).verdict == "undecided"


def test_one_condition_that_fails_decides_whatever_else_is_absent():
    square = {"exponent_bumps": Absent("why"), "exponent_stripes": Interval(2.0, 1.9, 2.1, 32)}
    assert CLAIMS["C11"].judge({"a": square}).verdict == "not supported"


def test_cases_about_one_condition_need_only_that_one():
    cases = {"in place": {"ood_accuracy": [1.0, 0.99, 1.0]}, "better": {"effect": [0.1, 0.2, 0.3]}}
    assert CLAIMS["C10"].judge(cases).verdict == "supported"
    assert [claim for claim, found in CLAIMS.items() if found.one_condition_per_case] == ["C10"]
    with pytest.raises(InvalidValue, match="case"):
        CLAIMS["C10"].judge({"a": {"slope": [1.0]}})


def test_a_seed_counts_for_all_scores_of_a_case_or_for_none():
    nan = float("nan")
    scores = {"id_over_blank": [0.01] * 4, "id_accuracy": [1.0, nan, 1.0, 1.0], "ood_over_blank": [0.9, 0.0, 1.1, 1.0]}
    judgement = C1.judge({"a": scores})
    (case,) = judgement.cases
    assert {interval.seeds for interval in case.evidence.values()} == {3}
    assert case.evidence["ood_over_blank"].mean == pytest.approx(1.0)
    assert judgement.seeds == 3
    with pytest.raises(InvalidValue, match="same seeds"):
        C1.judge({"a": {**scores, "id_accuracy": [1.0]}})


EFFECT = Claim("C0", "text", premises=(), conditions=(Condition("effect", "above", 0.0),))


@pytest.mark.parametrize(
    ("cases", "weakest"),
    [
        ({"far": (5, 4, 6), "near": (0.5, 0.1, 0.9), "small but sure": (0.01, 0.009, 0.011)}, "near"),
        ({"fails": (-1, -1.9, -0.1), "fails clearly": (-1, -1.1, -0.9), "holds": (5, 4, 6)}, "fails clearly"),
        ({"open": (1, -1, 3), "on the wrong side": (-1, -3, 1), "unknown": (1, -np.inf, np.inf)}, "on the wrong side"),
        ({"certain": (1, 1, 1), "less so": (1, 0.5, 1.5)}, "less so"),
    ],
)
def test_the_weakest_case_is_the_one_least_on_the_claimed_side(cases, weakest):
    judgement = EFFECT.judge({name: {"effect": Interval(*numbers, 32)} for name, numbers in cases.items()})
    assert headline(judgement).startswith(f"{weakest}: ")


def test_open_ends_of_intervals_are_shown_and_written_as_json():
    judgement = EFFECT.judge({"a": {"effect": Interval(1.0, -np.inf, np.inf, 32)}})
    assert "1 [-∞, ∞]" in headline(judgement)
    evidence = json.loads(json.dumps(judgement.record(), allow_nan=False))["cases"][0]["evidence"]["effect"]
    assert (evidence["low"], evidence["mean"]) == (None, 1.0)


# -- limits of resampled thresholds ----------------------------------------------------------------------------------

SIZES, DRAWS, NONE = np.array([20, 28, 36]), np.linspace(0, 1, 1001), np.zeros(3)


@pytest.mark.parametrize(
    ("unreached", "undercut", "open_ends"),
    [
        (NONE, NONE, (False, False)),
        ((0.0, 0.0, 0.025), NONE, (False, False)),  # the tail itself is left out by the interval
        ((0.0, 0.0, 0.026), NONE, (False, True)),
        ((0.026, 0.0, 0.0), NONE, (True, False)),
        ((0.02, 0.02, 0.02), NONE, (False, True)),  # 28 lies above the middle of the logarithms
        (NONE, (0.026, 0.0, 0.0), (False, True)),
        (NONE, (0.0, 0.0, 0.026), (True, False)),
    ],
)
def test_resamples_without_a_threshold_open_the_exponents_limits(unreached, undercut, open_ends):
    low, high = exponent_limits(DRAWS, SIZES, np.array(unreached), np.array(undercut), 0.95)
    assert (low == -np.inf, high == np.inf) == open_ends
    assert open_ends[0] or low == pytest.approx(0.025)
    assert open_ends[1] or high == pytest.approx(0.975)


def test_no_exponent_has_no_limits():
    assert np.isnan(exponent_limits(DRAWS * np.nan, SIZES, np.ones(3), NONE, 0.95)).all()


def test_resamples_without_a_threshold_open_its_limits():
    assert threshold_limits(DRAWS, 0.0, 0.0, 0.95) == pytest.approx((0.025, 0.975))
    assert threshold_limits(DRAWS, 0.03, 0.0, 0.95) == (pytest.approx(0.025), np.inf)
    assert threshold_limits(DRAWS, 0.0, 0.03, 0.95) == (0.0, pytest.approx(0.975))


@pytest.mark.parametrize(("side", "outcome"), [("below", "holds"), ("above", "fails")])
def test_sides(side, outcome):
    assert Condition("s", side, 0.5).outcome(bootstrap([0.1, 0.2, 0.3])) == outcome


def test_criterion_is_written_from_the_conditions():
    assert C1.criterion == "id_over_blank < 0.1, id_accuracy > 0.95; while ood_over_blank > 0.5"
