"""Cross-terms and factorization by region: known answers, and the cosines that a loop finds."""

import itertools
import math

import numpy as np
import pytest
import torch

from recombine.factors import Factor, FactorGrid
from recombine.metrics import cross_terms, local_factorization
from recombine.metrics.profile import stage_profile
from recombine.metrics.registry import Stage

METRICS = ["cross_term", "cross_term_held_out", "factorization_held_out"]


def jacobians(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("factors", [2, 3])
def test_they_are_cosines_of_tangents(factors):
    tangents = jacobians(2, 7, 5, factors)
    ours = cross_terms(tangents.mT @ tangents)
    for member, point in itertools.product(range(2), range(7)):
        columns = tangents[member, point].numpy().T
        cosines = [abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.combinations(columns, 2)]
        assert ours[member, point].item() == pytest.approx(np.mean(cosines))


def test_a_factor_that_moves_nothing_is_left_out():
    tangents = jacobians(5, 3)
    tangents[:, 2] = 0
    metric = tangents.mT @ tangents
    torch.testing.assert_close(cross_terms(metric), cross_terms(metric[:2, :2]))
    assert cross_terms(torch.diag(torch.tensor([1.0, 0.0]))).isnan()
    assert cross_terms(torch.zeros(2, 2)).isnan()


def test_it_stays_within_one_whatever_the_rounding():
    tangents = jacobians(1000, 4, 1).float().expand(1000, 4, 2) * torch.tensor([1.0, 3.0])
    cosines = cross_terms(tangents.mT @ tangents)
    assert cosines.max() <= 1
    assert cosines.min() > 1 - 1e-6


def test_stages_have_means_over_regions_that_skip_points_without_a_cosine():
    grid = FactorGrid((Factor("x", 0, 1, 2), Factor("y", 0, 1, 2)))
    eye, same = torch.eye(2), torch.ones(2, 2)
    still = torch.diag(torch.tensor([1.0, 0.0]))
    metric = torch.stack([eye, same, same, still])
    stage = Stage("output", torch.rand(4, 3), grid.points, grid, torch.tensor([True, False, True, True]), metric)
    columns = {name: values[0].item() for name, values in stage_profile([stage], METRICS).columns.items()}
    assert columns["cross_term"] == pytest.approx(2 / 3)
    assert columns["cross_term_held"] == pytest.approx(1 / 2)
    assert columns["factorization_held"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert columns["factorization_kept"] == pytest.approx(0.5)


def test_members_and_regions_add_up_to_the_whole():
    grid = FactorGrid((Factor("x", 0, 4, 5), Factor("y", 0, 3, 4)))
    tangents = jacobians(3, 20, 6, 2)
    metric, held_out = tangents.mT @ tangents, torch.arange(20) % 3 == 0
    stage = Stage("output", torch.rand(3, 20, 2), grid.points, grid, held_out, metric)
    columns = {name: values[0] for name, values in stage_profile([stage], METRICS).columns.items()}
    assert all(values.shape == (3,) for values in columns.values())
    share = held_out.double().mean()
    whole = share * columns["factorization_held"] + (1 - share) * columns["factorization_kept"]
    torch.testing.assert_close(whole, local_factorization(metric).mean(dim=-1))
    assert not math.isclose(columns["cross_term"][0], columns["cross_term"][1])
    torch.testing.assert_close(columns["cross_term_held"], cross_terms(metric)[:, held_out].mean(dim=1))
