"""Metric tensors against known answers and a full reverse-mode Jacobian."""

import itertools
import math

import pytest
import torch

from recombine.decoders import DECODERS
from recombine.errors import InvalidValue
from recombine.metrics import (
    ensemble_reader,
    features,
    finite_difference_metric,
    local_factorization,
    metric_tensor,
    volume_element,
)
from recombine.metrics.stages import aligned_signs, sign_aligned
from recombine.tasks import BumpTask
from tests.metrics.comparison import columns_of, stage_over
from tests.small import small_spec, stage_reader

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
    module, points = spec.module().eval().double(), real_points(spec, 2)
    coder = spec.task.codes
    found = metric_tensor(stage_reader(module, coder), points)
    assert list(found) == ["input", *module.stage_names]
    for turn, name in enumerate(found):

        def stage(z, name=name):
            codes = coder(z[None])
            return (codes if name == "input" else module.activations(codes)[name])[0].flatten()

        index = turn % len(points)
        jacobian = torch.autograd.functional.jacobian(stage, points[index], vectorize=True)
        expected = jacobian.T @ jacobian
        assert torch.allclose(found[name][index], expected, atol=1e-5 * expected.abs().max().item()), name


@pytest.mark.parametrize("kind", KINDS)
def test_ensembles_equal_their_members(kind):
    specs = small_spec(kind).seeds(range(2))
    modules, points = [spec.module().eval() for spec in specs], real_points(specs[0])
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
    reader, points = stage_reader(spec.module().eval(), encode(spec)), real_points(spec)
    carried, repeated = metric_tensor(reader, points), metric_tensor(reader, points, repeated=True)
    assert list(carried) == list(repeated)
    for name in carried:
        assert torch.allclose(carried[name], repeated[name], rtol=1e-4, atol=1e-7), name


@pytest.mark.parametrize("memory", [1, 10_000])
def test_memory_budget_changes_nothing_but_memory(memory):
    spec = small_spec("cnn")
    reader, points = stage_reader(spec.module().eval(), encode(spec)), real_points(spec, 9)
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
    with pytest.raises(InvalidValue, match="use finite differences"):
        metric_tensor(reader, onehot.grid.points)


# -- signs of embeddings -----------------------------------------------------------------------------------------------


def banded_embeddings(task, channels=1):
    """A bright band at each value's column or row, on every plane, `[factor, channel, value, y, x]`."""
    columns = task.render(task.isolated_values()).unflatten(0, (2, -1))
    return columns[:, None].expand(-1, channels, -1, -1, -1) * torch.arange(1.0, channels + 1)[:, None, None, None]


def rendering(images):
    """Two networks of an embedding stage with such images, `[member, factor, channel, value, y, x]`, and their sum."""

    def read(points, tap):
        x, y = points.long().T
        planes = torch.cat([images[:, 0][:, :, x], images[:, 1][:, :, y]], dim=1).transpose(1, 2)
        tap("embedding", planes)
        tap("output", planes.sum(dim=2))

    return read


@pytest.mark.parametrize("channels", [1, 3])
def test_a_random_sign_per_value_changes_nothing_in_the_geometry_of_embeddings(channels):
    task, device = BumpTask(size=10, sigma=1.5), torch.device("cpu")
    smooth = banded_embeddings(task, channels).expand(2, -1, -1, -1, -1, -1).double()
    chance = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, smooth.shape[:4], generator=chance).double()[..., None, None] * 2 - 1

    def geometry(reader, stage):
        (found,) = [own for name, own in features(reader, task.grid.points, members=1) if name == stage]
        return finite_difference_metric(found, task.grid.shape)

    expected = geometry(rendering(smooth), "embedding")
    flipped = rendering(smooth * signs)
    assert not torch.allclose(geometry(flipped, "embedding"), expected, rtol=0.1)
    aligned = sign_aligned(flipped, "embedding", task.grid, device, members=1)
    torch.testing.assert_close(geometry(aligned, "embedding"), expected)
    torch.testing.assert_close(geometry(aligned, "output"), geometry(flipped, "output"))  # the same function


def test_signs_are_the_chain_of_neighbours_that_correlate():
    images = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
    found = aligned_signs(images)
    for row, signs in zip(images.numpy(), found.tolist(), strict=True):
        expected = [1.0]
        for before, after in itertools.pairwise(row):
            expected.append(expected[-1] * (-1.0 if before @ after < 0 else 1.0))
        assert signs == expected
    torch.testing.assert_close(aligned_signs(images * found[..., None]), torch.ones(4, 6))
