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


@pytest.mark.parametrize(
    ("task", "fields", "field"),
    [
        (SpriteTask, {"factors": "x"}, "factors"),
        (SpriteTask, {"factors": "x=1"}, "factors"),
        (SpriteTask, {"factors": "x=0..nan..5"}, "factors"),
        (SpriteTask, {"factors": "x=9..3..5"}, "x.high"),
        (SpriteTask, {"factors": "x2=4"}, "factors"),
        (SpriteTask, {"factors": "shape=8"}, "factors"),
        (SpriteTask, {"factors": "shape=1..2..2"}, "factors"),
        (SpriteTask, {"factors": "x=4,y=4", "fixed": "shape=0.5"}, "shape"),
        (SpriteTask, {"fixed": "x=4"}, "fixed"),
        (SpriteTask, {"fixed": "scale=90"}, "scale"),
        (SpriteTask, {"fixed": "scale=7,scale=8"}, "fixed"),
        (SpriteTask, {"centers": "real"}, "centers"),
        (BallsTask, {"factors": "rotation=4"}, "factors"),
        (BumpsTask, {"factors": "intensity=-1..1..3"}, "intensity"),
    ],
    ids=str,
)
def test_a_mistake_names_its_field(task, fields, field):
    with pytest.raises(InvalidValue) as caught:
        task(**fields)
    assert caught.value.field == field


def test_values_that_cannot_be_drawn_are_refused():
    sprites = SpriteTask(factors="x=4,scale=3")
    for values in ([16.0, torch.nan], [16.0, 1.0]):
        with pytest.raises(InvalidValue, match="values of scale"):
            sprites.render(torch.tensor([values]))
    with pytest.raises(InvalidValue, match="values"):
        sprites.render(torch.zeros(2, 3))
