"""Cross-terms and factorization by region: known answers, and the cosines that a loop finds."""

import itertools

import numpy as np
import pytest
import torch

from recombine.metrics import cross_terms
from tests.metrics.comparison import columns_of, stage_over
from tests.small import noise

METRICS = ["cross_term", "cross_term_held_out", "factorization_held_out"]


@pytest.mark.parametrize("factors", [2, 3])
def test_they_are_cosines_of_tangents(factors):
    tangents = noise(2, 7, 5, factors)
    ours = cross_terms(tangents.mT @ tangents)
    for member, point in itertools.product(range(2), range(7)):
        columns = tangents[member, point].numpy().T
        cosines = [abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.combinations(columns, 2)]
        assert ours[member, point].item() == pytest.approx(np.mean(cosines))


def test_a_factor_that_moves_nothing_is_left_out():
    tangents = noise(5, 3)
    tangents[:, 2] = 0
    metric = tangents.mT @ tangents
    torch.testing.assert_close(cross_terms(metric), cross_terms(metric[:2, :2]))
    assert cross_terms(torch.diag(torch.tensor([1.0, 0.0]))).isnan()
    assert cross_terms(torch.zeros(2, 2)).isnan()


def test_it_stays_within_one_whatever_the_rounding():
    tangents = noise(1000, 4, 1).float().expand(1000, 4, 2) * torch.tensor([1.0, 3.0])
    cosines = cross_terms(tangents.mT @ tangents)
    assert cosines.max() <= 1
    assert cosines.min() > 1 - 1e-6


def test_stages_have_means_over_regions_that_skip_points_without_a_cosine():
    eye, same = torch.eye(2), torch.ones(2, 2)
    still = torch.diag(torch.tensor([1.0, 0.0]))
    metric = torch.stack([eye, same, same, still])
    stage = stage_over(torch.rand(4, 3), (2, 2), torch.tensor([True, False, True, True]), metric)
    columns = {name: value.item() for name, value in columns_of(stage, METRICS).items()}
    assert columns["cross_term"] == pytest.approx(2 / 3)
    assert columns["cross_term_held"] == pytest.approx(1 / 2)
    assert columns["factorization_held"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert columns["factorization_kept"] == pytest.approx(0.5)
