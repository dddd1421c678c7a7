"""Claims on Appendix A, on Datasets whose numbers are planted."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.theory import CLAIMS, FAMILIES
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, outcomes, verdict_of

C27, C28, C29, C30 = CLAIMS
ARMS = [arm for arms in FAMILIES.values() for arm in arms]
STAGES = 4
PER_STAGE = {
    "linear_factorization": 0.4, "nonlinear_factorization": 0.4, "factor_recovery": 0.99, "factor_recovery_held": 0.98,
    "local_loss": 0.0, "additivity": 0.5, "hole_openness": 0.7, "hole_misplaced": 0.0,
}  # fmt: skip
PER_NETWORK = {
    "held_products": 1.0, "held_products_finer": 1.0, "held_products_brightest": 1.0, "kept_products": 1.0,
    "all_products": 1.0, "target_products": 1.0,
}  # fmt: skip


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


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        (C27, {"held_products": 3.0}),
        (C28, {"linear_factorization": 0.1}),
        (C29, {"factor_recovery_held": 0.6}),
        (C30, {"additivity": 0.3, "hole_openness": 0.4}),
    ],
    ids=lambda own: getattr(own, "name", ""),
)
def test_planted_differences_are_found_in_every_architecture(claim, changed):
    found = verdict_of(claim, theory(changed))
    assert found.described == "yes"
    assert outcomes(found.tests) == ["yes"] * (3 * len(claim.statements))
    assert outcomes(found.controls) == ["yes"] * (6 * len(claim.statements))
    assert verdict_of(claim, theory()).described == "no"
    opposite = verdict_of(claim, theory(others=changed))
    assert outcomes(opposite.tests) == ["reversed"] * (3 * len(claim.statements))


def test_a_prediction_that_is_worse_than_none_counts_as_none():
    """R² of −5 in failing networks and of −1 in composing ones are no difference."""
    found = verdict_of(C28, theory({"linear_factorization": -5.0}, {"linear_factorization": -1.0}))
    assert [test.interval.value for test in found.tests] == pytest.approx([0.0] * 3)


def test_the_output_does_not_count_among_the_hidden_stages():
    data = theory({"linear_factorization": 0.1})
    data["theory"]["linear_factorization"][..., -1] = 0.9
    assert outcomes(verdict_of(C28, data).tests) == ["yes"] * 3


def test_mlps_are_compared_with_ones_that_saw_the_whole_grid():
    data = theory()
    data["theory"]["held_products"].loc[{"arm": "MLP, stripes"}] = 9.0
    assert outcomes(verdict_of(C27, data).tests) == ["no"] * 3
    data["theory"]["held_products"].loc[{"arm": "MLP"}] = 9.0
    assert outcomes(verdict_of(C27, data).tests) == ["no", "no", "yes"]
