"""Known answers; the contracts hold the rest."""

import itertools
import json
import time

import numpy as np
import pytest
import torch

from recombine.diagnosis import diagnose
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import (
    HOLDOUTS,
    Center,
    Corner,
    Cross,
    Diagonal,
    Ell,
    HoldoutSummary,
    Mask,
    Scattered,
)
from recombine.specs import RunSpec
from recombine.tasks import BumpTask, SpriteTask

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
    assert task.holdout_summary.unseen[:2] == ("x=10", "x=11")


def test_mask_from_files(tmp_path):
    wanted = np.zeros((28, 28), dtype=bool)
    wanted[3, 4] = wanted[7, 20] = True
    np.save(tmp_path / "mask.npy", wanted)
    (tmp_path / "mask.json").write_text(json.dumps([[3, 4], [7, 20]]))
    for name in ("mask.npy", "mask.json"):
        holdout = HOLDOUTS.parse(f"mask:{tmp_path / name}")
        assert holdout.resolved(PAPER) == Mask(points=((3, 4), (7, 20)))
        assert np.array_equal(holdout.mask(PAPER).numpy(), wanted)


@pytest.mark.parametrize(
    "text",
    ["center:6:28", "center:-1:5", "center:9:5", "center:1,2,3:9", "center:fraction=1.5", "corner:40", "cross:9:3",
     "L:9:3", "L:3:9:3", "L:3:9:12", "random:0", "random:2", "center:1:2:0.5:9", "center:low=1:low=2",
     "mask:absent.npy", "square"],
)  # fmt: skip
def test_mistakes_are_refused(text):
    with pytest.raises(InvalidValue):
        HOLDOUTS.parse(text).mask(PAPER)


def grid_of(*counts):
    return FactorGrid(tuple(Factor(f"f{k}", 0, count - 1, count) for k, count in enumerate(counts)))


def points_of(grid):
    return itertools.product(*(range(count) for count in grid.shape))


def by_rule(rule, grid):
    return torch.tensor([rule(point) for point in points_of(grid)]).reshape(grid.shape)


SUPPORTS = {
    "diagonal:2": lambda p, shape: max(p) - min(p) > 2,
    "diagonal:0": lambda p, shape: max(p) != min(p),
    "orthogonal": lambda p, shape: sum(i != n // 2 for i, n in zip(p, shape, strict=True)) > 1,
    "orthogonal:0": lambda p, shape: sum(i != 0 for i in p) > 1,
    "L_shaped:2": lambda p, shape: sum(i >= 2 for i in p) > 1,
    "L_shaped:1:low": lambda p, shape: sum(i <= 1 for i in p) > 1,
}
BLOCKS = {
    "orthogonal:0:blocks=2,2": lambda p: any(p[:2]) + any(p[2:]) > 1,
    "orthogonal:0:blocks=1,3": lambda p: any(p[:1]) + any(p[1:]) > 1,
    "diagonal:1:blocks=2,2": lambda p: abs(p[0] - p[2]) > 1 or abs(p[1] - p[3]) > 1,
    "orthotopic:1:2": lambda p: sum(i >= 2 for i in p) > 1,
    "orthotopic:3:2": lambda p: sum(i >= 2 for i in p) > 3,
}


@pytest.mark.parametrize("counts", [(5,), (5, 5), (4, 4, 4, 4)], ids=len)
@pytest.mark.parametrize("text", SUPPORTS)
def test_supports_are_as_said_point_by_point(text, counts):
    grid = grid_of(*counts)
    assert torch.equal(HOLDOUTS.parse(text).mask(grid), by_rule(lambda p: SUPPORTS[text](p, counts), grid))


@pytest.mark.parametrize("text", BLOCKS)
def test_supports_of_blocks_are_as_said_point_by_point(text):
    grid = grid_of(4, 4, 4, 4)
    mask = HOLDOUTS.parse(text).mask(grid)
    assert torch.equal(mask, by_rule(BLOCKS[text], grid))
    assert torch.equal(HOLDOUTS.parse(str(HOLDOUTS.parse(text).resolved(grid))).mask(grid), mask)


@pytest.mark.parametrize("text", ["orthogonal:0:blocks=2,3", "diagonal:1:blocks=1,3", "orthotopic:4"])
def test_blocks_that_do_not_fit_are_refused(text):
    with pytest.raises(InvalidValue):
        HOLDOUTS.parse(text).mask(grid_of(4, 4, 4, 4))


def test_the_diagonal_runs_from_corner_to_corner_of_an_oblong():
    grid = grid_of(9, 5, 1)
    mask = Diagonal(bandwidth=1).mask(grid)
    assert torch.equal(mask, by_rule(lambda p: abs(p[0] - 2 * p[1]) > 1, grid))
    for counts in ((28, 28), (2, 30), (30, 3, 2), (7, 4, 6, 3, 5)):
        assert Diagonal().summary(grid_of(*counts)).unseen == (), counts


THREE = FactorGrid((Factor("x", 0, 5, 6), Factor("y", 0, 6, 7), Factor("shape", 0, 2, 3, "category")))


@pytest.mark.parametrize("factors", ["x,shape", "0,2", "x,2"])
def test_a_holdout_over_some_factors_leaves_the_others_free(factors):
    mask = HOLDOUTS.parse(f"center:2,1:4,1:factors={factors}").mask(THREE)
    assert torch.equal(mask, by_rule(lambda p: 2 <= p[0] <= 4 and p[2] == 1, THREE))


def test_bounds_are_in_the_order_of_the_named_factors():
    mask = Center(low=(1, 2), high=(1, 4), factors=("shape", "x")).mask(THREE)
    assert torch.equal(mask, Center(low=(2, 1), high=(4, 1), factors=("x", "shape")).mask(THREE))


def test_factors_are_written_out_by_name_unless_it_is_all_of_them():
    assert Center(factors=(2, "x")).resolved(THREE).factors == ("shape", "x")
    assert Center(factors=(0, 1, 2)).resolved(THREE) == Center().resolved(THREE)
    assert Center().resolved(THREE).digest == Center(low=(1, 2, 1), high=(4, 5, 2)).digest
    assert "factors" not in Center().to_json()


def test_points_and_draws_over_some_factors():
    listed = HOLDOUTS.parse("mask:1,2;3,0:factors=y,shape").mask(THREE)
    assert torch.equal(listed, by_rule(lambda p: p[1:] in ((1, 2), (3, 0)), THREE))
    drawn = Scattered(fraction=0.3, factors=("x", "y")).mask(THREE)
    assert torch.equal(drawn, Scattered(fraction=0.3).mask(grid_of(6, 7))[..., None].expand(6, 7, 3))


def test_a_summary_counts_and_names_what_is_never_seen():
    assert str(Center().summary(PAPER)) == "495 combinations kept, 289 held out (x 6–22, y 6–22); every value is seen"
    gone = Center(low=2, high=5, factors=("y",)).summary(THREE)
    assert gone == HoldoutSummary(kept=54, held_out=72, unseen=("y=2", "y=3", "y=4", "y=5"), where="y 2–5")
    assert gone.unseen
    assert str(gone) == "54 combinations kept, 72 held out (y 2–5); never seen: y=2, y=3, y=4 and 1 more"


@pytest.mark.parametrize("counts", [(2, 2), (4, 5), (1, 5, 6), (2, 2, 2, 2, 2)], ids=str)
def test_random_points_leave_every_value(counts):
    grid, refused = grid_of(*counts), 0
    for fraction in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97):
        for seed in range(5):
            try:
                mask = Scattered(fraction=fraction, seed=seed).mask(grid)
            except InvalidValue:
                refused += 1
                continue
            assert int(mask.sum()) == round(fraction * grid.size)
            assert not Scattered(fraction=fraction, seed=seed).summary(grid).unseen
    assert refused > 0


@pytest.mark.parametrize("text", ["random:0.9", "diagonal", "center:factors=f1,f4"])
def test_a_mask_over_a_million_points_is_quick(text):
    grid, started = grid_of(*[10] * 6), time.perf_counter()
    HOLDOUTS.parse(text).summary(grid)
    assert time.perf_counter() - started < 5  # one second, on a machine that does nothing else


SPRITES = SpriteTask(factors=("shape=3", "x=6"), holdout="none")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("x>=9,shape==heart", lambda s, x: x >= 9 and s == "heart"),
        ("x > 9 , shape!=heart", lambda s, x: x > 9 and s != "heart"),
        ("x<=10.8|x==18.0,shape==square", lambda s, x: x <= 10.8 or (x == 18 and s == "square")),
        ("x<12.6,x!=9", lambda s, x: x < 12.6 and x != 9),
    ],
)
def test_conditions_hold_out_by_value(text, rule):
    values = [round(value, 6) for value in SPRITES.grid.factors[1].values.tolist()]
    expected = torch.tensor([[rule(shape, x) for x in values] for shape in ("square", "ellipse", "heart")])
    for written in (text, f"where:{text}", str(HOLDOUTS.parse(text))):
        assert torch.equal(HOLDOUTS.parse(written).mask(SPRITES.grid), expected)
    task = SPRITES.replace(holdout=text, allow_unseen=True)
    assert SpriteTask.from_json(task.to_json()) == task
    assert torch.equal(task.held_out, expected.flatten())


def test_conditions_on_numbers_of_a_category_and_on_single_precision():
    labels = (10.0, 20.0, 30.0)
    grid = FactorGrid((Factor("kind", 0, 2, 3, "category", labels=labels), Factor.of("y", np.float32([0.1, 0.2, 0.7]))))
    assert HOLDOUTS.parse("kind>=20,y==0.1").mask(grid).int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert HOLDOUTS.parse("x>=8.0").resolved(PAPER) == HOLDOUTS.parse("x>=8")


@pytest.mark.parametrize(
    "text", ["x=>8", "x>=", ">=8", "x>=8,", "z>=8", "x>=heart", "x==9.5", "shape>=heart", "shape==disc", "x>=8,y"]
)
def test_mistaken_conditions_are_refused(text):
    with pytest.raises(InvalidValue, match="conditions"):
        HOLDOUTS.parse(text).mask(SPRITES.grid)


@pytest.mark.parametrize("text", ["random:0.0005", "mask", "where", "x>27", "diagonal:bandwidth=27"])
def test_a_holdout_of_nothing_is_refused_unless_it_was_stored(text):
    stored = BumpTask().to_json().replace(Center().resolved(PAPER).to_json(), HOLDOUTS.parse(text).to_json())
    assert HOLDOUTS.parse(text).kind in stored
    task = BumpTask.from_json(stored)
    assert not task.held_out.any()
    assert RunSpec.from_json(RunSpec().to_json().replace(BumpTask().to_json(), stored)).seeds([1])[0].task == task
    for make in (BumpTask, task.replace):
        with pytest.raises(InvalidValue, match="at least one combination"):
            make(holdout=text)
    for holdout in (text, HOLDOUTS.parse(text).mask(PAPER)):
        with pytest.raises(InvalidValue, match="at least one combination"):
            diagnose(torch.nn.Linear(2, 4), PAPER, holdout=holdout)
    assert not BumpTask(holdout="none").held_out.any()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("center:2,1:4,1:factors=x,shape", "x 2–4, shape 1"),
        ("orthogonal:factors=x,y", "x {0–2, 4–5}, y {0–2, 4–6}"),
        ("mask:1,2;3,0:factors=y,shape", "y=1 shape=2, y=3 shape=0"),
        ("x==0,shape!=1|x==5,y<2", "x=0 y=0 shape=0, x=0 y=0 shape=2, x=0 y=1 shape=0 and 17 more"),
        ("shape!=1", "shape {0, 2}"),
        ("none", ""),
    ],
)
def test_a_summary_shows_the_held_out_values(text, where):
    assert HOLDOUTS.parse(text).summary(THREE).where == where


def test_a_box_with_gaps_is_shown_as_a_box():
    present = torch.ones(6, 7, 3, dtype=torch.bool)
    present[3, 2, :] = present[0, 0, 0] = False
    mask = HOLDOUTS.parse("x>=3,y<=3").mask(THREE)
    assert HoldoutSummary.of(mask, THREE, present.flatten()).where == "x 3–5, y 0–3"
