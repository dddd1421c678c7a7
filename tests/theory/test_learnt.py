"""What networks learnt beside the target: ranks that are known, in every region."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.tasks import BumpTask
from recombine.theory.ranks import MORE, learnt_complexity, pixel_ranks
from tests.theory.planted import planted

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


def test_constants_have_rank_one_and_nothing_rank_none():
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
