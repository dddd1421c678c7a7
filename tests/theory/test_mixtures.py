"""Mixtures of products: divergences that are known, planted mixtures that are found."""

import itertools
import math

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.mixtures import mixture_of_products, mixture_rank
from recombine.theory.ranks import MORE
from tests.theory.planted import planted_mixture


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


def test_a_diagonal_needs_a_product_for_each_value():
    diagonal = torch.eye(4).flatten() / 4
    assert mixture_rank(diagonal, (4, 4), 1e-3).item() == 4
    assert mixture_rank(diagonal, (4, 4), 1e-3, largest=3).item() == MORE


@pytest.mark.parametrize(
    "probabilities",
    [torch.tensor([1.5, -0.5, 0, 0]), torch.ones(4), torch.full((4,), torch.nan)],
    ids=["negative", "not of sum 1", "NaN"],
)
def test_what_is_no_distribution_is_refused(probabilities):
    with pytest.raises(InvalidValue, match="probabilities"):
        mixture_rank(probabilities, (2, 2), 0.1)
