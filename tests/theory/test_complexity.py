"""Ranks of functions: planted ones are recovered, exact, with noise and with holes."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.tasks import BumpTask
from recombine.theory.complexity import epsilon_rank, exact_rank, rank_curve
from recombine.theory.least_ranks import MORE
from recombine.theory.left_out import _folds, _refined
from recombine.theory.search import Search, khatri_rao
from tests.theory.planted import holed, planted, with_noise

SHAPES = [(12, 12), (6, 6, 6), (5, 5, 5, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(1, 7))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_planted_ranks_are_recovered_exactly(shape, rank):
    assert (exact_rank(planted(shape, rank, 100), shape) == rank).double().mean() >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(1, 7))
@pytest.mark.parametrize("shape", [(16, 16), (7, 7, 7), (5, 5, 5, 5)], ids=str)
def test_planted_ranks_are_recovered_through_noise(shape, rank):
    curve = rank_curve(with_noise(planted(shape, rank, 100), 0.1), shape, largest=7)
    assert (curve.chosen == rank).double().mean() >= 0.95


@pytest.mark.parametrize(("shape", "rank"), [((8, 9), 3), ((4, 5, 6), 2), ((3, 4, 3, 4), 2)], ids=str)
def test_a_few_planted_ranks(shape, rank):
    values = planted(shape, rank, 5)
    assert exact_rank(values, shape, largest=4).tolist() == [rank] * 5
    assert exact_rank(values, shape, largest=4, mask=holed(shape, 0.05)).tolist() == [rank] * 5
    assert exact_rank(values, shape, largest=rank - 1).tolist() == [MORE] * 5


def test_a_rank_through_noise_has_a_curve():
    values = with_noise(planted((10, 10), 2, 4), 0.05)
    curve = rank_curve(values.unflatten(0, (2, 2)), (10, 10), largest=3)
    assert curve.ranks == (0, 1, 2, 3)
    assert curve.chosen.tolist() == [[2, 2], [2, 2]]
    assert (curve.low <= curve.chosen).all()
    assert (curve.high >= curve.chosen).all()
    assert (curve.error.diff(dim=-1) < 0).all(), "entries that are fitted are fitted better with every rank"
    assert torch.allclose(curve.left_out[..., 0], torch.ones(2, 2, dtype=torch.float64))
    assert (curve.left_out[..., 2] < 0.2).all()


@pytest.mark.parametrize("noise", [0.0, 0.01], ids=["none", "little"])
@pytest.mark.parametrize("shape", [(10, 10), (5, 5, 5)], ids=str)
def test_a_curve_without_noise_does_not_ask_for_more_products(shape, noise):
    curve = rank_curve(with_noise(planted(shape, 2, 6), noise), shape, largest=4)
    assert curve.chosen.tolist() == [2] * 6
    assert (curve.left_out[:, 2] < 0.03).all()


def test_what_is_left_out_is_not_looked_at():
    """A fold's prediction does not change when the entries change that it is asked for."""
    shape, values = (6, 6, 6), planted((6, 6, 6), 2, 3)
    out = next(_folds(torch.ones(216, dtype=torch.bool), 5, 0))
    masks = (~out).expand(3, -1)
    search = Search(shape, 2, 40, 1e-3, 0)
    predicted = [khatri_rao(_refined(search, own, masks, None, 1)) for own in (values, values + 100 * out)]
    assert torch.equal(*predicted)


def test_noise_alone_has_no_rank():
    noise = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    curve = rank_curve(noise, (8, 8), largest=2)
    assert (curve.chosen == 0).double().mean() >= 0.8


def test_a_bump_is_a_product_and_a_superposition_of_two_is_not():
    task = BumpTask(size=10)
    images = task.render(task.grid.points).flatten(1).T
    shape = task.grid.shape
    bright = images[images.amax(dim=-1) > 0.5]
    assert set(exact_rank(bright, shape, largest=2).tolist()) == {1}
    moved = bright.unflatten(-1, shape).roll((2, 3), (-2, -1)).flatten(-2)
    assert set(exact_rank(bright + moved, shape, largest=3).tolist()) == {2}


def test_epsilon_orders_ranks():
    x, y = torch.meshgrid(torch.linspace(0, 1, 9), torch.linspace(0, 1, 9), indexing="ij")
    ridge = torch.exp(-50 * (x - y).square()).flatten()
    ranks = [epsilon_rank(ridge, (9, 9), epsilon, largest=9).item() for epsilon in (0.5, 0.1, 0.01)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]


def test_two_products_come_near_any_sum_of_three_functions():
    """The difference of two products over their distance is a derivative, and that of a product is such a sum."""
    x, y, z = torch.meshgrid(*[torch.linspace(-1, 1, 4, dtype=torch.float64)] * 3, indexing="ij")
    total = (x + y + z).flatten()
    near = (((1 + 0.03 * x) * (1 + 0.03 * y) * (1 + 0.03 * z) - 1) / 0.03).flatten()
    assert (near - total).norm() < 0.03 * total.norm()
    assert epsilon_rank(total, (4, 4, 4), 0.01).item() == exact_rank(near, (4, 4, 4), largest=2).item() == 2
    assert exact_rank(total, (4, 4, 4), largest=2).item() == MORE


def test_constants_and_nothing():
    assert exact_rank(torch.ones(12), (3, 4)).item() == 1
    assert exact_rank(torch.zeros(12), (3, 4)).item() == 0
    some = torch.arange(12) < 7
    values = torch.stack([torch.ones(12), torch.zeros(12)])
    for shape in [(3, 4), (3, 2, 2)]:
        assert exact_rank(values, shape, mask=some).tolist() == [1, 0]
        curve = rank_curve(values, shape, largest=2)
        assert curve.chosen.tolist() == [1, 0]
        assert curve.left_out[1].tolist() == [0, 0, 0]


def test_more_products_than_there_can_be_are_not_tried():
    assert exact_rank(torch.randn(4), (2, 2), largest=99).item() == 2
    assert rank_curve(torch.randn(6), (2, 3), largest=99).ranks == tuple(range(7))


def test_bounds_of_complete_rows_and_columns_leave_ranks_as_they_are():
    epsilon, values = 0.3, torch.randn(8, 42, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[4:, 5:] = False
    bounded = epsilon_rank(values, (6, 7), epsilon, mask=mask.flatten(), restarts=4)
    search = [Search((6, 7), rank, 200, 1e-5, 0).best(values, 4, mask.flatten())[1] for rank in range(1, 7)]
    assert bounded.tolist() == (1 + (torch.stack(search) > epsilon).sum(dim=0)).tolist()


def test_singular_values_are_as_good_as_a_search():
    values = planted((6, 7), 4, 5)
    ranks = epsilon_rank(values, (6, 7), 0.2)
    for own, rank in zip(values.unflatten(-1, (6, 7)), ranks.tolist(), strict=True):
        tails = [torch.linalg.svdvals(own)[k:].norm() <= 0.2 * own.norm() for k in range(5)]
        assert tails.index(True) == rank


MISTAKES = {
    "epsilon": (lambda: epsilon_rank(torch.ones(12), (3, 4), 0.0), "epsilon"),
    "largest": (lambda: exact_rank(torch.ones(12), (3, 4), largest=0), "largest"),
    "one factor": (lambda: exact_rank(torch.ones(12), (12,)), "shape"),
    "no start": (lambda: rank_curve(torch.ones(12), (3, 4), restarts=0), "restarts"),
    "no start of a rank": (lambda: epsilon_rank(torch.ones(12), (3, 4), 0.1, restarts=0), "restarts"),
    "one factor of a curve": (lambda: rank_curve(torch.ones(12), (12,)), "shape"),
    "nothing counts": (lambda: exact_rank(torch.ones(12), (3, 4), mask=torch.zeros(12, dtype=torch.bool)), "mask"),
    "nothing counts in a curve": (
        lambda: rank_curve(torch.ones(12), (3, 4), mask=torch.zeros(12, dtype=torch.bool)), "mask"
    ),
    "no problem": (lambda: exact_rank(torch.ones(0, 12), (3, 4)), "values"),
    "NaN of a rank": (lambda: epsilon_rank(torch.full((12,), torch.nan), (3, 4), 0.1), "values"),
    "a seed too large": (lambda: rank_curve(torch.ones(12), (3, 4), seed=2**70), "seed"),
    "NaN": (lambda: rank_curve(torch.full((12,), torch.nan), (3, 4)), "values"),
    "folds": (lambda: rank_curve(torch.ones(12), (3, 4), folds=2), "folds"),
    "fewer entries than folds": (lambda: rank_curve(torch.ones(12), (3, 4), mask=torch.arange(12) < 3), "mask"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name):
    call, field = MISTAKES[name]
    with pytest.raises(InvalidValue, match=field) as raised:
        call()
    assert "\n" not in str(raised.value)
