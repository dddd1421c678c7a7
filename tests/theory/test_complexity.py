"""Ranks of functions, and of what networks learnt: planted and known ones are recovered, whole and with holes."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.tasks import BumpTask
from recombine.theory.ranks import MORE, epsilon_rank, exact_rank, learnt_complexity, pixel_ranks
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
    x, y, z = torch.meshgrid(*[torch.linspace(-1, 1, 3, dtype=torch.float64)] * 3, indexing="ij")
    total = (x + y + z).flatten()
    near = (((1 + 0.03 * x) * (1 + 0.03 * y) * (1 + 0.03 * z) - 1) / 0.03).flatten()
    assert (near - total).norm() < 0.03 * total.norm()
    few = {"largest": 2, "restarts": 2}
    assert epsilon_rank(total, (3, 3, 3), 0.01, **few).item() == exact_rank(near, (3, 3, 3), **few).item() == 2
    assert exact_rank(total, (3, 3, 3), **few).item() == MORE


def test_constants_and_nothing():
    assert exact_rank(torch.ones(12), (3, 4)).item() == 1
    assert exact_rank(torch.zeros(12), (3, 4)).item() == 0
    some = torch.arange(12) < 7
    values = torch.stack([torch.ones(12), torch.zeros(12)])
    for shape in [(3, 4), (3, 2, 2)]:
        assert exact_rank(values, shape, mask=some).tolist() == [1, 0]


def test_bounds_of_complete_rows_and_columns_leave_ranks_as_they_are():
    epsilon, values = 0.3, torch.randn(4, 42, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[4:, 5:] = False
    bounded = epsilon_rank(values, (6, 7), epsilon, mask=mask.flatten(), restarts=1)
    search = [Search((6, 7), rank, 200, 1e-5).best(values, 1, mask.flatten())[1] for rank in range(1, 7)]
    assert bounded.tolist() == (1 + (torch.stack(search) > epsilon).sum(dim=0)).tolist()


def test_singular_values_are_as_good_as_a_search():
    values = planted((6, 7), 4, 5)
    ranks = epsilon_rank(values, (6, 7), 0.2)
    for own, rank in zip(values.unflatten(-1, (6, 7)), ranks.tolist(), strict=True):
        tails = [torch.linalg.svdvals(own)[k:].norm() <= 0.2 * own.norm() for k in range(5)]
        assert tails.index(True) == rank


SHAPE = (8, 9)


def box(shape=SHAPE, rows=slice(2, 6), columns=slice(3, 7)):
    held_out = torch.zeros(shape, dtype=torch.bool)
    held_out[rows, columns] = True
    return held_out.flatten()


def slow_rank(values, epsilon):
    """The least rank of one matrix: singular value decompositions, cut off one by one."""
    u, s, vh = torch.linalg.svd(values)
    for rank in range(len(s) + 1):
        if (values - u[:, :rank] @ torch.diag(s[:rank]) @ vh[:rank]).norm() <= epsilon * values.norm():
            return rank
    raise AssertionError


def test_every_pixel_of_a_bump_is_a_product():
    task = BumpTask(size=10)
    target = task.render(task.grid.points).flatten(1)
    held_out = box(task.grid.shape)
    ranks = learnt_complexity(target[None], task.grid.shape, held_out, 1e-3)
    for region in (ranks.everywhere, ranks.kept, ranks.held_out):
        assert torch.allclose(region.mean, torch.ones_like(region.mean))
        assert torch.allclose(region.distribution[..., 1], torch.ones_like(region.mean))


def test_a_superposer_shows_a_sum_where_it_was_not_trained():
    """On the block it adds what it knows of x to what it knows of y; elsewhere it is right."""
    target = planted(SHAPE, 1, 5).T
    grid, held_out = target.unflatten(0, SHAPE), box()
    superposed = (grid[:, :1] + grid[:1]).flatten(0, 1)
    outputs = torch.where(held_out[:, None], superposed, target)
    complexity = learnt_complexity(torch.stack([target, outputs]), SHAPE, held_out, 1e-6)
    assert complexity.everywhere.rank.tolist() == [[1] * 5, [3] * 5]
    assert complexity.kept.rank.tolist() == [[1] * 5, [1] * 5]
    assert complexity.held_out.rank.tolist() == [[1] * 5, [2] * 5]
    assert complexity.held_out.mean.tolist() == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("epsilon", [0.3, 0.05])
def test_ranks_on_whole_grids_are_those_of_singular_values(epsilon):
    outputs = torch.randn(2, 72, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    complexity = learnt_complexity(outputs, SHAPE, box(), epsilon)
    for member, pixel in [(0, 0), (0, 3), (1, 1), (1, 2)]:
        own = outputs[member, :, pixel].unflatten(0, SHAPE)
        assert complexity.everywhere.rank[member, pixel] == slow_rank(own, epsilon)
        assert complexity.held_out.rank[member, pixel] == slow_rank(own[2:6, 3:7], epsilon)
    assert (complexity.kept.rank <= complexity.everywhere.rank).all()


def test_the_least_rank_around_a_missing_corner_is_known():
    """[[A, B], [C, ?]] can be completed to rank([A B]) + rank([A; C]) − rank(A), and to no less."""
    values = torch.zeros(4, 8, 9, dtype=torch.float64)
    values[:, :5, :5] = planted((5, 5), 1, 4).unflatten(-1, (5, 5))
    values[:, :5, 5:] = planted((5, 4), 2, 4).unflatten(-1, (5, 4))
    values[:, 5:, :5] = torch.randn(3, 5, dtype=torch.float64) @ values[:, :5, :5]  # as rows of A
    outputs = values.flatten(1).T
    held_out = box(rows=slice(5, 8), columns=slice(5, 9))
    complexity = learnt_complexity(outputs, SHAPE, held_out, 1e-6)
    parts = [(own[:5], own[:, :5], own[:5, :5]) for own in values]
    wide, tall, corner = (
        torch.stack([torch.linalg.matrix_rank(own) for own in kind]) for kind in zip(*parts, strict=True)
    )
    assert complexity.kept.rank.tolist() == (wide + tall - corner).tolist() == [3] * 4


def test_a_missing_entry_may_be_as_large_as_it_takes():
    """[[0, 1], [1, ?]] has rank 2, but [[δ, 1], [1, 1/δ]] has rank 1 and is as near as one likes."""
    outputs = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    held_out = torch.tensor([False, False, False, True])
    assert learnt_complexity(outputs, (2, 2), held_out, 0.01).kept.rank.item() == 1


def test_bright_pixels_count_by_their_energy():
    outputs = torch.stack([2 * planted(SHAPE, 1, 1)[0], planted(SHAPE, 3, 1)[0], torch.zeros(72)], dim=-1)
    outputs = outputs / outputs.norm(dim=0).clamp(min=1e-9) * torch.tensor([2.0, 1.0, 0.0])
    everywhere = learnt_complexity(outputs, SHAPE, box(), 1e-6, largest=2).everywhere
    assert everywhere.rank.tolist() == [1, MORE, 0]
    assert everywhere.distribution.tolist() == pytest.approx([0, 0.8, 0, 0.2])
    assert everywhere.mean.item() == pytest.approx(0.8 * 1 + 0.2 * 3)


def test_constant_pixels_have_rank_one_and_dark_ones_none():
    complexity = learnt_complexity(torch.stack([torch.ones(72, 1), torch.zeros(72, 1)]), SHAPE, box(), 0.1)
    for region in ("everywhere", "kept", "held_out"):
        assert getattr(complexity, region).mean.tolist() == [1, 0]


def test_nan_and_masks_on_one_side_are_refused():
    ones = torch.ones(72, 2)
    for held_out in (box() & False, box() | True):
        with pytest.raises(InvalidValue, match="held_out"):
            learnt_complexity(ones, SHAPE, held_out, 0.1)
    with pytest.raises(InvalidValue, match="images"):
        pixel_ranks(ones * torch.nan, SHAPE, box(), 0.1)
