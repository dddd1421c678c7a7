"""Depth inside a hold-out: known answers and a loop over pairs of points."""

import itertools

import pytest
import torch

from recombine.metrics import distance_inside, interior
from recombine.tasks import BumpTask


def slow_distance(held_out, shape):
    points = list(itertools.product(*(range(count) for count in shape)))
    kept = [point for point, held in zip(points, held_out.tolist(), strict=True) if not held]
    return [min(max(abs(a - b) for a, b in zip(point, other, strict=True)) for other in kept) for point in points]


@pytest.mark.parametrize("shape", [(17,), (6, 9), (4, 5, 6)])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.98])
def test_distance_against_a_loop(shape, share):
    count = torch.Size(shape).numel()
    held_out = torch.rand(count, generator=torch.Generator().manual_seed(count)) < share
    held_out[0] = False
    assert distance_inside(held_out, shape).tolist() == slow_distance(held_out, shape)


def test_distance_known_answers():
    square = torch.zeros(9, 9, dtype=torch.bool)
    square[2:7, 2:7] = True
    distance = distance_inside(square.flatten(), (9, 9)).reshape(9, 9)
    assert distance[4].tolist() == [0, 0, 1, 2, 3, 2, 1, 0, 0]
    corner = torch.zeros(5, 5, dtype=torch.bool)
    corner[:3, :3] = True
    assert distance_inside(corner.flatten(), (5, 5))[0].item() == 3
    assert torch.isinf(distance_inside(torch.ones(6, dtype=torch.bool), (2, 3))).all()
    assert not distance_inside(torch.zeros(6, dtype=torch.bool), (2, 3)).any()


def test_interior_of_the_papers_holdout():
    task = BumpTask(size=28)
    inside = interior(task.held_out, task.grid.shape)
    assert int(inside.sum()) == 13**2
    assert task.grid.points[inside].min() == 8
    assert task.grid.points[inside].max() == 20


@pytest.mark.parametrize(("side", "count"), [(1, 1), (2, 4), (3, 9), (4, 4), (5, 9), (6, 4), (7, 9)])
def test_interior_of_small_holdouts_takes_a_smaller_margin(side, count):
    held_out = torch.zeros(11, 11, dtype=torch.bool)
    held_out[2 : 2 + side, 2 : 2 + side] = True
    inside = interior(held_out.flatten(), (11, 11))
    assert int(inside.sum()) == count
    assert not (inside & ~held_out.flatten()).any()
