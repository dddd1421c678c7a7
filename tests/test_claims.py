"""Verdicts from numbers: known answers."""

import numpy as np
import pytest

from recombine.claims import CLAIMS, Condition, bootstrap

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


@pytest.mark.parametrize(("side", "outcome"), [("below", "holds"), ("above", "fails")])
def test_sides(side, outcome):
    assert Condition("s", side, 0.5).outcome(bootstrap([0.1, 0.2, 0.3])) == outcome


def test_criterion_is_written_from_the_conditions():
    assert C1.criterion == "id_over_blank < 0.1, id_accuracy > 0.95; while ood_over_blank > 0.5"
