"""Kernel regimes: numbers without a verdict."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.regimes import CLAIMS, FAILING, PENALISED, STRIPES, STRIPES_BUMPS, UNPENALISED
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, verdict_of

(C18,) = CLAIMS
ARMS = [FAILING, STRIPES, STRIPES_BUMPS, UNPENALISED, PENALISED]


def regimes(**by_arm):
    """Numbers per arm."""
    variables = {name: (("arm", "seed"), np.add.outer(values, noise())) for name, values in by_arm.items()}
    constant = {name: (("arm", "seed"), np.full((len(ARMS), SEEDS), value)) for name, value in LEARNT.items()}
    return {"regimes": xarray.Dataset({**variables, **constant}, coords={"arm": ARMS, "seed": np.arange(SEEDS)})}


def test_regimes_have_numbers_and_no_verdict():
    found = verdict_of(
        C18,
        regimes(
            kernel_distance=[0.9, 0.5, 0.1, 0.8, 0.2],
            schmidt_rank=[3.0, 2.0, 1.0, 4.0, 1.0],
            single_factor=[0.1, 0.6, 0.2, 0.3, 0.2],
            single_factor_absolute=[0.2, 0.6, 0.2, 0.3, 0.2],
        ),
    )
    assert found.described == "exploratory"
    values = {(test.statistic.split(",")[0], test.case): test.interval.value for test in found.tests}
    assert values["distance of the kernel to the ideal's", STRIPES_BUMPS] == pytest.approx(0.8)
    assert values["effective number of Schmidt terms", PENALISED] == pytest.approx(3.0)
    assert values["PF_Coeff", PENALISED] == pytest.approx(-0.1)
    assert found.tests[-1].outcome == "reversed"
    assert "A.4" in found.text
    assert "A.5" in found.text
