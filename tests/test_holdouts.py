"""Known answers; the contracts hold the rest."""

import json

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import HOLDOUTS, Center, Corner, Cross, Ell, Mask, Scattered, unseen_values
from recombine.tasks import BumpTask

PAPER = FactorGrid((Factor("x", 0, 27, 28), Factor("y", 0, 27, 28)))


def brute(rule, size=28):
    return torch.tensor([[rule(x, y) for y in range(size)] for x in range(size)])


def test_the_papers_box():
    mask = Center().mask(PAPER)
    assert int(mask.sum()) == 289
    assert int((~mask).sum()) == 495
    assert torch.equal(mask, brute(lambda x, y: 6 <= x <= 22 and 6 <= y <= 22))
    assert Center().resolved(PAPER) == HOLDOUTS.parse("center:6:22")


def test_bounds_are_inclusive_and_may_differ_by_factor():
    mask = HOLDOUTS.parse("center:2,5:4,5").mask(PAPER)
    assert torch.equal(mask, brute(lambda x, y: 2 <= x <= 4 and y == 5))


def test_the_low_rank_studys_corner():
    grid = FactorGrid((Factor("x", 0, 31, 32), Factor("y", 0, 31, 32)))
    mask = Corner().mask(grid)
    assert int((~mask).sum()) == 624
    assert torch.equal(mask, brute(lambda x, y: x >= 12 and y >= 12, 32))
    low = Corner(side="low", start=3).mask(grid)
    assert torch.equal(low, brute(lambda x, y: x <= 3 and y <= 3, 32))


def test_cross_and_ell():
    cross = Cross(arm_low=10, arm_high=17, low=2, high=25).mask(PAPER)
    inside = range(2, 26)
    arm = range(10, 18)
    assert torch.equal(cross, brute(lambda x, y: x in inside and y in inside and (x in arm or y in arm)))
    ell = Ell(low=3, high=20, notch=10).mask(PAPER)
    box = range(3, 21)
    assert torch.equal(ell, brute(lambda x, y: x in box and y in box and not (x >= 10 and y >= 10)))


def test_the_published_cross_removes_whole_values_and_must_be_asked_for():
    published = "cross:10:17:0:27"
    with pytest.raises(InvalidValue, match=r"x=10, x=11, x=12, ….*allow_unseen"):
        BumpTask(holdout=published)
    task = BumpTask(holdout=published, allow_unseen=True)
    assert unseen_values(task.held_out.reshape(28, 28), task.grid)[:2] == ["x=10", "x=11"]


def test_random_holds_out_the_share_it_says_and_differs_by_seed():
    first, second = Scattered(fraction=0.3).mask(PAPER), Scattered(fraction=0.3, seed=1).mask(PAPER)
    assert int(first.sum()) == int(second.sum()) == round(0.3 * 784)
    assert not torch.equal(first, second)


def test_random_cannot_hold_out_more_than_leaves_every_value_seen():
    with pytest.raises(InvalidValue, match="at most"):
        Scattered(fraction=0.99).mask(PAPER)


def test_mask_from_files(tmp_path):
    wanted = np.zeros((28, 28), dtype=bool)
    wanted[3, 4] = wanted[7, 20] = True
    np.save(tmp_path / "mask.npy", wanted)
    (tmp_path / "mask.json").write_text(json.dumps([[3, 4], [7, 20]]))
    for name in ("mask.npy", "mask.json"):
        holdout = HOLDOUTS.parse(f"mask:{tmp_path / name}")
        assert holdout.resolved(PAPER) == Mask(points=((3, 4), (7, 20)))
        assert np.array_equal(holdout.mask(PAPER).numpy(), wanted)


def test_equal_masks_are_equal_specs():
    first, second = Mask(points=((3, 4), (7, 20))), Mask(points=((7, 20), (3, 4), (7, 20)))
    assert BumpTask(holdout=first).digest == BumpTask(holdout=second).digest


def test_a_mask_of_another_shape_is_refused(tmp_path):
    np.save(tmp_path / "mask.npy", np.eye(27, dtype=bool))
    with pytest.raises(InvalidValue, match=r"\(27, 27\) is not allowed; allowed: \(28, 28\)"):
        BumpTask(holdout=f"mask:{tmp_path / 'mask.npy'}")


@pytest.mark.parametrize(
    "text",
    ["center:6:28", "center:-1:5", "center:9:5", "center:1,2,3:9", "center:fraction=1.5", "corner:40", "cross:9:3",
     "L:9:3", "L:3:9:3", "L:3:9:12", "random:0", "random:2", "center:1:2:0.5:9", "center:low=1:low=2",
     "mask:absent.npy", "square"],
)  # fmt: skip
def test_mistakes_are_one_line(text):
    with pytest.raises(InvalidValue) as caught:
        HOLDOUTS.parse(text).mask(PAPER)
    assert "\n" not in str(caught.value)
    assert "allowed:" in str(caught.value)
