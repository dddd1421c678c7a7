"""Sums of products: planted ones are found, and what is found is what it says it is."""

import itertools

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.ranks import cp_decomposition, exact_rank
from recombine.theory.search import Problems, Search, _fitted, khatri_rao, swept
from tests.theory.planted import holed, planted, with_noise

SHAPES = [(7, 8), (5, 6, 7), (4, 5, 5, 6)]
SOLVED = 1e-6


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rank", [1, 2, 4, 6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_planted_sums_are_found(shape, rank, count):
    values = planted(shape, rank, count)
    solved = cp_decomposition(values, shape, rank)
    assert (solved.error < SOLVED).double().mean() >= 0.95
    assert torch.allclose(solved.values[solved.error < SOLVED], values[solved.error < SOLVED], atol=1e-4)
    if rank > 1:
        assert (cp_decomposition(values, shape, rank - 1, restarts=1).error > 1e-3).all()


LARGE = [(16, 17), (6, 7, 8), (5, 5, 6, 6)]


@pytest.mark.parametrize(
    ("shape", "rank", "count"),
    [
        ((9, 10), 2, 6), ((5, 6, 7), 3, 6), ((4, 5, 5, 6), 3, 6),
        *(pytest.param(shape, rank, 100, marks=pytest.mark.slow) for shape in LARGE for rank in range(1, 7)),
    ],
    ids=str,
)  # fmt: skip
def test_with_holes_every_planted_sum_is_found_and_fills_them(shape, rank, count):
    values, mask = planted(shape, rank, count, seed=1), holed(shape)
    spoilt = torch.where(mask, values, 1e6)  # what is not counted may be anything
    solved = cp_decomposition(spoilt, shape, rank, mask=mask, restarts=12)
    assert (solved.error < SOLVED).all()
    assert torch.allclose(solved.values, values, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)], ids=str)
def test_what_is_missing_may_be_nan(shape):
    values, mask = planted(shape, 1, 3), holed(shape, 0.05)
    missing = torch.where(mask, values, torch.nan)
    whole, holes = (cp_decomposition(own, shape, 1, mask=mask) for own in (values, missing))
    assert torch.equal(whole.values, holes.values)
    assert torch.equal(*(exact_rank(own, shape, largest=1, mask=mask) for own in (values, missing)))
    with pytest.raises(InvalidValue, match="values"):
        cp_decomposition(missing, shape, 1)
    with pytest.raises(InvalidValue, match="mask"):
        cp_decomposition(values, shape, 1, mask=mask & False)


def test_two_factors_are_the_singular_values():
    values = with_noise(planted((7, 8), 3, 5), 0.3)
    expected = torch.linalg.svdvals(values.unflatten(-1, (7, 8)))
    solved = cp_decomposition(values, (7, 8), 2)
    assert torch.allclose(solved.weights, expected[:, :2])
    assert torch.allclose(solved.error, expected[:, 2:].norm(dim=-1) / expected.norm(dim=-1))
    searched, error = Search((7, 8), 2, 500, 1e-12).best(values, 3)
    assert torch.allclose(error, solved.error, rtol=1e-6)
    assert torch.allclose(khatri_rao(searched).sum(dim=-1), solved.values, atol=1e-4)


@pytest.mark.parametrize("mask", [None, holed((3, 4, 2))], ids=["whole", "holed"])
def test_steps_solve_the_normal_equations_of_all_derivatives(mask):
    """Against derivatives by automatic differentiation, entry by entry."""
    shape, rank = (3, 4, 2), 2
    search = Search(shape, rank, 1, 1e-5)
    entries = torch.randn(1, 24, dtype=torch.float64)
    counted = None if mask is None else mask.double()[None]
    entries = entries if mask is None else entries * mask
    problem = Problems(shape, entries, counted)
    for numbers in torch.randn(2, 18, dtype=torch.float64):
        functions = search._functions(numbers[None])
        sums = lambda v: khatri_rao(search._functions(v[None])).sum(dim=-1)[0]  # noqa: E731
        jacobian = torch.autograd.functional.jacobian(sums, numbers)
        jacobian = jacobian if mask is None else jacobian * mask[:, None]
        normal = jacobian.T @ jacobian
        assert torch.allclose(search._normal(problem, functions)[0].tril(), normal.tril())
        left = problem.left(functions)
        damped = normal + 0.5 * normal.diagonal().mean() * torch.eye(18, dtype=torch.float64)
        expected = torch.linalg.solve(damped, jacobian.T @ left[0])
        step = search._step(problem, numbers[None], torch.tensor([0.5], dtype=torch.float64))
        assert torch.allclose(step[0], expected)


@pytest.mark.parametrize("mask", [None, holed((3, 4, 2), 0.0)], ids=["whole", "holed"])
def test_a_sweep_fits_the_last_factor_as_least_squares_does(mask):
    shape = (3, 4, 2)
    entries = torch.randn(1, 24, dtype=torch.float64)
    entries = entries if mask is None else entries * mask
    problem = Problems(shape, entries, None if mask is None else mask.double()[None])
    functions = [torch.randn(1, size, 2, dtype=torch.float64) for size in shape]
    fitted = _fitted(problem, functions, 2)[0]
    products = khatri_rao(functions[:2])[0]
    for value in range(2):
        there = slice(None) if mask is None else mask.unflatten(0, (12, 2))[:, value]
        own = torch.linalg.lstsq(products[there], entries.unflatten(-1, (12, 2))[0, there, value]).solution
        assert torch.allclose(fitted[value], own, atol=1e-2)
    before, after = (problem.left(own).norm() for own in (functions, swept(problem, functions, 3, 1e-5)[0]))
    assert after < before


def test_values_are_sums_of_products_of_unit_functions():
    solved = cp_decomposition(planted((3, 4, 5), 2, 2), (3, 4, 5), 2)
    for factor in solved.factors:
        assert torch.allclose(factor.norm(dim=-2), torch.ones(2, 2, dtype=torch.float64))
    assert (solved.weights.diff(dim=-1) <= 0).all()
    x, y, z = solved.factors
    for point, (i, j, k) in enumerate(itertools.product(range(3), range(4), range(5))):
        slow = sum(solved.weights[0, r] * x[0, i, r] * y[0, j, r] * z[0, k, r] for r in range(2))
        assert solved.values[0, point].item() == pytest.approx(slow.item())


def test_a_problem_ends_the_same_alone_and_in_a_batch():
    values = planted((4, 5, 3), 3, 4)
    together = cp_decomposition(values.unflatten(0, (2, 2)), (4, 5, 3), 2, restarts=1)
    assert together.error.shape == (2, 2)
    alone = cp_decomposition(values[0], (4, 5, 3), 2, restarts=1)
    assert together.error[0, 0].item() == pytest.approx(alone.error.item(), rel=1e-3)


def test_what_is_nothing_or_huge_or_tiny():
    assert cp_decomposition(torch.zeros(12), (3, 4), 2).error.item() == 0
    assert cp_decomposition(torch.zeros(12), (3, 2, 2), 1).error.item() < 1e-9
    for size in (1e-200, 1e200):
        assert cp_decomposition(planted((3, 4, 2), 1, 1) * size, (3, 4, 2), 1).error.item() < SOLVED
