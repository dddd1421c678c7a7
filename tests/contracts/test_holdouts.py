"""What every hold-out promises."""

import pytest
import torch

from recombine.factors import Factor, FactorGrid
from recombine.holdouts import HoldoutSummary
from recombine.tasks import BumpTask
from tests.contracts.conftest import EMPTY


def grid_of(*counts):
    return FactorGrid(tuple(Factor(f"f{k}", 0, count - 1, count) for k, count in enumerate(counts)))


GRIDS = {"paper": grid_of(28, 28), "small": grid_of(9, 14), "three": grid_of(6, 7, 4)}


@pytest.fixture(params=GRIDS.values(), ids=list(GRIDS))
def grid(request):
    return request.param


def test_mask_covers_the_grid_and_keeps_every_single_value(holdout, grid):
    mask = holdout.mask(grid)
    assert mask.shape == grid.shape
    assert mask.dtype == torch.bool
    assert not HoldoutSummary.of(mask, grid).unseen
    assert not mask.all()


def test_default_holds_something_out_unless_it_is_empty_by_nature(holdout, grid):
    assert bool(holdout.mask(grid).any()) == (holdout.kind not in ("none", *EMPTY))


def test_resolving_writes_bounds_out_and_changes_nothing_else(holdout, grid):
    resolved = holdout.resolved(grid)
    assert torch.equal(resolved.mask(grid), holdout.mask(grid))
    assert resolved.resolved(grid) == resolved


def test_task_has_it_resolved(full_holdout):
    task = BumpTask(size=12, holdout=full_holdout)
    assert task.holdout == full_holdout.resolved(task.grid)
    assert torch.equal(task.held_out.reshape(12, 12), full_holdout.mask(task.grid))


def test_training_never_shows_a_held_out_combination(full_holdout):
    for centers in ("integer", "real"):
        task = BumpTask(size=10, holdout=full_holdout, centers=centers, training="draws:300")
        nearest = task.grid.nearest(task.training_values(seed=1))
        assert not task.held_out[nearest].any()
