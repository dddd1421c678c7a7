"""Verdicts on stripes: planted networks, and planted numbers."""

import pytest
import torch
import xarray

from recombine.papers.forced_rendering.scores import fit_of_outputs
from recombine.papers.forced_rendering.stripes import (
    FULL,
    PERCENT,
    PERCENT_ALONE,
    WITH,
    band_scores,
    conjunctions,
)
from recombine.papers.forced_rendering.stripes_claims import CLAIMS
from tests.papers.forced_rendering.planted_remedies import (
    ALL,
    NUMBERS,
    PERCENTS,
    SEEDS,
    TASK,
    as_claimed,
    exact_superposer,
    ideal_composer,
    not_learnt,
    outcomes,
    planted_stripes,
    random_features,
    stripes_data,
    sum_of_stripes,
    truth,
    verdict_of,
)

C10, C12, C22, C23 = CLAIMS
YES, NO, NEVER = "yes", "no", "not decidable"


@pytest.mark.parametrize(
    ("network", "verdict", "expected"),
    [
        (as_claimed, YES, [YES] * 4),
        (ideal_composer, "partly", [YES, NO, YES, YES]),  # not additive
        (exact_superposer, "partly", [YES, YES, NO, YES]),  # never a proper bump
        (random_features, "partly", [YES, YES, NO, YES]),  # nearly linear, so additive to the end
        (not_learnt, NEVER, [NEVER] * 4),
    ],
)
def test_planted_networks_get_the_right_verdict_on_composing(network, verdict, expected):
    found = verdict_of(C10, {"stripes": planted_stripes(network)})
    assert (found.described, outcomes(found.tests)) == (verdict, expected)


def test_no_row_on_composing_is_shown_by_the_criterion_of_another():
    """The stripes' share of outputs was shown as the gain in accuracy, other numbers of bumps as stripes alone."""
    found = verdict_of(C10, {"stripes": planted_stripes(as_claimed)})
    measured = {test.case: test.measured for test in found.alternatives if test.statistic == found.tests[3].statistic}
    (share,) = [own for case, own in measured.items() if case.startswith("share of outputs")]
    assert "accuracy" not in share
    assert [own.endswith("all bumps alone") for case, own in measured.items() if "against all" in case] == [True]
    assert not [own for own in found.alternatives if "stripes alone" in own.measured or "many bumps" in own.measured]


def test_the_stripes_share_falls_and_the_bumps_rises_from_sums_to_bumps():
    task = TASK.replace(isolated=True, training="pick:0")
    right, stripes = truth(task)
    outputs = torch.stack([(1 - w) * sum_of_stripes(task) + w * right for w in (0.0, 0.5, 0.9, 1.0)])
    found = conjunctions(task, outputs, stripes.expand(4, -1, -1, -1))
    assert (found["stripe_share"].diff() < 0).all()
    assert (found["bump_share"].diff() > 0).all()
    torch.testing.assert_close(found["stripe_share"] + found["bump_share"], torch.ones(4, dtype=torch.float64))
    assert found["additive"][0].item() == pytest.approx(1)
    assert found["additive_unweighted"][0].item() == pytest.approx(1)


def test_unweighted_sums_are_of_the_networks_own_stripes():
    task = TASK.replace(isolated=True, training="pick:0")
    outputs, stripes = sum_of_stripes(task)[None], truth(task)[1][None]
    found = conjunctions(task, outputs, 0.5 * stripes)
    assert found["additive_unweighted"].item() == pytest.approx(0.75)  # half of it is missing: ¼ of the energy
    assert found["additive"].item() == pytest.approx(1)  # training stripes, whatever the network draws for them


def test_a_network_is_judged_by_what_it_was_trained_on():
    task = TASK.replace(isolated=True, training="pick:5")
    right, stripes = truth(task)
    bumps = task.training_values(3)[-5:]
    seen = (task.grid.points[:, None] == bumps[None]).all(dim=-1).any(dim=-1)[:, None, None]
    only_seen = torch.where(seen, right, 5 * right.flip(1))[None]
    found = fit_of_outputs(task, [3], only_seen, stripes[None])
    assert found["training_over_blank"].item() == pytest.approx(0)
    assert found["training_accuracy"].item() == 1
    assert fit_of_outputs(task, [3], only_seen, 0 * stripes[None])["training_over_blank"].item() == pytest.approx(1)
    assert fit_of_outputs(task, [3], 0 * only_seen, stripes[None])["training_over_blank"].item() == pytest.approx(1)
    alone = TASK.replace(isolated=True, training="pick:0")
    without = fit_of_outputs(alone, [3], only_seen, stripes[None])
    assert without["training_over_blank"].item() == pytest.approx(0)
    assert without["training_accuracy"].isnan().all()


# -- C12 ---------------------------------------------------------------------------------------------------------------


def volumes(of_bumps_alone, of_stripes, rough=0.1):
    """Excess of spread at the output (at hidden stages 0 everywhere) and roughness."""
    arms = {(WITH, n): of_stripes for n in NUMBERS} | {(FULL, ALL): of_bumps_alone}
    return stripes_data(
        spread_excess={arm: [9.0, 0.0, 0.0, value] for arm, value in arms.items()},
        roughness_held={arm: [9.0, 1.0, 1.0, 1.0 + rough * (arm[0] == FULL)] for arm in arms},
    )


@pytest.mark.parametrize(
    ("alone", "striped", "outcome"),
    [(0.5, 0.1, YES), (0.2, 0.15, NO), (0.1, 0.5, "reversed"), (0.2, 0.1, "open")],
)
def test_smoothness_across_the_hold_out(alone, striped, outcome):
    found = verdict_of(C12, {"stripes": volumes(alone, striped)})
    assert outcomes(found.tests) == [outcome]


def test_controls_are_read_where_they_are():
    data = volumes(0.5, 0.1)
    assert verdict_of(C12, {"stripes": data}).controls == []
    arms, scales = ["failing", "whole grid", "untrained"], [1.0, 0.1, 1.0]
    scale = xarray.DataArray(scales, coords={"arm": arms}, dims="arm")
    own = data.sel(family=FULL, bumps=ALL, drop=True)
    controls = (own * xarray.ones_like(scale)).assign(spread_excess=own["spread_excess"] * scale)
    for name in ("id_over_blank", "training_over_blank"):
        controls[name].loc[{"arm": "untrained"}] = 1.0
    found = verdict_of(C12, {"stripes": data, "controls": controls})
    assert {test.case: test.outcome for test in found.controls} == {
        "failing less whole grid": YES,
        "failing less untrained": NO,
    }
    assert {test.learnt for test in found.controls} == {SEEDS}


# -- C22 ---------------------------------------------------------------------------------------------------------------


def first_stages(alone, striped):
    arms = {(WITH, n): striped for n in NUMBERS} | {(FULL, ALL): alone}
    return stripes_data(
        first_band=arms, first_orientation=arms, first_alignment=arms,
        stripe_index={arm: [1.0, value, 0.3] for arm, value in arms.items()},
    )  # fmt: skip


@pytest.mark.parametrize(("striped", "outcome"), [(0.8, YES), (0.52, NO), (0.2, "reversed")])
def test_bands_of_the_first_stage(striped, outcome):
    found = verdict_of(C22, {"stripes": first_stages(0.5, striped)})
    assert outcomes(found.tests) == [outcome]
    assert {test.outcome for test in found.alternatives} == {outcome}
    assert {"orientation", "alignment", "all units alike"} < {test.case for test in found.alternatives}


def test_bands_that_lie_at_their_units_are_aligned():
    """Four units of one channel, 2 × 2, over a grid of 8 × 8: left, right / left, right, first row up."""
    band = torch.zeros(4, 8, 8)
    band[0, :, 1] = band[2, :, 2] = 1.0  # vertical bands at columns of the left half
    band[1, 2, :] = 1.0  # a horizontal one in the upper half
    band[3, 1, :] = 1.0  # the lower right unit's band lies too far up
    found = band_scores(band[None], 1)
    assert found["first_band"].item() == pytest.approx(1)
    assert found["first_orientation"].item() == pytest.approx(1)
    assert found["first_alignment"].item() == pytest.approx(0.75)
    crossing = (band[0] + band[0].T)[None, None].expand(1, 4, 8, 8)
    crossed = band_scores(crossing, 1)
    assert crossed["first_orientation"].item() == pytest.approx(0, abs=1e-9)
    assert crossed["first_band"].item() == pytest.approx(0.5)
    silent = torch.cat([band, torch.zeros(4, 8, 8)])[None]
    assert band_scores(silent, 2)["first_alignment"].item() == pytest.approx(0.75)
    assert band_scores(0 * silent, 2)["first_band"].isnan().all()


# -- C23 ---------------------------------------------------------------------------------------------------------------


def percents(gain, error_ratio=1.0):
    accuracy = {(PERCENT, p): 0.95 for p in PERCENTS} | {(PERCENT_ALONE, p): 0.95 - gain(p) for p in PERCENTS}
    errors = {(PERCENT, p): 1.0 for p in PERCENTS} | {(PERCENT_ALONE, p): error_ratio for p in PERCENTS}
    return stripes_data(ood_accuracy=accuracy, ood_mse=errors)


def test_stripes_help_at_a_few_per_cent():
    found = verdict_of(C23, {"stripes": percents(lambda p: 0.6 if p <= 5 else 0.1, 0.1)})
    assert [(test.case, test.outcome) for test in found.tests] == [("1 %", YES), ("5 %", YES)]
    cases = {test.case: test for test in found.alternatives}
    assert cases["20 %"].outcome == cases["50 %"].outcome == NO
    assert cases["1 %, error without over with stripes, decades"].outcome == "reversed"
    assert cases["1 %, error without over with stripes, decades"].interval.value == pytest.approx(-1, abs=0.01)
