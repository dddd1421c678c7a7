"""Orders of interaction of a kernel: known answers and a slow, obvious oracle."""

from math import prod

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.metrics import interaction_weights, landmarks, partial_factorization


def random_kernel(points, seed=0):
    root = torch.randn(points, points, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.mT


def oracle(gram, shape, inside):
    """A_S K A_S with A_S written out as a matrix."""
    parts = []
    for factor, count in enumerate(shape):
        mean = np.full((count, count), 1 / count)
        parts.append(np.eye(count) - mean if factor in inside else mean)
    projection = np.ones((1, 1))
    for part in parts:
        projection = np.kron(projection, part)
    return np.square(projection @ gram.numpy() @ projection).sum()


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5,)])
def test_weights_agree_with_projections_written_out(shape):
    gram = random_kernel(int(np.prod(shape)))
    for inside, weight in interaction_weights(gram, shape).items():
        assert weight.item() == pytest.approx(oracle(gram, shape, inside))


def test_additive_kernel_is_all_single_factor():
    rows, columns = random_kernel(4, 1), random_kernel(5, 2)
    gram = torch.kron(rows, torch.ones(5, 5, dtype=torch.float64)) + torch.kron(torch.ones(4, 4).double(), columns)
    assert partial_factorization(gram, (4, 5)).item() == pytest.approx(1.0)
    assert partial_factorization(gram, (4, 5), weight="absolute").item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("count", [3, 6])
def test_delta_kernel_is_nearly_all_top_order(count):
    gram = torch.eye(count**2)
    assert 1 - partial_factorization(gram, (count, count)).item() == pytest.approx((count - 1) / (count + 1))


def test_all_orders_together_are_everything_and_members_are_separate():
    grams = torch.stack([random_kernel(12, seed) for seed in range(3)])
    assert partial_factorization(grams, (3, 4), family=[{0}, {1}, {0, 1}]) == pytest.approx(torch.ones(3).double())
    together = partial_factorization(grams, (3, 4))
    alone = torch.stack([partial_factorization(gram, (3, 4)) for gram in grams])
    assert torch.allclose(together, alone)


def test_pairs_and_triples_are_distinct():
    x, y, z = random_kernel(2, 1), random_kernel(3, 2), random_kernel(2, 3)
    ones = torch.ones(2, 2).double()
    gram = torch.kron(torch.kron(x, y), ones) + torch.kron(torch.kron(ones, torch.ones(3, 3).double()), z)
    weights = interaction_weights(gram, (2, 3, 2))
    assert all(weights[s].item() == pytest.approx(0, abs=1e-9) for s in weights if 2 in s and len(s) > 1)


def or_kernel(shape):
    none_shared = torch.ones(1, 1).double()
    for count in shape:
        none_shared = torch.kron(none_shared, 1 - torch.eye(count).double())
    return 1 - none_shared


@pytest.mark.parametrize("shape", [(4, 7), (3, 4, 6)])
def test_the_or_kernels_split_is_known(shape):
    weights = interaction_weights(or_kernel(shape), shape)
    total = sum(prod(shape[k] - 1 for k in range(len(shape)) if k not in inside) for inside in weights)
    whole = torch.stack(list(weights.values())).sum()
    for inside, weight in weights.items():
        others = prod(shape[k] - 1 for k in range(len(shape)) if k not in inside)
        assert (weight / whole).item() == pytest.approx(others / total)
    if len(shape) == 2:
        assert partial_factorization(or_kernel(shape), shape).item() == pytest.approx((4 + 7 - 2) / (4 + 7 - 1))


def test_a_family_counts_its_own_terms_only():
    gram, shape = random_kernel(24), (2, 3, 4)
    weights = interaction_weights(gram, shape)
    expected = (weights[0, 2] + weights[1,]) / sum(weights.values())
    for family in ([(2, 0), (1,)], {frozenset({0, 2}), frozenset({1})}, ([0, 2], {1})):
        assert partial_factorization(gram, shape, family=family).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("family", [[], [{2}], [{-1}], [set()], [(0, 0)]], ids=str)
def test_terms_that_are_not_there_are_refused(family):
    with pytest.raises(InvalidValue, match="family"):
        partial_factorization(torch.eye(4), (2, 2), family=family)


def test_known_kernels_lie_between_memorisation_and_factorization():
    marks = landmarks((8, 6))
    assert list(marks) == ["delta", "additive", "or", "broad", "bump"]
    assert marks["delta"].item() == pytest.approx(0, abs=1e-9)
    assert marks["additive"].item() == pytest.approx(1)
    delta = (8 + 6 - 2) / (8 * 6 - 1)
    assert marks["or"].item() == pytest.approx(((8 + 6 - 2) / (8 + 6 - 1) - delta) / (1 - delta))
    order = [marks[name].item() for name in ("delta", "bump", "broad", "additive")]
    assert order == sorted(order)
