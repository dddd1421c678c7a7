"""Verdicts on penalties, from planted numbers and planted embeddings."""

import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering.penalties import (
    BOTH,
    CLAIMS,
    ENTROPY,
    NONE,
    OTHER_SIZE,
    RAW,
    UNIT,
    VARIANCE,
    embedding_scores,
)
from tests.judged import differing
from tests.papers.forced_rendering.planted_remedies import SEEDS, noise, outcomes, verdict_of

C7, C8, C9 = CLAIMS
YES, NO = "yes", "no"
ARMS, VECTORS = [NONE, ENTROPY, VARIANCE, BOTH], [UNIT, RAW, OTHER_SIZE]
AS_CLAIMED = {
    "id_mse": [1e-5, 3e-5, 1e-4, 5e-5],
    "ood_mse": [1e-1, 7e-2, 1e-2, 2e-3],
    "ood_accuracy": [0.05, 0.2, 0.8, 0.99],
    "id_accuracy": [1.0, 1.0, 1.0, 1.0],
}


def penalties(**values):
    """Numbers per arm, alike in all conventions (raw ones have the two arms with the variance penalty)."""
    variables = {}
    for name, own in {**AS_CLAIMED, "id_over_blank": [0.01] * 4, **values}.items():
        stages = np.ndim(own) == 2
        scale = 1 + np.stack([noise(k) for k in range(4)])
        rows = np.asarray(own)[:, None] * (scale[..., None] if stages else scale)
        table = np.stack([rows] * 3, axis=1)
        table[:2, 1] = np.nan
        variables[name] = (("arm", "vectors", "seed", *(["stage"] if stages else [])), table)
    coords = {"arm": ARMS, "vectors": VECTORS, "seed": np.arange(SEEDS)}
    return {"penalties": xarray.Dataset(variables, coords=coords, attrs={"other_size": 28})}


# -- C7 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "aligned", "expected"),
    [(1.0, 0.9, [YES, YES]), (6.0, 0.9, [NO, YES]), (1.0, 0.15, [YES, NO]), (1.0, -0.5, [YES, "reversed"])],
)
def test_low_rank_and_bands_at_the_coordinate(rank, aligned, expected):
    shares = [0.1, 0.1, aligned, aligned]
    found = verdict_of(
        C7, penalties(rank=[8.0, 2.0, rank, rank], aligned=shares, aligned_any=shares, aligned_wide=[0.5] * 4)
    )
    assert outcomes(found.tests) == expected
    conventions = [RAW, "N = 28", "variance only"]
    assert [test.case for test in found.alternatives] == [*conventions * 2, "bands of any strength", "within 3 px"]
    assert found.alternatives[-1].outcome == NO
    assert {test.case for test in differing(found)} == ({"within 3 px"} if expected[1] != NO else set())


def test_embeddings_with_bands_at_their_values_are_aligned():
    values = torch.arange(6)
    rows = torch.zeros(6, 6, 6)
    rows[values, values, :] = 1.0
    banded = torch.stack([rows.mT, rows])[None]  # x is a column, y a row
    found = embedding_scores(
        torch.cat([banded, banded.flip(1), torch.cat([banded[:, :1], rows.flip(0)[None, None]], 1)])
    )
    assert found["aligned"].tolist() == [1.0, 0.0, (4 + 2) / 8]  # inside the border; mirrored, the middle is near
    assert found["aligned_wide"].tolist() == [1.0, 0.0, 1.0]
    assert found["rank"].tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert found["band"].tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_an_image_with_a_brightest_row_but_no_band_is_not_aligned():
    dots = torch.zeros(1, 2, 6, 6, 6)
    values = torch.arange(6)
    dots[0, :, values, values, values] = 1.0
    dots[0, 0, values, values, values] += 1e-3 * torch.ones(6)
    slanted = dots + 1e-3 * dots.sum(dim=-2, keepdim=True) * torch.tensor([1.0, 0.0])[None, :, None, None, None]
    found = embedding_scores(slanted)
    assert found["aligned_any"].item() >= 0.5
    assert found["aligned"].item() == 0


# -- C8 ----------------------------------------------------------------------------------------------------------------


def rough(none, both):
    """Roughness at input, embedding, two convolutions, output; with the same spread everywhere."""
    by_arm = [[9.0, *none], [1.0] * 5, [1.0] * 5, [9.0, *both]]
    return penalties(roughness=by_arm, spread=[[1.0] * 5] * 4)


@pytest.mark.parametrize(
    ("both", "outcome"),
    [([1, 0.5, 0.5, 0.5], YES), ([1, 0.95, 0.95, 0.95], NO), ([1, 2, 2, 2], "reversed"), ([0.01, 1, 1, 1], NO)],
)
def test_smoother_over_convolutions_and_output(both, outcome):
    found = verdict_of(C8, rough([1, 1, 1, 1], both))
    assert outcomes(found.tests) == [outcome]


def test_controls_of_smoothness():
    data = rough([1, 1, 1, 1], [1, 0.5, 0.5, 0.5])
    assert verdict_of(C8, data).controls == []
    unit = data["penalties"].sel(vectors=UNIT)
    arms = {"low-rank, no penalty": NONE, "low-rank, whole grid": BOTH, "low-rank, untrained": NONE}
    controls = unit.sel(arm=list(arms.values())).assign_coords(arm=list(arms))
    found = verdict_of(C8, {**data, "controls": controls})
    assert [(test.case, test.outcome) for test in found.controls] == [
        ("no penalty over whole grid", YES),
        ("no penalty over untrained", NO),
    ]


# -- C9 ----------------------------------------------------------------------------------------------------------------


def test_the_ablation_as_the_paper_has_it():
    found = verdict_of(C9, penalties())
    assert found.described == YES
    assert len(found.tests) == 9
    assert {test.case for test in found.tests} == {"", "both penalties"}


@pytest.mark.parametrize(
    ("changes", "statistic", "outcome"),
    [
        ({"ood_mse": [1e-1, 1e-2, 1e-2, 2e-3]}, "marginal gain", NO),  # a whole decade
        ({"ood_mse": [1e-1, 1.5e-1, 1e-2, 2e-3]}, "marginal gain", NO),  # worse
        ({"ood_mse": [1e-1, 7e-2, 5e-2, 2e-3]}, "large gain", NO),
        ({"ood_mse": [1e-1, 7e-2, 1e-3, 2e-3]}, "both are best: held-out error, variance", "reversed"),
        ({"ood_mse": [1e-1, 7e-2, 1e-2, 9e-3]}, "both are best: held-out error, variance", NO),
        ({"id_mse": [1e-4, 3e-5, 1e-4, 5e-5]}, "training error, entropy over none", "reversed"),
        ({"ood_accuracy": [0.05, 0.2, 0.8, 0.7]}, "held-out accuracy with both", NO),
    ],
)
def test_each_statement_of_the_ablation_can_fail(changes, statistic, outcome):
    found = verdict_of(C9, penalties(**changes))
    (test,) = [test for test in found.tests if test.statistic.startswith(statistic)]
    assert test.outcome == outcome
    assert found.described == "partly"


def test_conventions_medians_and_misses_stand_beside_the_ablation():
    found = verdict_of(C9, penalties())
    large = [test for test in found.alternatives if test.statistic.startswith("large gain")]
    assert {test.case: test.outcome for test in large} == {
        "none over variance, medians": YES,
        "none over variance, bumps out of place": YES,
        f"none over variance, {RAW}": YES,
        "none over variance, N = 28": YES,
    }
    assert large[0].interval.value == pytest.approx(1.0, abs=0.01)
    assert large[1].interval.value == pytest.approx(np.log10(0.95 / 0.2), abs=0.01)
