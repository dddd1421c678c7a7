"""Verdicts on penalties, from planted numbers and planted embeddings."""

from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray
from benchmarks import penalty_weights

from recombine.metrics import finite_difference_metric, log_volume, roughness
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.penalties import (
    BOTH,
    BOXED,
    ENTROPY,
    NONE,
    OTHER_SIZE,
    RAW,
    UNALIGNED,
    UNIT,
    VARIANCE,
    embedding_scores,
    unaligned_roughness,
)
from recombine.papers.forced_rendering.penalties_claims import CENTRE_BOX, CLAIMS, PUBLISHED
from recombine.reproduction.measuring import Batch, stage_profile
from recombine.reproduction.study import initial_runs
from recombine.tasks import BumpTask
from tests.judged import differing
from tests.papers.forced_rendering.planted_remedies import SEEDS, noise, outcomes, verdict_of
from tests.small import small_spec

C7, C8, C9 = CLAIMS
YES, NO = "yes", "no"
ARMS, VECTORS = [NONE, ENTROPY, VARIANCE, BOTH], [UNIT, RAW, OTHER_SIZE, *BOXED]
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
        table = np.stack([rows] * len(VECTORS), axis=1)
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
    conventions = [RAW, "N = 28", "centre box", "centre box, bump code", "variance only"]
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


def rough(none, both, **values):
    """Roughness of held-out points at input, embedding, two convolutions and output; alike elsewhere."""
    held, same = [[9.0, *none], [1.0] * 5, [1.0] * 5, [9.0, *both]], [[1.0] * 5] * 4
    others = dict.fromkeys(("roughness", "roughness_kept", "spread_held"), same)
    return penalties(roughness_held=held, **others, **values)


@pytest.mark.parametrize(
    ("both", "outcome"),
    [
        ([0.5, 0.5, 0.5, 0.5], YES),
        ([0.95, 0.95, 0.95, 0.95], NO),
        ([2, 2, 2, 2], "reversed"),
        ([3, 0.1, 0.1, 0.1], YES),  # one stage does not dominate, as it would in a mean before the logarithm
        ([0.1, 3, 3, 3], "reversed"),
    ],
)
def test_smoother_over_hidden_stages_and_output(both, outcome):
    found = verdict_of(C8, rough([1, 1, 1, 1], both))
    assert [(test.case, test.outcome) for test in found.tests] == [(PUBLISHED, outcome), (CENTRE_BOX, outcome)]
    expected = -np.log10(both).mean()
    assert found.tests[0].interval.value == pytest.approx(expected, abs=0.01)
    cases = {test.case: test.interval.value for test in found.alternatives}
    assert cases["output alone"] == pytest.approx(-np.log10(both[-1]), abs=0.01)
    assert cases["stages after the embedding"] == pytest.approx(-np.log10(both[1:]).mean(), abs=0.01)
    for case in ("kept points", "whole grid", "spread of log10 dv"):
        assert cases[case] == pytest.approx(0, abs=0.01)


def test_the_embedding_as_trained_stands_beside_the_aligned_one():
    data = rough([1, 1, 1, 1], [0.5] * 4, **{UNALIGNED: [1.0, 1.0, 1.0, 50.0]})
    by_case = {test.case: test for test in verdict_of(C8, data).alternatives}
    for case in ("embedding not aligned in sign", f"{CENTRE_BOX}, embedding not aligned in sign"):
        assert by_case[case].interval.value == pytest.approx(-(np.log10(50) + 3 * np.log10(0.5)) / 4, abs=0.01)


def test_older_data_lack_the_centre_box():
    data = rough([1, 1, 1, 1], [0.5] * 4)
    data["penalties"] = data["penalties"].sel(vectors=[UNIT, RAW, OTHER_SIZE])
    found = verdict_of(C8, data)
    assert [test.outcome for test in found.tests] == [YES, "not measured"]
    assert not [test for test in found.alternatives if CENTRE_BOX in test.case]


class Flipped(Batch):
    """Networks whose embeddings have a random sign per value."""

    @cached_property
    def weights(self):
        chance = torch.Generator().manual_seed(3)
        return {
            name: own * (2 * torch.randint(0, 2, own.shape[:2], generator=chance) - 1)[..., None]
            if ".strengths." in name else own
            for name, own in super().weights.items()
        }  # fmt: skip


def test_random_signs_of_embeddings_change_nothing_in_their_measured_geometry():
    spec = small_spec("low_rank", task={"holdout": "corner", "encoding": "onehot", "size": 8})
    runs, cpu = initial_runs(spec.seeds(range(2))), torch.device("cpu")
    batch, flipped = Batch(runs, cpu), Flipped(runs, cpu)
    ours, theirs = stage_profile(batch), stage_profile(flipped)
    for name in ("log_volume", "roughness_held", "roughness", "spread", "spread_held", "factorization"):
        np.testing.assert_allclose(ours[name][:, 1], theirs[name][:, 1], rtol=1e-4, atol=1e-5, err_msg=name)
        assert np.abs(ours["log_volume"][:, 2:] - theirs["log_volume"][:, 2:]).max() > 0.01  # other functions
    assert not torch.allclose(unaligned_roughness(batch)[UNALIGNED], unaligned_roughness(flipped)[UNALIGNED])


def test_a_rough_embedding_is_told_from_a_smooth_one():
    """A band that moves evenly has no roughness; one whose steps alternate in size has."""
    task = BumpTask(size=12, sigma=1.5, encoding="onehot", holdout="corner", training="each")
    values = torch.arange(12.0)
    bands = {"smooth": values, "rough": values + 0.5 * (values % 3 == 0)}
    found = {}
    for name, places in bands.items():
        profile = torch.exp(-((torch.arange(12.0) - places[:, None]) ** 2) / 4.5)
        images = torch.stack([profile[:, None, :].expand(-1, 12, -1), profile[:, :, None].expand(-1, -1, 12)])
        x, y = task.grid.points.long().T
        planes = torch.stack([images[0, x], images[1, y]], dim=1).flatten(1).double()
        volume = log_volume(finite_difference_metric(planes, task.grid.shape))
        found[name] = roughness(volume, task.grid.shape, task.held_out).item()
    assert found["rough"] > 5 * found["smooth"]


def test_controls_of_smoothness():
    data = rough([1, 1, 1, 1], [1, 0.5, 0.5, 0.5])
    assert verdict_of(C8, data).controls == []
    unit = data["penalties"].sel(vectors=UNIT, drop=True)
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
        **{
            f"none over variance, {convention}": YES
            for convention in (RAW, "N = 28", "centre box", "centre box, bump code")
        },
    }
    assert large[0].interval.value == pytest.approx(1.0, abs=0.01)
    assert large[1].interval.value == pytest.approx(np.log10(0.95 / 0.2), abs=0.01)


# -- strengths on the main task ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "expected"), [(0.05, (0.1, 1.0)), (1.0, (1.0, 1.0)), (1e-9, (1.0, 1.0))])
def test_the_strongest_penalties_with_which_every_arm_learns_are_chosen(monkeypatch, limit, expected):
    """With strong penalties nothing is learnt; where no strength helps, they stay as published."""

    def train(specs, store, device):
        return [
            SimpleNamespace(
                key=spec.digest,
                scores={"id_over_blank": 0.01, "id_accuracy": float(all(own.weight < limit for own in spec.penalties))},
            )
            for spec in specs
        ]

    monkeypatch.setattr(penalty_weights, "train", train)
    table = penalty_weights.weights(PAPER.preset_named("quick"), "", "cpu")
    for _, own in table[table["chosen"]].groupby("code"):
        assert list(own["arm"]) == ARMS
        assert set(zip(own["strength"], own["length"], strict=True)) == {expected}
