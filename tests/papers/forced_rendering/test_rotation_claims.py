"""Verdicts on what fills a gap in rotation, from planted numbers."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.rotation import CLAIMS
from recombine.reproduction.claims import judge
from tests.judged import differing

SEEDS = 64


def planted(weights=0.5, error=0.6, id_error=0.01, many=0.5, rougher=1.0, seeds=SEEDS, noise=0.02):
    """Networks with weights of the edges less the truth's, errors at mid-gap, and log10 roughness inside the gap."""
    generator = np.random.default_rng(0)

    def around(value):
        return ("seed", value + noise * generator.standard_normal(seeds))

    few = np.where(np.arange(seeds) < 8, 0.0, np.nan)
    kept = np.ones((seeds, 4))
    return xarray.Dataset(
        {
            "id_over_blank": ("seed", np.full(seeds, id_error)),
            "ood_over_blank": around(0.2),
            "edges_less_truth": around(weights),
            "edges_less_truth_inner": around(weights),
            "blend_less_truth": around(weights),
            "mid_gap_error": around(error),
            "many_id_over_blank": ("seed", few + id_error),
            "many_edges_less_truth": ("seed", few + many),
            "many_mid_gap_error": ("seed", few + error),
            "roughness_held": (("seed", "stage"), rougher * kept * [1000.0, 1, 1, 1]),
            "roughness_kept": (("seed", "stage"), kept),
        },
        {"stage": ["input", "layer0", "layer1", "output"]},
    )


def controls(rougher=2.0, seeds=56):
    """The bump task's failing networks."""
    arm, stage = ("arm", "seed"), np.ones((1, seeds, 6))
    return xarray.Dataset(
        {
            "id_over_blank": (arm, np.full((1, seeds), 0.01)),
            "id_accuracy": (arm, np.ones((1, seeds))),
            "roughness_held": ((*arm, "stage"), rougher * stage),
            "roughness_kept": ((*arm, "stage"), stage),
        },
        {"arm": ["failing"]},
    )


def judged(**numbers):
    (judgement,) = judge(CLAIMS, {"rotation": planted(**numbers)})
    return judgement


@pytest.mark.parametrize(
    ("numbers", "outcomes", "verdict"),
    [
        ({}, ["yes", "yes"], "yes"),
        ({"weights": 0.05}, ["no", "yes"], "partly"),
        ({"weights": -0.5, "error": 0.1}, ["reversed", "no"], "no"),
        ({"weights": 0.1, "error": 0.3}, ["open", "open"], "open"),
        ({"id_error": 0.5}, ["not decidable", "not decidable"], "not decidable"),
        ({"seeds": 3}, ["as claimed", "as claimed"], "direction only"),
    ],
)
def test_verdicts(numbers, outcomes, verdict):
    judgement = judged(**numbers)
    assert [test.outcome for test in judgement.tests] == outcomes
    assert judgement.described == verdict


def test_alternatives_are_named_and_judged():
    judgement = judged(many=-1.0)
    assert [test.case for test in judgement.alternatives] == [
        "inner angles", "whole gap, on truth and linear blend", "many digits", "whole gap", "many digits",
    ]  # fmt: skip
    assert [test.case for test in differing(judgement)] == ["many digits", "whole gap"]
    assert judgement.alternatives[2].outcome == "reversed"
    assert judgement.alternatives[2].trained == 8


@pytest.mark.parametrize(("ours", "theirs", "outcome"), [(1.0, 2.0, "yes"), (2.0, 2.0, "no"), (3.0, 1.0, "reversed")])
def test_stages_are_compared_with_the_bump_tasks(ours, theirs, outcome):
    """The input, a thousand times rougher in the gap, is left out."""
    (judgement,) = judge(CLAIMS, {"rotation": planted(rougher=ours), "controls": controls(theirs)})
    stages = next(test for test in judgement.alternatives if test.case.startswith("roughness of stages"))
    assert stages.interval.value == pytest.approx(np.log10(theirs / ours))
    assert (stages.outcome, stages.trained) == (outcome, 56)


def test_every_width_of_the_gap_stands_beside_the_papers():
    """Wide gaps are blended, narrow ones are not; half of the networks with ten digits did not learn."""
    result = planted()
    widths, kinds = np.array([20, 40, 90]), ["one digit", "many digits"]
    weights = np.broadcast_to(np.where(widths > 30, 0.5, -0.5)[None, :, None], (2, 3, SEEDS))
    errors = np.full(weights.shape, 0.01)
    errors[1, :, ::2] = 0.5
    noise = 0.01 * np.random.default_rng(0).standard_normal(weights.shape)
    dims = ("digits", "width", "seed")
    added = {"gaps_edges_less_truth": (dims, weights + noise), "gaps_id_over_blank": (dims, errors)}
    (judgement,) = judge(CLAIMS, {"rotation": result.assign(added).assign_coords(digits=kinds, width=widths)})
    found = {test.case: test.outcome for test in judgement.alternatives if "gap of" in test.case}
    assert found == {
        "one digit, gap of 20°": "reversed", "one digit, gap of 90°": "yes",
        "many digits, gap of 20°": "not decidable", "many digits, gap of 90°": "not decidable",
    }  # fmt: skip
