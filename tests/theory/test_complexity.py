"""Ranks of functions: planted ones are recovered, whole and with holes."""

import pytest
import torch

from recombine.tasks import BumpTask
from recombine.theory.ranks import MORE, epsilon_rank, exact_rank
from recombine.theory.search import Search
from tests.theory.planted import holed, planted

SHAPES = [(12, 12), (6, 6, 6), (5, 5, 5, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(1, 7))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_planted_ranks_are_recovered_exactly(shape, rank):
    assert (exact_rank(planted(shape, rank, 100), shape) == rank).double().mean() >= 0.95


@pytest.mark.parametrize(("shape", "rank"), [((8, 9), 3), ((4, 5, 6), 2), ((3, 4, 3, 4), 2)], ids=str)
def test_a_few_planted_ranks(shape, rank):
    values = planted(shape, rank, 5)
    assert exact_rank(values, shape, largest=4).tolist() == [rank] * 5
    assert exact_rank(values, shape, largest=4, mask=holed(shape, 0.05)).tolist() == [rank] * 5
    assert exact_rank(values, shape, largest=rank - 1).tolist() == [MORE] * 5


def test_a_bump_is_a_product_and_a_superposition_of_two_is_not():
    task = BumpTask(size=10)
    images = task.render(task.grid.points).flatten(1).T
    shape = task.grid.shape
    bright = images[images.amax(dim=-1) > 0.5]
    assert set(exact_rank(bright, shape, largest=2).tolist()) == {1}
    moved = bright.unflatten(-1, shape).roll((2, 3), (-2, -1)).flatten(-2)
    assert set(exact_rank(bright + moved, shape, largest=3).tolist()) == {2}


def test_two_products_come_near_any_sum_of_three_functions():
    """The difference of two products over their distance is a derivative, and that of a product is such a sum."""
    x, y, z = torch.meshgrid(*[torch.linspace(-1, 1, 4, dtype=torch.float64)] * 3, indexing="ij")
    total = (x + y + z).flatten()
    near = (((1 + 0.03 * x) * (1 + 0.03 * y) * (1 + 0.03 * z) - 1) / 0.03).flatten()
    assert (near - total).norm() < 0.03 * total.norm()
    assert epsilon_rank(total, (4, 4, 4), 0.01).item() == exact_rank(near, (4, 4, 4), largest=2, restarts=2).item() == 2
    assert exact_rank(total, (4, 4, 4), largest=2, restarts=2).item() == MORE


def test_constants_and_nothing():
    assert exact_rank(torch.ones(12), (3, 4)).item() == 1
    assert exact_rank(torch.zeros(12), (3, 4)).item() == 0
    some = torch.arange(12) < 7
    values = torch.stack([torch.ones(12), torch.zeros(12)])
    for shape in [(3, 4), (3, 2, 2)]:
        assert exact_rank(values, shape, mask=some).tolist() == [1, 0]


def test_bounds_of_complete_rows_and_columns_leave_ranks_as_they_are():
    epsilon, values = 0.3, torch.randn(8, 42, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[4:, 5:] = False
    bounded = epsilon_rank(values, (6, 7), epsilon, mask=mask.flatten(), restarts=2)
    search = [Search((6, 7), rank, 200, 1e-5).best(values, 2, mask.flatten())[1] for rank in range(1, 7)]
    assert bounded.tolist() == (1 + (torch.stack(search) > epsilon).sum(dim=0)).tolist()


def test_singular_values_are_as_good_as_a_search():
    values = planted((6, 7), 4, 5)
    ranks = epsilon_rank(values, (6, 7), 0.2)
    for own, rank in zip(values.unflatten(-1, (6, 7)), ranks.tolist(), strict=True):
        tails = [torch.linalg.svdvals(own)[k:].norm() <= 0.2 * own.norm() for k in range(5)]
        assert tails.index(True) == rank
