"""Roughness of a map over the grid: known answers, and a slow oracle."""

import itertools
import math

import numpy as np
import pytest
import torch

from recombine.metrics import log_volume, roughness
from tests.metrics.comparison import columns_of, stage_over
from tests.small import noise

SHAPES = [(7,), (5, 6), (4, 3, 5)]


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
    values, region = noise(3, math.prod(shape)), noise(math.prod(shape), seed=1) > 0
    for member, row in enumerate(values):
        assert roughness(values, shape, region)[member].item() == pytest.approx(slow(row.numpy(), shape, region))
        everywhere = slow(row.numpy(), shape, [True] * math.prod(shape))
        assert roughness(row, shape).item() == pytest.approx(everywhere)


@pytest.mark.parametrize("shape", SHAPES)
def test_known_answers(shape):
    places = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in shape)).reshape(-1, len(shape))
    factors = len(shape)
    assert roughness(places @ torch.arange(1.0, factors + 1).double(), shape).item() == pytest.approx(0, abs=1e-12)
    assert roughness(places.square().sum(dim=1) / 2, shape).item() == pytest.approx(factors)
    chessboard = 1 - 2 * (places.sum(dim=1) % 2)
    assert roughness(0.3 * chessboard, shape).item() == pytest.approx(4 * factors * 0.3)


def test_no_inner_point_and_no_number_have_no_roughness():
    assert roughness(noise(2, 10), (5, 2)).isnan().tolist() == [True, True]
    assert roughness(noise(9), (9,), torch.arange(9) == 0).isnan()
    values = noise(2, 9)
    values[0, 4] = math.nan
    assert roughness(values, (9,)).isnan().tolist() == [True, False]


def test_stages_have_it_by_region():
    """A stage whose volume is a chessboard in the held-out half and constant elsewhere."""
    places = torch.cartesian_prod(torch.arange(8), torch.arange(8)).double()
    held_out = places[:, 0] >= 4
    wobble = 0.1 * (1 - 2 * (places.sum(dim=1) % 2)) * held_out
    metric = torch.eye(2, dtype=torch.float64) * (10**wobble)[:, None, None]  # √det g = 10 ** wobble
    torch.testing.assert_close(log_volume(metric), wobble)
    names = ["roughness", "roughness_held_out"]
    columns = columns_of(stage_over(noise(64, 3), (8, 8), held_out, metric), names)
    assert columns["log_volume_roughness_held"].item() == pytest.approx(0.8)
    assert columns["log_volume_roughness_kept"].item() == pytest.approx(0)
    assert columns["log_volume_roughness"].item() == pytest.approx(roughness(wobble, (8, 8)).item())
    assert set(columns_of(stage_over(noise(64, 3), (8, 8), exact=metric), names)) == {"log_volume_roughness"}
