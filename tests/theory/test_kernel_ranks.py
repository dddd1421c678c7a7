"""Ranks of kernels: those that are known, and that two factors agree with the operator-Schmidt decomposition."""

from functools import reduce

import pytest
import torch

from recombine.metrics import schmidt_spectrum
from recombine.theory.ranks import kernel_decomposition, kernel_rank

SHAPES = [(4, 5), (3, 3, 4), (2, 3, 2, 3)]


def kron(parts):
    return reduce(torch.kron, parts)


def positive(size, seed):
    values = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values @ values.T


def product(shape, seed=0):
    return kron([positive(size, seed + k) for k, size in enumerate(shape)])


def alone(shape, axis, kernel):
    """A kernel of one factor that does not look at the others."""
    return kron([kernel if k == axis else torch.ones(size, size).double() for k, size in enumerate(shape)])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_deltas_have_rank_one(shape):
    points = torch.tensor(shape).prod().item()
    assert kernel_rank(torch.stack([product(shape), torch.eye(points).double()]), shape).tolist() == [1, 1]


@pytest.mark.parametrize("shape", [*SHAPES[:2], pytest.param(SHAPES[2], marks=pytest.mark.slow)], ids=str)
def test_additive_kernels_have_a_product_for_each_factor(shape):
    additive = sum(alone(shape, axis, positive(size, axis)) for axis, size in enumerate(shape))
    assert kernel_rank(additive, shape, largest=4, restarts=2).item() == len(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_or_kernel_is_two_products_whatever_the_number_of_factors(shape):
    ones = kron([torch.ones(size, size).double() for size in shape])
    none_shared = kron([torch.ones(size, size).double() - torch.eye(size) for size in shape])
    assert kernel_rank(ones - none_shared, shape, largest=3).item() == 2


def test_two_factors_are_the_operator_schmidt_decomposition():
    gram = product((4, 5)) + 0.5 * product((4, 5), seed=7) + 0.1 * torch.eye(20)
    spectrum = schmidt_spectrum(gram, (4, 5))
    weights = kernel_decomposition(gram, (4, 5), 4).weights
    assert torch.allclose(weights / gram.norm(), spectrum[:4])
    assert kernel_rank(gram, (4, 5)).item() == (spectrum > 1e-6).sum().item() == 3


def test_a_constant_kernel_is_one_product_and_none_is_none():
    assert kernel_rank(torch.stack([torch.ones(6, 6), torch.zeros(6, 6)]), (2, 3)).tolist() == [1, 0]
