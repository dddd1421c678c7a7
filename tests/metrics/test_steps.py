"""Step change: known answers, and an obvious version in loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.metrics import step_change


def obvious(features, shape, held_out):
    """One step at a time, over dictionaries."""
    points = list(torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(-1, len(shape)).tolist())
    where = {tuple(point): k for k, point in enumerate(points)}
    features = features.double()
    scale = float((features - features.mean(dim=0)).square().sum(dim=1).mean().sqrt())
    groups = {0: [], 1: [], 2: []}
    for factor in range(len(shape)):
        steps = {}
        for point in points:
            after = tuple(value + (axis == factor) for axis, value in enumerate(point))
            if after in where:
                first, second = where[tuple(point)], where[after]
                length = max(float((features[first] - features[second]).norm()), 1e-6 * scale)
                steps.setdefault(point[factor], []).append((length, int(held_out[first]) + int(held_out[second])))
        for lengths in steps.values():
            kept = sorted(length for length, ends in lengths if ends == 0)
            for length, ends in lengths if kept else ():
                reference = kept[(len(kept) - 1) // 2]
                groups[ends].append(min(1.0, abs(math.log10(length / reference))))
    means = [sum(own) / len(own) if own else math.nan for own in groups.values()]
    return max(own for own in means[1:] if not math.isnan(own)) - means[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(4, 5), (3, 3, 3), (7,), (5, 2)]))
def test_equals_the_obvious_version(seed, shape):
    generator = torch.Generator().manual_seed(seed)
    size = math.prod(shape)
    features = torch.randn(size, 3, generator=generator)
    held_out = torch.rand(size, generator=generator) < 0.3
    expected, found = math.nan, step_change(features, shape, held_out).item()
    if bool(held_out.any()):
        try:
            expected = obvious(features, shape, held_out)
        except ValueError:  # no step in the hold-out has a reference
            expected = math.nan
    assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def grid_codes(size):
    """Bump codes of x and y, and the mask of a box."""
    places = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    known = torch.exp(-((torch.arange(size) - torch.arange(size)[:, None]) ** 2) / 2.0)
    return known[places[:, 0]], known[places[:, 1]], ((places - size // 2).abs() <= 2).all(dim=1)


def test_sums_and_products_of_factor_codes_have_no_change():
    x, y, held_out = grid_codes(11)
    assert step_change(torch.cat([x, y], dim=1), (11, 11), held_out).item() == pytest.approx(0, abs=1e-9)
    product = (x[:, :, None] * y[:, None, :]).flatten(1)
    assert abs(step_change(product, (11, 11), held_out).item()) < 0.02  # bumps at the border of the grid are cut off


def test_a_constant_or_scaled_hold_out():
    x, y, held_out = grid_codes(11)
    codes = torch.cat([x, y], dim=1)
    assert step_change(torch.where(held_out[:, None], 0.5, codes), (11, 11), held_out).item() == 1
    rows = held_out.reshape(11, 11).any(dim=1).repeat_interleave(11)  # whole rows: no step along x crosses the border
    assert step_change(torch.where(rows[:, None], 2 * y, y), (11, 11), rows).item() > 0.25


def test_scale_and_rotation_change_nothing_and_members_are_apart():
    x, y, held_out = grid_codes(9)
    codes = torch.where(held_out[:, None], 0.3 * x, x + y)
    rotation = torch.linalg.qr(torch.randn(9, 9, generator=torch.Generator().manual_seed(0)))[0]
    alone = step_change(codes, (9, 9), held_out)
    both = step_change(torch.stack([codes, 100 * codes @ rotation]), (9, 9), held_out)
    torch.testing.assert_close(both, alone.expand(2), rtol=1e-4, atol=1e-4)
