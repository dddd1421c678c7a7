"""Cross-terms, volumes and roughness over the grid and by region: known answers and slow loops."""

import itertools
import math

import numpy as np
import pytest
import torch

from recombine.metrics import cross_terms, log_volume, roughness
from recombine.metrics.geometry import FLOOR
from tests.metrics.comparison import columns_of, stage_over
from tests.small import noise

METRICS = ["cross_term", "cross_term_held_out", "factorization_held_out"]


@pytest.mark.parametrize("factors", [2, 3])
def test_cross_terms_are_cosines_of_tangents(factors):
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


def test_cross_terms_stay_within_one_whatever_the_rounding():
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


def statistics(volume, held_out):
    """Of a stage whose log10 volume is given, at points on a line."""
    metric = (10 ** (2 * volume.double()))[..., None, None]
    stage = stage_over(torch.rand(*volume.shape, 2), volume.shape[-1:], held_out, metric)
    columns = columns_of(stage, ["volume_held_out"])
    return {name.removeprefix("log_volume_"): value for name, value in columns.items()}


def test_the_logarithm_is_floored():
    metric = torch.stack([torch.eye(2), 100 * torch.eye(2), torch.zeros(2, 2), FLOOR / 10 * torch.eye(2)])
    torch.testing.assert_close(log_volume(metric), torch.tensor([0, 2, -8, -8], dtype=torch.float64))


def test_a_region_ten_times_as_large_has_contrast_one():
    found = statistics(torch.tensor([2.0, 2.0, 3.0, 3.0]), torch.tensor([False, False, True, True]))
    expected = {"spread_held": 0.0, "spread_excess": 0.0, "contrast": 1.0, "deviation_held": 1.0}
    expected["deviation_excess"] = 0.0  # half of the points: both regions are as far from the mean
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)
    fewer = statistics(torch.tensor([2.0, 2.0, 2.0, 3.0]), torch.arange(4) > 2)
    assert fewer["deviation_excess"].item() == pytest.approx(1 - 2 / 4)


def test_spreads_are_about_a_regions_own_mean():
    volume = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    held_out = torch.arange(40) % 4 == 0
    found, rows = statistics(volume, held_out), volume.numpy()
    held, kept = rows[:, held_out.numpy()], rows[:, ~held_out.numpy()]
    np.testing.assert_allclose(found["spread_held"], held.std(axis=1))
    np.testing.assert_allclose(found["spread_excess"], held.std(axis=1) - kept.std(axis=1))
    level = rows.mean(axis=1, keepdims=True)
    own, others = (np.sqrt(((part - level) ** 2).mean(axis=1)) for part in (held, kept))
    np.testing.assert_allclose(found["deviation_excess"], own - others)
    lifted = statistics(volume + 7 * held_out, held_out)  # another level is no spread
    for name in ("spread_held", "spread_excess"):
        torch.testing.assert_close(lifted[name], found[name])


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
def test_roughness_is_the_median_that_a_loop_finds(shape):
    values, region = noise(3, math.prod(shape)), noise(math.prod(shape), seed=1) > 0
    for member, row in enumerate(values):
        assert roughness(values, shape, region)[member].item() == pytest.approx(slow(row.numpy(), shape, region))
        everywhere = slow(row.numpy(), shape, [True] * math.prod(shape))
        assert roughness(row, shape).item() == pytest.approx(everywhere)


@pytest.mark.parametrize("shape", SHAPES)
def test_roughness_has_known_answers(shape):
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


def test_stages_have_roughness_by_region():
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
