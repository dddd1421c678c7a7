"""A diagnosis of colour images with one to five factors: what is there, and what is left out, with the reason."""

import pytest

from recombine.diagnosis import diagnose
from recombine.specs import RunSpec
from tests.coloured import ALL, ColouredBumps
from tests.small import small_decoder


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_any_number_of_factors(count):
    levels, holdout = (3, "corner:2") if count > 1 else (5, "none")
    task = ColouredBumps(factors=ALL[:count], thin=True, levels=levels, holdout=holdout)
    module = RunSpec(task=task, decoder=small_decoder("low_rank")).module()
    targets = task.render(task.grid.points)
    result = diagnose(module, task.grid, encode=task.encoding, holdout=task.holdout, targets=targets)
    assert result["error"].dims == ALL[:count]
    expected = (module(task.codes(task.grid.points).float()) - targets).square().mean(dim=(1, 2, 3))
    assert result["error"].values.ravel().tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    assert result["volume"].dims == ("stage", *ALL[:count])
    several = {"factorization_mean", "cross_term", "additivity", "partial_factorization"}
    assert several <= set(result.data_vars) if count > 1 else not several & set(result.data_vars)
    assert ("schmidt" in result) == (count == 2)
    assert result.left_out.get("schmidt") == (None if count == 2 else "two factors")
    assert result.left_out.get("factorization") == (None if count > 1 else "two factors or more")
    assert ("superposition" in result) == (count > 1)
