"""Verdicts on the growth of data with N, from planted thresholds and networks."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.threshold import CLAIMS, CURVED
from recombine.papers.forced_rendering.threshold_design import FAMILIES, LITERAL, PRIMARY, spelt
from recombine.reproduction.claims import judge
from tests.judged import differing

SIZES, NETWORKS, RESAMPLES = [20, 28, 36], 30, 2000
SMALL = "whole/integer/epochs/small"
KEPT = "kept/real/steps/small"
PROTOCOLS = [PRIMARY, LITERAL, SMALL, KEPT]


def planted(bumps=3.0, stripes=1.0, reached=1.0, learnt=1.0, spread=0.1, local=3.0, networks=NETWORKS):
    """Exponents by protocol, and accuracies in the box with the largest set."""
    generator, shape = np.random.default_rng(0), (len(PROTOCOLS), len(FAMILIES), len(SIZES), networks)
    cells, values = ("protocol", "family"), np.full(shape[:2], np.nan)
    values[[0, 2]], values[:, 1] = [bumps, stripes], stripes
    noise = spread * generator.standard_normal((*shape[:2], RESAMPLES))
    held = np.where(np.arange(networks) < round(reached * networks), 0.95, 0.4)
    counted = np.where(np.arange(networks) < round(learnt * networks), 1.0, 0.0)
    every = ("protocol", "family", "size", "network")
    return xarray.Dataset(
        {
            "exponent": (cells, values),
            "exponent_draws": ((*cells, "resample"), values[..., None] + noise),
            "local_exponent": (cells, values - bumps + local),
            "local_exponent_draws": ((*cells, "resample"), values[..., None] - bumps + local + noise),
            "accuracy": (every, np.full(shape, 0.5)),
            "held_out_accuracy": (every, np.broadcast_to(held, shape).copy()),
            "learnt": (every, np.broadcast_to(counted, shape).copy()),
            "examples": (every, np.full(shape, 100.0)),
            "largest": (every[:3], np.full(shape[:3], 100.0)),
            "networks": (every[:3], np.full(shape[:3], round(learnt * networks))),
        },
        {"protocol": PROTOCOLS, "family": list(FAMILIES), "size": SIZES},
    )


def judged(**planted_numbers):
    (judgement,) = judge(CLAIMS, {"threshold": planted(**planted_numbers)})
    return judgement


@pytest.mark.parametrize(
    ("numbers", "outcomes", "verdict"),
    [
        ({}, ["yes", "yes"], "yes"),
        ({"bumps": 1.5}, ["no", "yes"], "partly"),
        ({"bumps": 1.5, "reached": 0.0}, ["no"] * 2, "no"),
        ({"bumps": 1.5, "reached": 0.0, "stripes": 2.0}, ["no"] * 2, "no"),  # not asked
        ({"bumps": 2.5, "reached": 0.5}, ["open"] * 2, "open"),
        ({"learnt": 0.7}, ["not decidable"] * 2, "not decidable"),
    ],
)
def test_verdicts(numbers, outcomes, verdict):
    judgement = judged(**numbers)
    assert [test.outcome for test in judgement.tests] == outcomes
    assert judgement.described == verdict


def test_without_an_exponent_nothing_is_decided():
    data = planted()
    data["exponent"][0, 0] = np.nan
    (judgement,) = judge(CLAIMS, {"threshold": data})
    assert judgement.tests[0].outcome == "open"
    assert (judgement.tests[0].learnt, judgement.tests[0].trained) == (90, 90)


def test_a_resample_without_a_threshold_in_forty_opens_the_end():
    data = planted()
    data["exponent_draws"][0, 0, :60] = -np.inf
    (judgement,) = judge(CLAIMS, {"threshold": data})
    assert judgement.tests[0].interval.low == -np.inf
    assert judgement.tests[0].outcome == "open"


def test_alternatives_are_protocols_sizes_and_curved_growth():
    judgement = judged(bumps=3.0, local=1.5)
    names = [(test.statistic.split(",")[0], test.case) for test in judgement.alternatives]
    assert names == [
        ("exponent of N", CURVED),
        ("exponent of N", spelt(SMALL)),
        *[("share of networks that reach 90 % in the held-out box with the most bumps outside it", case)
          for case in ("N = 20", "N = 28", "N = 36", spelt(KEPT))],
    ]  # fmt: skip
    assert [test.case for test in differing(judgement)] == [CURVED]


def test_only_networks_with_the_largest_set_tell_whether_it_is_reached():
    data = planted(reached=1.0)
    data["examples"][1, 0, :, 10:] = 50.0
    data["held_out_accuracy"][1, 0, :, 10:] = 0.0
    (judgement,) = judge(CLAIMS, {"threshold": data})
    reached = judgement.tests[1]
    assert (reached.case, reached.interval.value, reached.trained) == (spelt(LITERAL), 1.0, 30)
