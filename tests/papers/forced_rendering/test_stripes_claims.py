"""Verdicts on stripes: planted networks, and planted numbers."""

import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering.penalties_claims import log_roughness
from recombine.papers.forced_rendering.scores import fit_of_outputs
from recombine.papers.forced_rendering.stripes import (
    FAMILIES,
    FULL,
    PERCENT,
    PERCENT_ALONE,
    UNTRAINED,
    WITH,
    band_scores,
    conjunctions,
)
from recombine.papers.forced_rendering.stripes_claims import CLAIMS
from tests.papers.forced_rendering.planted_remedies import (
    ALL,
    LEARNT,
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


def volumes(alone, striped, excess=0.4):
    """Roughness of held-out points: input, two hidden stages and output; the excess of spread at the output."""
    arms = {(WITH, n): [9.0, *striped] for n in NUMBERS} | {(FULL, ALL): [9.0, *alone]}
    same = dict.fromkeys(arms, [1.0] * 4)
    return stripes_data(
        roughness_held=arms, roughness_kept=same, roughness=same,
        spread_excess={arm: [9.0, 0.0, 0.0, excess * (arm[0] == FULL)] for arm in arms},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("alone", "striped", "outcome"),
    [
        ([1.0] * 3, [0.5] * 3, YES),
        ([1.0] * 3, [0.95] * 3, NO),
        ([0.5] * 3, [1.0] * 3, "reversed"),
        ([1.0] * 3, [10**-0.05] * 3, "open"),
        ([1.0] * 3, [3.0, 0.1, 0.1], YES),  # one stage does not dominate
    ],
)
def test_smoothness_across_the_hold_out(alone, striped, outcome):
    found = verdict_of(C12, {"stripes": volumes(alone, striped)})
    assert outcomes(found.tests) == [outcome]
    cases = {test.case: test for test in found.alternatives}
    assert cases["layer 0"].interval.value == pytest.approx(np.log10(alone[0] / striped[0]), abs=0.01)
    assert cases["output"].interval.value == pytest.approx(np.log10(alone[2] / striped[2]), abs=0.01)
    assert cases["kept points"].outcome == cases["whole grid"].outcome == NO
    assert cases["spread of log10 dv"].interval.value == pytest.approx(0.4, abs=0.01)


def test_penalties_and_stripes_are_judged_by_one_statistic():
    without, remedy = [1.0, 0.3, 0.2], [0.7, 0.5, 0.1]
    of_stripes = verdict_of(C12, {"stripes": volumes(without, remedy)}).tests[0].interval.value
    of_penalties = log_roughness(volumes(without, remedy).sel(family=FULL, bumps=ALL))
    of_penalties -= log_roughness(volumes(without, remedy).sel(family=WITH, bumps=50))
    assert of_stripes == pytest.approx(of_penalties.mean().item(), abs=1e-3)


def test_controls_are_read_where_they_are():
    data = volumes([1.0] * 3, [0.5] * 3)
    assert verdict_of(C12, {"stripes": data}).controls == []
    arms, scales = ["failing", "whole grid", "untrained"], [1.0, 0.1, 1.0]
    scale = xarray.DataArray(scales, coords={"arm": arms}, dims="arm")
    own = data.sel(family=FULL, bumps=ALL, drop=True)
    controls = (own * xarray.ones_like(scale)).assign(roughness_held=own["roughness_held"] * scale)
    for name in ("id_over_blank", "training_over_blank"):
        controls[name].loc[{"arm": "untrained"}] = 1.0
    found = verdict_of(C12, {"stripes": data, "controls": controls})
    assert {test.case: test.outcome for test in found.controls} == {
        "failing over whole grid": YES,
        "failing over untrained": NO,
    }
    assert {test.learnt for test in found.controls} == {SEEDS}


# -- C22 ---------------------------------------------------------------------------------------------------------------


def first_stages(untrained, alone, striped):
    arms = {(WITH, n): striped for n in NUMBERS} | {(FULL, ALL): alone, (UNTRAINED, 50): untrained}
    data = stripes_data(
        first_band=arms, first_orientation=arms, first_alignment=arms,
        stripe_index={arm: [1.0, value, 0.3] for arm, value in arms.items()},
    )  # fmt: skip
    data["trained"] = xarray.ones_like(data["id_over_blank"]).where(data["family"] != UNTRAINED, 0.0)
    for name in LEARNT:
        data[name].loc[{"family": UNTRAINED}] = np.nan
    return data


@pytest.mark.parametrize(
    ("untrained", "alone", "striped", "expected"),
    [
        (0.5, 0.5, 0.8, [YES, YES]),
        (0.5, 0.8, 0.8, [YES, NO]),  # described, not specific
        (0.5, 0.2, 0.52, [NO, YES]),
        (0.5, 0.5, 0.2, ["reversed", "reversed"]),
    ],
)
def test_bands_of_the_first_stage(untrained, alone, striped, expected):
    found = verdict_of(C22, {"stripes": first_stages(untrained, alone, striped)})
    assert outcomes(found.tests) == expected == [found.described, found.specific]
    assert {test.learnt for test in found.tests} == {SEEDS}
    for test, outcome in zip(found.tests, expected, strict=True):
        others = [own for own in found.alternatives if own.statistic == test.statistic]
        assert {own.outcome for own in others} == {outcome}
        assert {"orientation", "alignment", "all units alike"} < {own.case for own in others}


def test_older_data_lack_untrained_networks():
    data = first_stages(0.5, 0.5, 0.8)
    data = data.sel(family=[family for family in FAMILIES if family != UNTRAINED])
    assert outcomes(verdict_of(C22, {"stripes": data}).tests) == ["not measured", YES]


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
