"""A kernel's place between memorisation and factorization, in both readings."""

from functools import reduce

import pytest
import torch

from recombine.metrics import effective_rank, kernel_axis, landmarks, partial_factorization, schmidt_spectrum
from tests.metrics.test_factorization import random_kernel


def additive(shape):
    ones = [torch.ones(count, count).double() for count in shape]
    terms = [
        [random_kernel(count, k) if k == j else ones[j] for j, count in enumerate(shape)]
        for k, count in enumerate(shape)
    ]
    return sum(reduce(torch.kron, term) for term in terms)


def test_two_factors_are_pf_and_schmidt_rank():
    grams = torch.stack([random_kernel(20, seed) for seed in range(3)])
    place = kernel_axis(grams, (4, 5))
    assert torch.equal(place.single_factor, partial_factorization(grams, (4, 5)))
    assert torch.allclose(place.rank, effective_rank(schmidt_spectrum(grams, (4, 5)).square()))
    delta = (3 + 4) / 19
    assert torch.allclose(place.above_delta, (place.single_factor - delta) / (1 - delta))


def test_both_ends_and_what_rank_cannot_tell():
    marks = landmarks((8, 6))
    assert list(marks) == ["delta", "additive", "or", "broad", "bump"]
    assert marks["delta"].above_delta.item() == pytest.approx(0, abs=1e-9)
    assert marks["additive"].above_delta.item() == pytest.approx(1)
    for product in ("delta", "broad", "bump"):
        assert marks[product].rank.item() == pytest.approx(1)
    assert marks["additive"].rank.item() > 1.5
    assert marks["or"].rank.item() > 1.5
    assert marks["or"].single_factor.item() == pytest.approx((8 + 6 - 2) / (8 + 6 - 1))
    order = [marks[name].above_delta.item() for name in ("delta", "bump", "broad", "additive")]
    assert order == sorted(order)


def test_three_factors_have_ranks_too():
    shape = (3, 3, 3)
    product = torch.kron(torch.kron(random_kernel(3, 1), random_kernel(3, 2)), random_kernel(3, 3))
    place = kernel_axis(torch.stack([product, additive(shape), torch.eye(27).double()]), shape, largest=4)
    assert place.rank[0].item() == pytest.approx(1, abs=1e-3)
    assert 1.1 < place.rank[1].item() <= 3
    assert place.rank[2].item() == pytest.approx(1, abs=1e-3)
    assert place.single_factor[1].item() == pytest.approx(1)
    assert place.above_delta[2].item() == pytest.approx(0, abs=1e-9)


def test_orthogonal_terms_of_three_factors_count_each():
    """Two products that have nothing in common are two terms, of equal weight or not."""
    first = torch.diag(torch.tensor([1.0, 0.0, 0.0])).double()
    second = torch.diag(torch.tensor([0.0, 1.0, 0.0])).double()
    terms = [torch.kron(torch.kron(own, own), own) for own in (first, second)]
    grams = torch.stack([terms[0] + terms[1], terms[0] + 0.5 * terms[1]])
    shares = torch.tensor([[0.5, 0.5], [0.8, 0.2]])
    assert torch.allclose(kernel_axis(grams, (3, 3, 3), largest=3).rank, effective_rank(shares), atol=1e-3)


def test_what_has_no_place():
    place = kernel_axis(torch.stack([torch.ones(6, 6), torch.zeros(6, 6)]), (2, 3))
    assert place.single_factor.isnan().all()
    assert place.rank[0].item() == pytest.approx(1)
    assert place.rank[1].isnan()
