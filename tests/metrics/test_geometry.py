"""Metric tensors, cross-terms, volumes and roughness: known answers, a reverse-mode Jacobian and slow loops."""

import itertools
import math

import numpy as np
import pytest
import torch

from recombine.decoders import DECODERS
from recombine.errors import InvalidValue
from recombine.metrics import (
    cross_terms,
    ensemble_reader,
    features,
    finite_difference_metric,
    local_factorization,
    log_volume,
    metric_tensor,
    roughness,
    volume_element,
)
from recombine.metrics.geometry import FLOOR
from recombine.tasks import BumpTask
from tests.metrics.comparison import columns_of, stage_over
from tests.small import noise, small_spec, stage_reader

KINDS = [kind for kind, cls in DECODERS.items() if cls.direction == "decode"]
OTHER_ENCODINGS = ("rate", "ramp", "positional")
GOLDEN = math.pi / 2


def drawing(task):
    """A network that draws perfectly: the renderer itself, in one stage."""

    def read(values, tap):
        tap("output", task.render(values))

    return read


def real_points(spec, count=6):
    chance = torch.Generator().manual_seed(0)
    size = spec.task.size - 1
    return size * torch.rand(count, 2, generator=chance, dtype=torch.float64)


def encode(spec):
    return lambda values: spec.task.codes(values).float()


def test_ideal_bump_has_half_pi_at_the_centre():
    task = BumpTask()
    metric = metric_tensor(drawing(task), torch.tensor([[14.25, 13.75], [13.75, 14.25]], dtype=torch.float64))["output"]
    assert torch.allclose(metric, GOLDEN * torch.eye(2, dtype=torch.float64).expand(2, 2, 2), atol=1e-3)
    assert torch.allclose(volume_element(metric), torch.full((2,), GOLDEN, dtype=torch.float64), atol=1e-3)
    assert torch.allclose(local_factorization(metric), torch.ones(2, dtype=torch.float64), atol=1e-6)


def test_ideal_bump_by_finite_differences_is_a_third_low():
    task = BumpTask()
    images = task.render(task.grid.points).flatten(1)
    metric = finite_difference_metric(images, task.grid.shape).reshape(28, 28, 2, 2)[14, 14]
    assert torch.allclose(metric, 0.993 * torch.eye(2, dtype=torch.float64), atol=1e-3)
    assert metric[0, 0].item() == pytest.approx(GOLDEN * (1 - math.exp(-1)), abs=1e-3)


def test_three_factors():
    task = BumpTask(size=16, brightness=4, holdout="none")
    point = torch.tensor([[8.0, 8.0, 0.5]], dtype=torch.float64)
    metric = metric_tensor(drawing(task), point)["output"][0]
    expected = torch.diag(torch.tensor([GOLDEN / 4, GOLDEN / 4, math.pi], dtype=torch.float64))
    assert torch.allclose(metric, expected, atol=1e-3)


@pytest.mark.parametrize("shear", [0.0, 0.5, 2.0])
def test_a_shear_has_its_own_factorization(shear):
    """f(x, y) = (x + s y, y): g = [[1, s], [s, 1 + s²]], F = 1 − s / (2 + s²)."""

    def read(values, tap):
        tap("sheared", torch.stack([values[:, 0] + shear * values[:, 1], values[:, 1]], dim=1))

    metric = metric_tensor(read, torch.zeros(1, 2, dtype=torch.float64))["sheared"]
    assert metric[0].tolist() == [[1, shear], [shear, 1 + shear**2]]
    assert local_factorization(metric).item() == pytest.approx(1 - shear / (2 + shear**2))
    assert volume_element(metric).item() == pytest.approx(1)


def test_a_stage_averages_in_two_ways_and_leaves_out_points_that_do_not_move():
    metric = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[100.0, 50.0], [50.0, 100.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert torch.isnan(local_factorization(metric)[2])
    columns = columns_of(stage_over(torch.rand(3, 2), (3, 1), exact=metric), ["factorization"])
    assert columns["factorization_mean"].item() == pytest.approx((1 + 0.75) / 2)
    assert columns["factorization_of_means"].item() == pytest.approx(1 - 25 / 101)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["bump", *(pytest.param(e, marks=pytest.mark.slow) for e in OTHER_ENCODINGS)])
def test_exact_metric_equals_a_reverse_mode_jacobian(kind, encoding):
    spec = small_spec(kind, task={"encoding": encoding})
    module, points = spec.module().double(), real_points(spec, 3)
    coder = spec.task.codes
    found = metric_tensor(stage_reader(module, coder), points)
    assert list(found) == ["input", *module.stage_names]
    for name in found:
        for index, point in enumerate(points):

            def stage(z, name=name):
                codes = coder(z[None])
                return (codes if name == "input" else module.activations(codes)[name])[0].flatten()

            jacobian = torch.autograd.functional.jacobian(stage, point, vectorize=True)
            expected = jacobian.T @ jacobian
            assert torch.allclose(found[name][index], expected, atol=1e-5 * expected.abs().max().item()), name


@pytest.mark.parametrize("kind", KINDS)
def test_ensembles_equal_their_members(kind):
    specs = small_spec(kind).seeds(range(3))
    modules, points = [spec.module() for spec in specs], real_points(specs[0])
    names = dict(modules[0].named_parameters())
    weights = {n: torch.stack([dict(m.named_parameters())[n].detach() for m in modules]) for n in names}
    together = metric_tensor(ensemble_reader(modules[0], weights, encode(specs[0])), points, members=1)
    collected = dict(features(ensemble_reader(modules[0], weights, encode(specs[0])), points, members=1))
    for index, module in enumerate(modules):
        reader = stage_reader(module, encode(specs[0]))
        for name, metric in metric_tensor(reader, points).items():
            assert torch.allclose(together[name][index], metric, rtol=1e-4, atol=1e-6), name
        for name, stage in features(reader, points):
            assert torch.allclose(collected[name][index], stage, atol=1e-5), name


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_to_carry_tangents_agree(kind):
    spec = small_spec(kind)
    reader, points = stage_reader(spec.module(), encode(spec)), real_points(spec)
    carried, repeated = metric_tensor(reader, points), metric_tensor(reader, points, repeated=True)
    assert list(carried) == list(repeated)
    for name in carried:
        assert torch.allclose(carried[name], repeated[name], rtol=1e-4, atol=1e-7), name


@pytest.mark.parametrize("memory", [1, 10_000])
def test_memory_budget_changes_nothing_but_memory(memory):
    spec = small_spec("cnn")
    reader, points = stage_reader(spec.module(), encode(spec)), real_points(spec, 9)
    whole, chunked = metric_tensor(reader, points), metric_tensor(reader, points, memory=memory)
    for name in whole:
        assert torch.allclose(whole[name], chunked[name], rtol=1e-4, atol=1e-7)
    for (name, stage), (other, again) in zip(
        features(reader, points), features(reader, points, memory=memory), strict=True
    ):
        assert name == other
        assert torch.allclose(stage, again, atol=1e-6)


def test_finite_differences_against_a_loop():
    chance = torch.Generator().manual_seed(0)
    activations = torch.randn(3 * 4, 5, generator=chance, dtype=torch.float64)
    found = finite_difference_metric(activations, (3, 4), (1.0, 0.5)).reshape(3, 4, 2, 2)
    grid = activations.reshape(3, 4, 5)
    for a in range(3):
        for b in range(4):
            up, down = min(a + 1, 2), max(a - 1, 0)
            right, left = min(b + 1, 3), max(b - 1, 0)
            along_a = (grid[up, b] - grid[down, b]) / (up - down)
            along_b = (grid[a, right] - grid[a, left]) / ((right - left) * 0.5)
            jacobian = torch.stack([along_a, along_b], dim=1)
            assert torch.allclose(found[a, b], jacobian.T @ jacobian)


@pytest.mark.parametrize("factors", [2, 3, 4])
def test_factorization_lies_between_a_half_and_one(factors):
    jacobian = torch.randn(500, 5, factors, generator=torch.Generator().manual_seed(factors), dtype=torch.float64)
    metric = jacobian.mT @ jacobian
    value = local_factorization(metric)
    assert (value >= 0.5 - 1e-9).all()
    assert (value <= 1 + 1e-9).all()


def test_codes_without_a_derivative_are_refused():
    onehot = BumpTask(size=8, encoding="onehot")
    reader = stage_reader(small_spec("mlp").module(), lambda values: onehot.codes(values).float())
    with pytest.raises(InvalidValue, match="finite differences only"):
        metric_tensor(reader, onehot.grid.points)


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
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_spreads_are_about_a_regions_own_mean():
    volume = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    held_out = torch.arange(40) % 4 == 0
    found, rows = statistics(volume, held_out), volume.numpy()
    held, kept = rows[:, held_out.numpy()], rows[:, ~held_out.numpy()]
    np.testing.assert_allclose(found["spread_held"], held.std(axis=1))
    np.testing.assert_allclose(found["spread_excess"], held.std(axis=1) - kept.std(axis=1))
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
