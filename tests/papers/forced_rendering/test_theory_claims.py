"""Claims on Appendix A, on Datasets whose numbers are planted; and ranks of planted outputs."""

import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering.theory import CLAIMS, FAMILIES, ranks_of_outputs
from recombine.tasks import BumpTask
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, outcomes, verdict_of

C27, C28, C29 = CLAIMS
ARMS = [arm for arms in FAMILIES.values() for arm in arms]
STAGES = 4
PER_STAGE = {
    "linear_factorization": 0.95, "nonlinear_factorization": 0.95, "factor_recovery": 0.99,
    "factor_recovery_held": 0.98,
}  # fmt: skip
PER_NETWORK = {"held_schmidt": 1.0, "whole_schmidt": 1.0}


def theory(failing=None, others=None):
    """Arms that are all alike, but for numbers of failing networks and of all others."""
    variables = {}
    for name, usual in {**PER_NETWORK, **PER_STAGE, **LEARNT}.items():
        table = np.full((len(ARMS), SEEDS), usual) + (0 if name in LEARNT else noise())
        for change, chosen in ((failing, True), (others, False)):
            rows = [(arm in {arms[0] for arms in FAMILIES.values()}) == chosen for arm in ARMS]
            if change and name in change:
                table[rows] = change[name] + noise(1)
        variables[name] = (("arm", "seed"), table)
        if name in PER_STAGE:
            variables[name] = (("arm", "seed", "stage"), np.repeat(table[..., None], STAGES, axis=-1))
    return {"theory": xarray.Dataset(variables, coords={"arm": ARMS, "seed": np.arange(SEEDS)})}


def outcomes_of(found, word):
    return [test.outcome for test in found.tests if test.word == word]


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        (C27, {"held_schmidt": 2.0}),
        (C28, {"linear_factorization": 0.1, "nonlinear_factorization": 0.2}),
        (C29, {"factor_recovery_held": 0.6}),
    ],
    ids=lambda own: getattr(own, "name", ""),
)
def test_planted_differences_are_found_in_every_architecture(claim, changed):
    found = verdict_of(claim, theory(changed))
    assert found.described == found.specific == "exploratory"
    assert outcomes_of(found, "described") == outcomes_of(found, "specific") == ["yes"] * 3
    assert outcomes(found.controls) == ["yes"] * 6
    assert outcomes_of(verdict_of(claim, theory()), "specific") == ["no"] * 3


def test_opposite_differences_are_reversed():
    found = verdict_of(C27, theory(others={"held_schmidt": 2.0}))
    assert (outcomes_of(found, "described"), outcomes_of(found, "specific")) == (["no"] * 3, ["reversed"] * 3)


def test_blocks_are_not_judged_where_no_map_fits_networks_that_saw_everything():
    data = theory({"linear_factorization": 0.1, "nonlinear_factorization": 0.1})
    for name in ("linear_factorization", "nonlinear_factorization"):
        data["theory"][name].loc[{"arm": "MLP, whole grid"}] = 0.8
    found = verdict_of(C28, data)
    assert outcomes_of(found, "described") == outcomes_of(found, "specific") == ["yes", "yes", "not decidable"]
    data["theory"]["nonlinear_factorization"].loc[{"arm": "MLP, whole grid"}] = 0.95  # a flow is enough
    assert outcomes_of(verdict_of(C28, data), "specific") == ["yes"] * 3


def test_a_prediction_that_is_worse_than_none_counts_as_none():
    """R² of −5 in failing networks and of −1 in untrained ones are no difference."""
    data = theory({"linear_factorization": -5.0, "nonlinear_factorization": -5.0})
    for name in ("linear_factorization", "nonlinear_factorization"):
        data["theory"][name].loc[{"arm": [arms[3] for arms in FAMILIES.values()]}] = -1.0
    against = [test for test in verdict_of(C28, data).controls if "untrained" in test.case]
    assert [test.interval.value for test in against] == pytest.approx([0.0] * 3)


def test_what_an_earlier_version_did_not_measure_is_left_out():
    found = verdict_of(C27, {"theory": theory()["theory"].drop_vars(["held_schmidt", "whole_schmidt"])})
    assert outcomes(found.tests) == ["not measured"] * 2
    assert not found.alternatives + found.controls


def test_mlps_are_compared_with_ones_that_saw_the_whole_grid():
    data = theory()
    data["theory"]["held_schmidt"].loc[{"arm": "MLP, stripes"}] = 9.0
    assert outcomes_of(verdict_of(C27, data), "specific") == ["no"] * 3
    data["theory"]["held_schmidt"].loc[{"arm": "MLP"}] = 9.0
    assert outcomes_of(verdict_of(C27, data), "specific") == ["no", "no", "yes"]


def test_schmidt_ranks_of_bumps_and_of_sums_of_two_images():
    """Bumps have a product kernel. For sums of orthonormal images, the kernel is (δ_xx′ + δ_yy′) / 2."""
    task = BumpTask(size=12)
    bumps = task.render(task.grid.points).double()
    x, y = task.grid.points.long().T
    sums = torch.zeros(len(x), 24, dtype=torch.float64)
    sums[torch.arange(len(x)), x] = sums[torch.arange(len(x)), 12 + y] = 1.0
    drawn = torch.nn.functional.pad(sums, (0, 120))
    found = ranks_of_outputs(torch.stack([bumps.flatten(1), drawn]), task.grid.shape, task.held_out)
    side = round(int(task.held_out.sum()) ** 0.5)
    for name, count in (("held_schmidt", side), ("whole_schmidt", 12)):
        same = torch.eye(count).flatten()  # a kernel over pairs (x, x′): rank 2, with δ and the constant kernel 1
        values = torch.linalg.svdvals((same[:, None] + same[None]).double() / 2).square()
        share = values[values > 1e-12] / values.sum()
        assert found[name].tolist() == pytest.approx([1.0, torch.exp(-(share * share.log()).sum()).item()])


def test_a_hold_out_that_is_no_box_has_no_rank():
    held_out = torch.zeros(16, dtype=torch.bool)
    held_out[[0, 5]] = True
    found = ranks_of_outputs(torch.rand(1, 16, 9), (4, 4), held_out)
    assert found["held_schmidt"].isnan().all()
    assert found["whole_schmidt"].isfinite().all()
