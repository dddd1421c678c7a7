"""Verdicts on the growth of data with N, from planted thresholds and networks."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.threshold import CLAIMS, CURVED, TOLERANCES
from recombine.papers.forced_rendering.threshold_design import FAMILIES, PRIMARY, spelt
from recombine.reproduction.claims import judge

SIZES, NETWORKS, RESAMPLES = [20, 28, 36], 30, 2000
SMALL, REAL, NONE = "whole/integer/epochs/small", "kept/real/steps/small", "kept/integer/steps/paper"
PROTOCOLS = [PRIMARY, SMALL, REAL, NONE]


def planted(bumps=3.0, small=None, stripes=1.0, learnt=1.0, spread=0.1, local=3.0, exact=None, networks=NETWORKS):
    """Exponents by protocol, of which the last has none, and by tolerance if that of exact positions is given."""
    generator, shape = np.random.default_rng(0), (len(PROTOCOLS), len(FAMILIES), len(SIZES), networks)
    cells, values = ("protocol", "family"), np.full(shape[:2], np.nan)
    values[:3], values[:, 1] = [bumps, stripes], stripes
    values[1, 0] = bumps if small is None else small
    noise = spread * generator.standard_normal((*shape[:2], RESAMPLES))
    counted = np.where(np.arange(networks) < round(learnt * networks), 1.0, 0.0)
    every = ("protocol", "family", "size", "network")
    result = xarray.Dataset(
        {
            "exponent": (cells, values),
            "exponent_draws": ((*cells, "resample"), values[..., None] + noise),
            "local_exponent": (cells, values - bumps + local),
            "local_exponent_draws": ((*cells, "resample"), values[..., None] - bumps + local + noise),
            "accuracy": (every, np.full(shape, 0.5)),
            "learnt": (every, np.broadcast_to(counted, shape).copy()),
            "examples": (every, np.full(shape, 100.0)),
            "networks": (every[:3], np.full(shape[:3], round(learnt * networks))),
        },
        {"protocol": PROTOCOLS, "family": list(FAMILIES), "size": SIZES},
        {"target": 0.9},
    )
    if exact is None:
        return result
    alone, names = result.sel(family=FAMILIES[0]), ("exponent", "exponent_draws")
    by_tolerance = {f"tolerance_{name}": alone[name].expand_dims(measure=list(TOLERANCES)).copy() for name in names}
    for own in by_tolerance.values():
        own.loc[{"measure": "exact"}] += exact - bumps
    return result.assign(by_tolerance)


def judged(**planted_numbers):
    (judgement,) = judge(CLAIMS, {"threshold": planted(**planted_numbers)})
    return judgement


@pytest.mark.parametrize(
    ("numbers", "outcomes", "verdict"),
    [
        ({}, ["yes", "yes"], "yes"),
        ({"bumps": 1.5}, ["no", "no"], "no"),
        ({"bumps": 1.5, "stripes": 2.0}, ["no", "no"], "no"),  # not asked
        ({"bumps": 1.5, "small": 3.0}, ["no", "yes"], "partly"),
        ({"bumps": 2.5}, ["open", "open"], "open"),
        ({"learnt": 0.7}, ["not decidable"] * 2, "not decidable"),
    ],
)
def test_verdicts(numbers, outcomes, verdict):
    judgement = judged(**numbers)
    assert [test.outcome for test in judgement.tests] == outcomes
    assert judgement.described == verdict


def test_every_tolerance_of_every_protocol_with_integer_centres_is_a_case():
    judgement = judged(bumps=1.5, exact=3.0)
    found = {test.case: test.outcome for test in judgement.tests}
    assert found == {
        f"{spelt(protocol)}, {name}": "yes" if name == "exact" else "no"
        for protocol in (PRIMARY, SMALL) for name in TOLERANCES
    }  # fmt: skip
    assert judgement.described == "partly"


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


def test_alternatives_are_curved_growth_and_real_centres():
    judgement = judged(bumps=3.0, local=1.5)
    assert [test.case for test in judgement.alternatives] == [CURVED, spelt(REAL)]
    assert [test.outcome for test in judgement.alternatives] == ["no", "yes"]


def test_another_target_is_not_judged():
    (judgement,) = judge(CLAIMS, {"threshold": planted().assign_attrs(target=0.5)})
    assert [test.outcome for test in judgement.tests] == ["not measured"]
