"""Mixtures of products: divergences that are known, planted mixtures that are found."""

import itertools
import math

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.least_ranks import MORE
from recombine.theory.mixture_ranks import mixture_curve, mixture_rank
from recombine.theory.mixtures import mixture_of_products
from tests.theory.planted import planted_mixture, sampled


def entropy(probabilities):
    return -torch.special.xlogy(probabilities, probabilities).sum(dim=-1)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 2)], ids=str)
def test_one_product_leaves_the_total_correlation(shape):
    probabilities = planted_mixture(shape, 3, 4)
    grid = probabilities.unflatten(-1, shape)
    marginals = [
        grid.sum(dim=[1 + k for k in range(len(shape)) if k != axis]) for axis in range(len(shape))
    ]  # fmt: skip
    expected = sum(entropy(own) for own in marginals) - entropy(probabilities)
    found = mixture_of_products(probabilities, shape, 1)
    assert torch.allclose(found.divergence, expected, atol=1e-8)
    for own, marginal in zip(found.factors, marginals, strict=True):
        assert torch.allclose(own[..., 0], marginal, atol=1e-8)


@pytest.mark.parametrize("divergence", ["kl", "tv"])
def test_a_mixture_is_what_it_says(divergence):
    probabilities = planted_mixture((3, 4, 2), 4, 2, concentration=1.0)
    found = mixture_of_products(probabilities, (3, 4, 2), 2, divergence=divergence, restarts=2)
    assert torch.allclose(found.weights.sum(dim=-1), torch.ones(2, dtype=torch.float64))
    x, y, z = found.factors
    for point, (i, j, k) in enumerate(itertools.product(range(3), range(4), range(2))):
        slow = sum(found.weights[0, r] * x[0, i, r] * y[0, j, r] * z[0, k, r] for r in range(2))
        assert found.values[0, point].item() == pytest.approx(slow.item())
    for own, p, q in zip(found.divergence, probabilities, found.values, strict=True):
        terms = [a * math.log(a / b) if a > 0 else 0.0 for a, b in zip(p.tolist(), q.tolist(), strict=True)]
        slow = sum(terms) if divergence == "kl" else (p - q).abs().sum().item() / 2
        assert own.item() == pytest.approx(slow, abs=1e-9)


def test_each_divergence_is_smallest_where_it_is_asked_for():
    probabilities = planted_mixture((5, 5), 4, 6, concentration=0.8)
    near = {name: mixture_of_products(probabilities, (5, 5), 2, divergence=name, restarts=2) for name in ("kl", "tv")}
    distance = (probabilities - near["kl"].values).abs().sum(dim=-1) / 2
    assert (near["tv"].divergence <= distance + 1e-9).all()
    assert (near["tv"].divergence < distance - 1e-3).any()


@pytest.mark.parametrize(
    ("shape", "rank", "divergence"),
    [
        ((5, 6), 1, "tv"), ((6, 6), 2, "kl"), ((4, 4, 4), 3, "kl"),
        *(pytest.param(*own, marks=pytest.mark.slow) for own in (((6, 6), 2, "tv"), ((4, 4, 4), 3, "tv"))),
    ],
    ids=str,
)  # fmt: skip
def test_a_few_planted_mixtures(shape, rank, divergence):
    probabilities = planted_mixture(shape, rank, 4)
    ranks = mixture_rank(probabilities, shape, 5e-3, divergence=divergence, largest=rank + 1, restarts=3)
    assert ranks.tolist() == [rank] * 4


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(1, 5))
@pytest.mark.parametrize("shape", [(10, 10), (5, 5, 5), (4, 4, 4, 4)], ids=str)
def test_planted_mixtures_are_found_with_as_many_products(shape, rank):
    probabilities = planted_mixture(shape, rank, 100)
    assert (mixture_rank(probabilities, shape, 1e-3, largest=6) == rank).double().mean() >= 0.95
    curve = mixture_curve(sampled(probabilities, 100_000), shape, largest=6)
    assert (curve.chosen == rank).double().mean() >= 0.95


def test_a_sample_chooses_the_rank_of_its_distribution():
    counts = sampled(planted_mixture((6, 6), 2, 4), 20_000)
    curve = mixture_curve(counts.unflatten(0, (2, 2)), (6, 6), largest=3, restarts=2)
    assert curve.chosen.tolist() == [[2, 2], [2, 2]]
    assert (curve.low <= curve.chosen).all()
    assert (curve.high >= curve.chosen).all()
    assert (curve.left_out[..., 1] > curve.left_out[..., 0]).all()


def test_few_draws_choose_little():
    counts = sampled(planted_mixture((6, 6), 4, 4, concentration=5.0), 30)
    assert (mixture_curve(counts, (6, 6), largest=3, restarts=2).chosen <= 2).all()


def test_a_diagonal_needs_a_product_for_each_value():
    diagonal = torch.eye(4).flatten() / 4
    assert mixture_rank(diagonal, (4, 4), 1e-3).item() == 4
    assert mixture_rank(diagonal, (4, 4), 1e-3, largest=3).item() == MORE


def test_an_even_distribution_is_one_product():
    assert mixture_rank(torch.ones(12) / 12, (3, 4), 1e-6).item() == 1
    assert mixture_curve(torch.full((12,), 100), (3, 4), largest=3).chosen.item() == 1


MISTAKES = {
    "rank 0": (lambda: mixture_of_products(torch.ones(4) / 4, (2, 2), 0), "rank"),
    "negative": (lambda: mixture_of_products(torch.tensor([1.5, -0.5, 0, 0]), (2, 2), 1), "probabilities"),
    "no distribution": (lambda: mixture_of_products(torch.ones(4), (2, 2), 1), "probabilities"),
    "NaN": (lambda: mixture_rank(torch.full((4,), torch.nan), (2, 2), 0.1), "probabilities"),
    "one factor": (lambda: mixture_rank(torch.ones(4) / 4, (4,), 0.1), "shape"),
    "epsilon": (lambda: mixture_rank(torch.ones(4) / 4, (2, 2), 0.0), "epsilon"),
    "divergence": (lambda: mixture_of_products(torch.ones(4) / 4, (2, 2), 1, divergence="l2"), "divergence"),
    "no counts": (lambda: mixture_curve(torch.zeros(4, dtype=torch.int64), (2, 2)), "counts"),
    "more products than points": (lambda: mixture_of_products(torch.ones(4) / 4, (2, 2), 5), "rank"),
    "no start": (lambda: mixture_rank(torch.ones(4) / 4, (2, 2), 0.1, restarts=0), "restarts"),
    "no start of a curve": (lambda: mixture_curve(torch.full((4,), 9), (2, 2), restarts=0), "restarts"),
    "one factor of a curve": (lambda: mixture_curve(torch.full((4,), 9), (4,)), "shape"),
    "negative counts": (lambda: mixture_curve(torch.full((4,), -9), (2, 2)), "counts"),
    "a seed too large": (lambda: mixture_of_products(torch.ones(4) / 4, (2, 2), 1, seed=2**70), "seed"),
    "a seed of a curve": (lambda: mixture_curve(torch.full((4,), 9), (2, 2), seed=-1), "seed"),
    "largest": (lambda: mixture_rank(torch.ones(4) / 4, (2, 2), 0.1, largest=0), "largest"),
    "folds": (lambda: mixture_curve(torch.ones(4, dtype=torch.int64), (2, 2), folds=1), "folds"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name):
    call, field = MISTAKES[name]
    with pytest.raises(InvalidValue, match=field) as raised:
        call()
    assert "\n" not in str(raised.value)
