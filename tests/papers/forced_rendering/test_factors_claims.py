"""Claims on many factors, on Datasets whose numbers are planted; and the study's arms."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.factors import (
    ALL_KEPT,
    ARMS,
    CLAIMS,
    CNN_ISOLATED,
    CNN_PAIRS,
    COORDINATE,
    LOW_RANK_PENALISED,
    STUDY,
    needed,
)
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, outcomes, verdict_of

C31, C32, C33, C34 = CLAIMS
COUNTS, DATA = (2, 3, 4, 5), (ALL_KEPT, 20)


def factors(**right):
    """Every arm has 30 % right but for those that are given, by arm."""
    coords = {"arm": list(ARMS), "count": list(COUNTS), "data": list(DATA), "seed": np.arange(SEEDS)}
    shape = tuple(len(values) for values in coords.values())
    variables = {name: (tuple(coords), np.full(shape, value)) for name, value in {**LEARNT, "trained": 1.0}.items()}
    for name in ("all_values_accuracy", "ood_accuracy"):
        table = np.broadcast_to(0.3 + noise(), shape).copy()
        for arm, value in right.items():
            table[ARMS.index(arm)] = np.asarray(value)[..., None, None] + noise(1)
        variables[name] = (tuple(coords), table)
    result = xarray.Dataset(variables, coords=coords)
    result["trained"].loc[{"arm": CNN_PAIRS, "count": 2}] = 0.0
    return {"factors": result}


def test_networks_that_fail_support_only_that():
    data = factors()
    assert verdict_of(C31, data).described == "yes"
    assert [verdict_of(claim, data).described for claim in (C32, C33, C34)] == ["no"] * 3


@pytest.mark.parametrize(
    ("claim", "arm"), [(C32, CNN_ISOLATED), (C33, LOW_RANK_PENALISED), (C34, COORDINATE)], ids=lambda own: str(own)[:20]
)
def test_a_remedy_that_works_for_every_number_of_factors_is_found(claim, arm):
    found = verdict_of(claim, factors(**{arm: 0.97}))
    assert found.described == "yes"
    assert outcomes(found.tests) == ["yes"] * 8


def test_one_that_works_for_few_factors_is_supported_there():
    found = verdict_of(C32, factors(**{CNN_ISOLATED: [0.99, 0.95, 0.7, 0.2]}))
    assert outcomes(found.tests) == [*["yes"] * 2, *["no"] * 2, *["yes"] * 3, "no"]
    assert found.described == "partly"


def test_pairs_are_isolated_from_three_factors_on():
    cases = [test.case for test in verdict_of(C32, factors()).alternatives]
    assert [case for case in cases if "pairs" in case] == [f"{count} factors, isolated pairs" for count in (3, 4, 5)]


def test_data_needed_are_the_smallest_with_most_outputs_right():
    result = factors(**{COORDINATE: 0.97})["factors"]
    assert needed(result, COORDINATE, 3) == "20"
    result["all_values_accuracy"].loc[{"data": 20}] = 0.5
    assert needed(result, COORDINATE, 3) == "all kept"
    assert needed(result, CNN_ISOLATED, 3) == "not reached"


def test_the_same_share_is_held_out_for_every_number_of_factors():
    arms = STUDY.arms(PAPER.presets["paper"])
    shares = {arm.spec.task.held_out.double().mean().item() for arm in arms}
    assert len({round(share, 12) for share in shares}) == 1
    assert {len(arm.spec.task.grid.factors) for arm in arms} == {2, 3, 4, 5}
    assert all(arm.labels[1] == len(arm.spec.task.grid.factors) for arm in arms)
