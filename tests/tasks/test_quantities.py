"""Factors by text: which quantities, how many values, what the others are."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.tasks import TASKS, BallsTask, BumpsTask, SpriteTask


def test_factors_come_in_the_order_given_with_their_numbers_of_values():
    task = SpriteTask(factors="hue=4,x=5,scale=6..9..3", holdout="none")
    assert task.grid.names == ("hue", "x", "scale")
    assert task.grid.shape == (4, 5, 3)
    assert task.grid.factors[0].values.tolist() == [0, 90, 180, 270]
    assert task.grid.factors[2].values.tolist() == [6, 7.5, 9]


def test_open_ends_are_no_values():
    grid = BumpsTask(factors="orientation=6,intensity=4", holdout="none").grid
    assert grid.factors[0].values.tolist() == [0, 30, 60, 90, 120, 150]
    assert grid.factors[1].values.tolist() == [0.25, 0.5, 0.75, 1]


def test_texts_are_written_in_one_way():
    plain = SpriteTask(factors=("x=5", "scale=6..9..3"), fixed="hue=120,rotation=45.5")
    assert SpriteTask(factors=" x= 5,scale=6.0..9.00..03", fixed=("hue=1.2e2", "rotation=45.50")) == plain
    assert plain.fixed == ("hue=120", "rotation=45.5")
    for task in (plain, BumpsTask(factors="x=9", holdout="none"), BallsTask()):
        assert TASKS.parse(str(task)) == task
        assert type(task).from_json(task.to_json()) == task


@pytest.mark.parametrize("count", range(1, 6))
def test_any_number_of_factors(count):
    names = ["size", "x", "orientation", "y", "intensity"][:count]
    task = BumpsTask(size=10, factors=[f"{name}=3" for name in names], holdout="none")
    assert task.grid.shape == (3,) * count
    assert task.render(task.grid.points).shape == (3**count, 10, 10)
    sprites = SpriteTask(
        size=20, factors=[f"{name}=2" for name in ("hue", "x", "shape", "scale", "y")][:count], holdout="none"
    )
    assert sprites.render(sprites.grid.points).shape == (2**count, 3, 20, 20)


def test_bounds_of_the_holdout_follow_the_factors():
    task = BumpsTask(factors="x=10,y=10")
    assert task.replace(factors="x=20,y=10").holdout == BumpsTask(factors="x=20,y=10").holdout
    assert task.replace(factors="x=20,y=10").digest == BumpsTask(factors="x=20,y=10").digest


@pytest.mark.parametrize(
    ("task", "fields", "message"),
    [
        (SpriteTask, {"factors": "x"}, "factors: 'x' is not allowed; allowed: NAME=COUNT or"),
        (SpriteTask, {"factors": "x=1"}, "at least 2 values"),
        (SpriteTask, {"factors": "x=2..5"}, "factors: 'x=2..5' is not allowed"),
        (SpriteTask, {"factors": "x=0..nan..5"}, "factors: 'x=0..nan..5'"),
        (SpriteTask, {"factors": "x=0..inf..5"}, "factors: 'x=0..inf..5'"),
        (SpriteTask, {"factors": "x=9..3..5"}, r"x.high: 3.0 is not allowed; allowed: greater than 9.0"),
        (SpriteTask, {"factors": "x=4,x=5"}, "allowed: different names"),
        (SpriteTask, {"factors": ""}, "allowed: at least one factor"),
        (SpriteTask, {"factors": "x2=4"}, "factors: 'x2' is not allowed; allowed: shape, scale, rotation"),
        (SpriteTask, {"factors": "colour=4"}, "factors: 'colour'"),
        (SpriteTask, {"factors": "shape=8"}, r"factors: 'shape=8' is not allowed; allowed: at most 7 values of shape"),
        (SpriteTask, {"factors": "shape=3", "shapes": "disc,heart"}, r"at most 2 values of shape"),
        (SpriteTask, {"factors": "shape=1..2..2"}, r"'shape=1..2..2' is not allowed; allowed: shape=2: of a category"),
        (SpriteTask, {"factors": "shape=0..6..3"}, r"'shape=0..6..3' is not allowed; allowed: shape=3: of a category"),
        (SpriteTask, {"factors": "x=4,y=4", "fixed": "shape=0.5"}, r"shape: 0.5 .* allowed: a whole number, 0 to 6"),
        (SpriteTask, {"factors": "scale=2..9..3"}, r"scale: 2.0 is not allowed; allowed: 6 to 28"),
        (SpriteTask, {"factors": "x=100000,y=100000"}, "combinations"),
        (SpriteTask, {"fixed": "x=4"}, "fixed: 'x=4' is not allowed; allowed: nothing for x, which is a factor"),
        (SpriteTask, {"fixed": "hue2=4"}, "fixed: 'hue2'"),
        (SpriteTask, {"fixed": "scale=90"}, "scale: 90.0"),
        (SpriteTask, {"fixed": "scale=big"}, "fixed: 'scale=big' is not allowed; allowed: NAME=VALUE"),
        (SpriteTask, {"fixed": "scale=inf"}, "fixed: 'scale=inf'"),
        (SpriteTask, {"fixed": "scale=7,scale=8"}, "one value for each quantity"),
        (SpriteTask, {"shapes": "heart,heart"}, "different shapes"),
        (SpriteTask, {"shapes": "star"}, "shapes"),
        (SpriteTask, {"sprites": 3}, "sprites: 3"),
        (SpriteTask, {"size": 12}, "size: 12"),
        (SpriteTask, {"centers": "real"}, "nothing between two values of shape"),
        (BallsTask, {"factors": "rotation=4"}, "factors: 'rotation'"),
        (BumpsTask, {"elongation": 0.5}, "elongation: 0.5"),
        (BumpsTask, {"factors": "intensity=-1..1..3"}, "intensity: -1.0"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_one_line(task, fields, message):
    with pytest.raises(InvalidValue, match=message.replace("..", r"\.\.")) as caught:
        task(**fields)
    assert "\n" not in str(caught.value)
    assert "allowed:" in str(caught.value)


def test_values_that_cannot_be_drawn_are_refused():
    sprites = SpriteTask(factors="x=4,scale=3")
    for values, message in (([16.0, torch.nan], "values of scale: nan"), ([16.0, 1.0], "values of scale: 1.0")):
        with pytest.raises(InvalidValue, match=message):
            sprites.render(torch.tensor([values]))
    with pytest.raises(InvalidValue, match=r"values of size: -1\.0"):
        BumpsTask().render(torch.tensor([[1.0, 1.0, -1.0]]))
    with pytest.raises(InvalidValue, match="rows of one value for each of"):
        sprites.render(torch.zeros(2, 3))
