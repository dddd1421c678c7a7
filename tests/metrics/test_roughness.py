"""Roughness of a map over the grid: known answers, and a slow oracle."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from recombine.factors import Factor, FactorGrid
from recombine.metrics import log_volume, roughness
from recombine.metrics.profile import stage_profile
from recombine.metrics.registry import Stage
from recombine.metrics.volumes import _laplacian

SHAPES = [(7,), (5, 6), (4, 3, 5)]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow(values, shape, region):
    """Point by point, neighbour by neighbour."""
    grid, found = values.reshape(shape), []
    for place, counted in zip(itertools.product(*map(range, shape)), region, strict=True):
        if counted and all(0 < i < n - 1 for i, n in zip(place, shape, strict=True)):
            neighbours = 0.0
            for axis in range(len(shape)):
                for step in (-1, 1):
                    neighbours += grid[tuple(i + step * (axis == a) for a, i in enumerate(place))]
            found.append(abs(neighbours - 2 * len(shape) * grid[place]))
    return np.median(found) if found else math.nan


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_median_that_a_loop_finds(shape):
    values, region = random(3, math.prod(shape)), random(math.prod(shape), seed=1) > 0
    for member, row in enumerate(values):
        assert roughness(values, shape, region)[member].item() == pytest.approx(slow(row.numpy(), shape, region))
        everywhere = slow(row.numpy(), shape, [True] * math.prod(shape))
        assert roughness(row, shape).item() == pytest.approx(everywhere)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_laplacian_is_scipys_inside_and_nothing_on_the_border(shape):
    values = random(math.prod(shape))
    ours = _laplacian(values, shape).reshape(shape).numpy()
    inner = tuple(slice(1, -1) for _ in shape)
    np.testing.assert_allclose(ours[inner], ndimage.laplace(values.reshape(shape).numpy())[inner], atol=1e-12)
    assert np.isnan(ours).sum() == math.prod(shape) - math.prod(n - 2 for n in shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_known_answers(shape):
    places = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in shape)).reshape(-1, len(shape))
    factors = len(shape)
    assert roughness(places @ torch.arange(1.0, factors + 1).double(), shape).item() == pytest.approx(0, abs=1e-12)
    assert roughness(places.square().sum(dim=1) / 2, shape).item() == pytest.approx(factors)
    chessboard = 1 - 2 * (places.sum(dim=1) % 2)
    assert roughness(0.3 * chessboard, shape).item() == pytest.approx(4 * factors * 0.3)


def test_the_point_in_the_middle_decides_the_region():
    values, region = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 1, 0, 1]).bool()
    assert roughness(values, (6,), region).item() == 2.0
    assert roughness(values, (6,), ~region).item() == 1.0  # of 0, 1 and 1


def test_a_median_of_an_even_number_lies_between_the_middle_two():
    assert roughness(torch.tensor([0.0, 0.0, 1.0, 5.0]), (4,)).item() == 2.0  # of 1 and 3


def test_no_inner_point_and_no_number_have_no_roughness():
    assert roughness(random(2, 10), (5, 2)).isnan().tolist() == [True, True]
    assert roughness(random(9), (9,), torch.arange(9) == 0).isnan()
    values = random(2, 9)
    values[0, 4] = math.nan
    assert roughness(values, (9,)).isnan().tolist() == [True, False]


def test_stages_have_it_by_region():
    """A stage whose volume is a chessboard in the held-out half and constant elsewhere."""
    grid = FactorGrid((Factor("x", 0, 7, 8), Factor("y", 0, 7, 8)))
    held_out = grid.points[:, 0] >= 4
    wobble = 0.1 * (1 - 2 * (grid.points.sum(dim=1) % 2)) * held_out
    metric = torch.eye(2, dtype=torch.float64) * (10**wobble)[:, None, None]  # √det g = 10 ** wobble
    torch.testing.assert_close(log_volume(metric), wobble)
    stage = Stage("output", random(64, 3), grid.points, grid, held_out, metric)
    columns = stage_profile([stage], ["roughness", "roughness_held_out"]).columns
    assert columns["log_volume_roughness_held"][0].item() == pytest.approx(0.8)
    assert columns["log_volume_roughness_kept"][0].item() == pytest.approx(0)
    assert columns["log_volume_roughness"][0].item() == pytest.approx(roughness(wobble, (8, 8)).item())
    whole = Stage("output", random(64, 3), grid.points, grid, torch.zeros(64).bool(), metric)
    assert set(stage_profile([whole], ["roughness", "roughness_held_out"]).columns) == {"log_volume_roughness"}
