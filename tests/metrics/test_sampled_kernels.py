"""Interaction weights from some of the points: what is known without error, the fit written out, and bias."""

from functools import reduce

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.metrics import (
    interaction_weights,
    partial_factorization,
    sampled_factorization,
    sampled_interaction_weights,
    sampling_bias,
)
from tests.metrics.test_factorization import or_kernel, random_kernel


def sample(shape, share, seed=0):
    """A random mask that shows every value: those of a diagonal are always kept."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
    for k in range(max(shape)):
        mask[tuple(k % count for count in shape)] = True
    return mask.flatten()


def centre_hole(count, low, high):
    mask = torch.ones(count, count, dtype=torch.bool)
    mask[low:high, low:high] = False
    return mask.flatten()


def part(gram, mask):
    return gram[..., mask, :][..., mask]


def bumps(shape, width):
    places = torch.cartesian_prod(*(torch.arange(count) for count in shape)).double()
    return torch.exp(-(places[:, None] - places[None]).square().sum(dim=-1) / (4 * width**2))


def additive(shape):
    ones = [torch.ones(count, count).double() for count in shape]
    terms = [
        [random_kernel(count, k) if k == j else ones[j] for j, count in enumerate(shape)]
        for k, count in enumerate(shape)
    ]
    return sum(reduce(torch.kron, term) for term in terms)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("weight", ["square", "absolute"])
def test_the_complete_grid_has_its_own_weights(shape, weight):
    points = torch.tensor(shape).prod().item()
    grams = torch.stack([random_kernel(points, seed) for seed in range(3)])
    whole = interaction_weights(grams, shape, weight)
    estimated = sampled_interaction_weights(grams, shape, torch.ones(points, dtype=torch.bool), weight)
    assert list(estimated) == list(whole)
    for inside, expected in whole.items():
        assert torch.allclose(estimated[inside], expected), inside


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_additive_kernels_are_additive_in_every_sample(share):
    mask = sample((8, 9), share)
    gram = additive((8, 9))
    assert sampled_factorization(part(gram, mask), (8, 9), mask).item() == pytest.approx(1.0)
    whole, estimated = interaction_weights(gram, (8, 9)), sampled_interaction_weights(part(gram, mask), (8, 9), mask)
    assert estimated[0,].item() == pytest.approx(whole[0,].item())
    assert estimated[1,].item() == pytest.approx(whole[1,].item())


def test_additive_kernels_are_additive_where_parts_share_no_value():
    mask = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4)).bool().flatten()
    assert sampled_factorization(part(additive((7, 7)), mask), (7, 7), mask).item() == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(8, 8), (4, 5, 6)], ids=str)
@pytest.mark.parametrize("kernel", ["delta", "or"])
def test_deltas_and_the_or_kernel_have_no_error(shape, kernel):
    gram = torch.eye(torch.tensor(shape).prod()).double() if kernel == "delta" else or_kernel(shape)
    mask = sample(shape, 0.5 if len(shape) == 2 else 0.9)
    whole, estimated = interaction_weights(gram, shape), sampled_interaction_weights(part(gram, mask), shape, mask)
    for inside, expected in whole.items():
        assert estimated[inside].item() == pytest.approx(expected.item()), inside


def test_delta_kernels_are_all_top_order_in_the_limit():
    for count in (6, 12, 24):
        mask = sample((count, count), 0.5)
        top = 1 - sampled_factorization(torch.eye(int(mask.sum())), (count, count), mask).item()
        assert top == pytest.approx((count - 1) / (count + 1))


def filled(features, shape, mask):
    """Missing points filled in by what all terms below the top one predict, until nothing changes."""
    centring = [torch.eye(count).double() - 1 / count for count in shape]
    lower = torch.eye(len(mask)).double() - reduce(torch.kron, centring)
    values = features * mask[:, None]
    for _ in range(5000):
        before = values
        values = torch.where(mask[:, None], features, lower @ values)
        if (values - before).abs().max() < 1e-13:
            break
    return lower @ values


def averaged(count):
    return torch.full((count, count), 1 / count).double()


@pytest.mark.parametrize("shape", [(6, 5), (3, 4, 3)], ids=str)
def test_the_fit_is_where_filling_in_ends(shape):
    mask = sample(shape, 0.8)
    points = len(mask)
    features = torch.randn(points, 7, generator=torch.Generator().manual_seed(3)).double()
    gram = part(features @ features.T, mask)
    fitted, of_noise = filled(features, shape, mask), filled(torch.eye(points).double(), shape, mask)[:, mask]
    unit = torch.eye(points).double()[:, mask]
    kept_fit = filled(features, shape, mask)[mask]
    residual = (features[mask] - kept_fit) @ (features[mask] - kept_fit).T
    remover = (unit - of_noise)[mask]
    left = remover.trace()
    noise = residual.trace() / left
    pair = (residual.square().sum() - left * noise**2) / (left * (left + 1) - 2)
    estimated = sampled_interaction_weights(gram, shape, mask)
    for inside in list(estimated)[:-1]:
        terms = [torch.eye(n).double() - averaged(n) if k in inside else averaged(n) for k, n in enumerate(shape)]
        projection = reduce(torch.kron, terms)
        term = projection @ fitted @ fitted.T @ projection
        leaked = projection @ of_noise @ of_noise.T @ projection
        excess = leaked.trace() ** 2 + leaked.square().sum() - projection.trace() * (projection.trace() + 1)
        expected = (term - noise * (leaked - projection)).square().sum() - pair * excess
        assert estimated[inside].item() == pytest.approx(max(0.0, expected.item()), rel=1e-4), inside
    full = torch.tensor([count - 1 for count in shape]).prod()
    top = full * noise**2 + pair * (full * (full + 1) - 2)
    assert estimated[tuple(range(len(shape)))].item() == pytest.approx(top.item(), rel=1e-4)


def wishart(points, features, seed=0):
    values = torch.randn(points, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values @ values.T


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_random_samples_have_next_to_no_bias(share):
    grams = torch.stack([bumps((12, 12), 1.0), bumps((12, 12), 3.0), wishart(144, 200), wishart(144, 5)])
    error = sampling_bias(grams, (12, 12), share, draws=30)
    assert error.estimates.shape == (4, 30)
    assert torch.equal(error.whole, partial_factorization(grams, (12, 12)))
    assert (error.bias.abs() < 0.015).all()
    assert (error.spread > 0).all()
    assert (error.spread < 0.06).all()


def test_a_mask_is_one_sample_and_better_than_zeros_for_what_is_missing():
    mask = sample((12, 12), 0.4)
    gram = additive((12, 12)) + 20 * torch.eye(144)
    error = sampling_bias(gram, (12, 12), mask)
    assert error.estimates.shape == (1,)
    assert error.spread.item() == 0
    assert error.bias.item() == pytest.approx(0, abs=1e-9)
    zeros = torch.where(mask[:, None] & mask, gram, 0.0)
    assert abs(partial_factorization(zeros, (12, 12)) - error.whole).item() > 0.1


def test_a_centre_hole_hides_what_is_smooth_inside():
    mask = centre_hole(12, 3, 9)
    grams = torch.stack([bumps((12, 12), width) for width in (1.0, 2.0, 4.0)])
    assert sampling_bias(grams, (12, 12), mask).bias.tolist() == pytest.approx([0.043, -0.095, -0.037], abs=0.002)
    for exact in (or_kernel((12, 12)), additive((12, 12)), torch.eye(144).double()):
        assert sampling_bias(exact, (12, 12), mask).bias.item() == pytest.approx(0.0, abs=1e-9)


def test_what_is_in_the_hole_alone_leaves_no_trace():
    mask = centre_hole(10, 3, 7)
    inside = torch.diag((~mask).double())
    hidden = sampling_bias(additive((10, 10)) + 1e3 * inside, (10, 10), mask)
    assert hidden.whole.item() < 0.7
    assert hidden.estimates.item() == pytest.approx(1.0)


def test_samples_that_do_not_suffice_are_one_line():
    row = torch.ones(4, 4, dtype=torch.bool)
    row[2] = False
    with pytest.raises(InvalidValue, match="value 2 of factor 0"):
        sampled_interaction_weights(torch.eye(12), (4, 4), row.flatten())
    with pytest.raises(InvalidValue, match="more points than the terms of lower order"):
        sampled_interaction_weights(torch.eye(4), (4, 4), torch.eye(4).bool().flatten())
    with pytest.raises(InvalidValue, match="a mask of 3 points"):
        sampled_interaction_weights(torch.eye(3), (2, 2), torch.ones(4, dtype=torch.bool))
    with pytest.raises(InvalidValue, match="random samples show every value"):
        sampling_bias(torch.eye(144), (12, 12), 0.05)
    for share in (0.0, 1.5):
        with pytest.raises(InvalidValue, match="kept"):
            sampling_bias(torch.eye(16), (4, 4), share)
    with pytest.raises(InvalidValue, match="family"):
        sampled_factorization(torch.eye(16), (4, 4), torch.ones(16, dtype=torch.bool), family=[{5}])
