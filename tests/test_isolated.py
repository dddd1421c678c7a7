"""Isolated-factor examples: groups of factors, and means over what an image cannot be drawn without."""

import itertools
import math

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.tasks import BumpTask, RotationTask, base
from tests.contracts.forms import FormsTask

NAN = math.nan


def shown(values):
    """Each row as its present values by place."""
    return [tuple((k, v) for k, v in enumerate(row) if not math.isnan(v)) for row in values.tolist()]


def test_named_factors_only_in_the_grids_order():
    task = BumpTask(size=3, brightness=2, holdout="none", isolated=True, isolated_factors=("brightness", 0))
    assert task.isolated_factors == ("x", "brightness")
    assert shown(task.isolated_values()) == [((0, 0),), ((0, 1),), ((0, 2),), ((2, 0.5),), ((2, 1),)]
    everything = BumpTask(isolated=True, isolated_factors=("y", "x"))
    assert everything.digest == BumpTask(isolated=True).digest


def test_pairs_show_every_two_factors():
    task = BumpTask(size=3, brightness=2, holdout="none", isolated=True, isolated_together=2)
    pairs = shown(task.isolated_values())
    assert len(pairs) == 9 + 6 + 6
    assert pairs[:9] == [((0, x), (1, y)) for x, y in itertools.product(range(3), range(3))]
    chosen = task.replace(isolated_factors=("x", "brightness"))
    assert shown(chosen.isolated_values()) == [((0, x), (2, b)) for x in range(3) for b in (0.5, 1)]


def test_pairs_do_not_give_a_held_out_combination_away():
    task = BumpTask(
        size=6, brightness=2, holdout="center:2:4:factors=x,y", isolated=True, isolated_together=2,
        isolated_factors=("x", "y"),
    )  # fmt: skip
    pairs = {tuple(row) for row in task.isolated_values()[:, :2].long().tolist()}
    assert pairs == {(x, y) for x in range(6) for y in range(6) if not (2 <= x <= 4 and 2 <= y <= 4)}
    whole = task.replace(region="whole")
    assert len(whole.isolated_values()) == 36


def test_a_digit_alone_is_the_mean_over_its_kept_angles():
    task = RotationTask(size=8, angles=12, digits=3, isolated=True, training="draws:5")
    values = task.isolated_values()
    assert values.shape == (3 + 12, 2)
    images = task.images(values)
    kept = ~task.held_out.reshape(3, 12)
    assert int((~kept).sum()) > 0, "the gap"
    everything = task.render(task.grid.points).reshape(3, 12, 8, 8)
    for digit in range(3):
        assert torch.allclose(images[digit], everything[digit][kept[digit]].mean(dim=0))
    for angle in range(12):
        assert torch.allclose(images[3 + angle], everything[kept[:, angle], angle].mean(dim=0))


def test_the_mean_says_nothing_about_held_out_images(monkeypatch):
    task = RotationTask(size=8, angles=12, digits=2, isolated=True)
    render, held_out = task.render, task.grid.points[task.held_out]

    def spoilt(values):
        hidden = (values[:, None] == held_out).all(dim=2).any(dim=1)
        return torch.where(hidden[:, None, None], torch.nan, render(values))

    monkeypatch.setattr(RotationTask, "render", lambda _, values: spoilt(values))
    assert torch.isfinite(task.images(task.isolated_values())).all()


def test_a_value_that_is_never_trained_has_no_mean_and_no_example():
    holdout = "center:3:4:factors=angle"
    task = RotationTask(size=8, angles=12, digits=2, holdout=holdout, isolated=True)
    assert shown(task.isolated_values())[2:] == [((1, 30.0 * k),) for k in range(12) if k not in (3, 4)]
    with pytest.raises(InvalidValue, match="that may be trained on"):
        task.images(torch.tensor([[NAN, 90.0]], dtype=torch.float64))
    stripes = BumpTask(size=6, holdout="center:2:3:factors=x", allow_unseen=True, isolated=True)
    assert len(stripes.isolated_values()) == 12, "a stripe can be drawn without the other factor"


def test_what_can_be_left_out_is_and_the_mean_is_over_the_rest():
    task = FormsTask(count=5, holdout="random:0.4", isolated=True, training="draws:4")
    row = torch.tensor([[NAN, NAN, 2.0, NAN, NAN]], dtype=torch.float64)
    kept = ~task.held_out.reshape(task.grid.shape)
    total, count = 0, 0
    for x, width, shape, angle, grey in itertools.product(*(range(n) for n in task.grid.shape)):
        if shape == 2 and kept[x, width, shape, angle, grey]:
            values = [NAN, task.grid.factors[1].values[width], 2.0, task.grid.factors[3].values[angle], NAN]
            total, count = total + task.render(torch.tensor([values], dtype=torch.float64)), count + 1
    assert torch.allclose(task.images(row), total / count)


def test_large_means_are_sampled_and_always_the_same(monkeypatch):
    task = FormsTask(count=5, isolated=True)
    rows = task.isolated_values()
    exact = task.images(rows)
    monkeypatch.setattr(base, "MOST_AVERAGED", 5)
    monkeypatch.setattr(base, "PIXELS", 100)
    sampled = task.images(rows)
    assert not torch.allclose(sampled, exact)
    assert (sampled - exact).abs().mean() < 0.3 * exact.std()
    assert torch.allclose(task.images(rows.flip(0)).flip(0), sampled, atol=1e-12), "whatever else is drawn"
    assert torch.allclose(task.images(rows.repeat(2, 1))[len(rows) :], sampled, atol=1e-12)


def test_examples_are_shared_only_where_the_means_are_the_same():
    one = RotationTask(size=8, angles=12, digits=2, isolated=True)
    other = one.replace(holdout="none")
    assert one.rendering_key != other.rendering_key
    assert one.replace(training="pick:3").rendering_key == one.rendering_key
    assert one.replace(isolated=False).rendering_key == other.replace(isolated=False).rendering_key
    bumps = BumpTask(size=6, isolated=True)
    assert bumps.rendering_key == bumps.replace(holdout="none").rendering_key


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"isolated_factors": ("x",)}, "isolated_factors"),
        ({"isolated_together": 2}, "isolated_together"),
        ({"isolated": True, "isolated_together": 2}, "isolated_together"),
        ({"isolated": True, "isolated_factors": ("z",)}, "isolated_factors"),
        ({"isolated": True, "encoding": "mixed:x=rate"}, "encoding.x"),
    ],
)
def test_mistakes_name_the_field(fields, field):
    with pytest.raises(InvalidValue) as caught:
        BumpTask(**fields)
    assert caught.value.field == field
