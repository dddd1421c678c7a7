"""Is a stage still a product of one block per factor, and does the hole stay open: known answers, written out."""

from itertools import product

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.transport import additivity, hole_dependence, hole_geometry
from tests.small import noise
from tests.theory.chains import COUNT, GRID, Mixing, blocks, centred_gram

SHAPE = (COUNT, COUNT)


def box(low, high, count=COUNT):
    """A square in the middle of the grid."""
    places = torch.cartesian_prod(torch.arange(count), torch.arange(count))
    return ((places >= low) & (places < high)).all(dim=-1)


def explicit_shares(features, shape):
    """Functional ANOVA of the features by projections that are written out."""
    variances = {}
    for bits in product((0, 1), repeat=len(shape)):
        projection = np.ones((1, 1))
        for count, bit in zip(shape, bits, strict=True):
            mean = np.full((count, count), 1 / count)
            projection = np.kron(projection, np.eye(count) - mean if bit else mean)
        inside = tuple(k for k, bit in enumerate(bits) if bit)
        variances[inside] = np.square(projection @ features.numpy()).sum()
    del variances[()]
    return {inside: variance / sum(variances.values()) for inside, variance in variances.items()}


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4)], ids=str)
def test_shares_agree_with_projections_written_out(shape):
    features = noise(int(np.prod(shape)), 6) + 2
    for gram in (centred_gram(features), features @ features.T):
        expected = sum(share for inside, share in explicit_shares(features, shape).items() if len(inside) == 1)
        assert additivity(gram, shape).item() == pytest.approx(expected)


def test_block_codes_are_additive_and_products_are_not():
    codes = blocks(GRID)
    rotated = Mixing().rotate(codes)
    images = codes[:, : codes.shape[1] // 2, None] * codes[:, None, codes.shape[1] // 2 :]
    coupled = Mixing().couple(rotated)
    values = [additivity(centred_gram(own.flatten(1)), SHAPE).item() for own in (codes, rotated, coupled, images)]
    assert values[:2] == pytest.approx([1, 1])
    assert 0.3 < values[2] < 0.8, "a reversible layer may mix what is additive"
    assert values[3] < 0.5
    assert additivity(torch.eye(COUNT**2), SHAPE).item() == pytest.approx(2 / (COUNT + 1))


def explicit_dependence(features, shape, kept):
    """Distance correlation of the main effects, as coordinates, by its definition."""
    grid = features.numpy().reshape(*shape, -1)
    deviations = grid - grid.mean((0, 1))
    effects = [deviations.mean(1), deviations.mean(0)]
    points = [(x, y) for x in range(shape[0]) for y in range(shape[1]) if kept[x * shape[1] + y]]
    centred = []
    for factor in (0, 1):
        own = np.array([effects[factor][point[factor]] for point in points])
        distance = np.linalg.norm(own[:, None] - own[None], axis=-1)
        centred.append(distance - distance.mean(0) - distance.mean(1)[:, None] + distance.mean())
    first, second = centred
    return np.sqrt((first * second).mean() / np.sqrt((first**2).mean() * (second**2).mean()))


def test_dependence_agrees_with_coordinates_written_out():
    features, held_out = noise(30, 4), torch.rand(30, generator=torch.Generator().manual_seed(1)) < 0.3
    expected = explicit_dependence(features, (5, 6), ~held_out.numpy())
    assert hole_dependence(centred_gram(features), (5, 6), held_out).item() == pytest.approx(expected)


def test_products_have_none_and_a_diagonal_has_all():
    gram = centred_gram(GRID)
    line = torch.arange(COUNT)
    without_values = ((line[:, None] == 3) | (line[None, :] > 8)).flatten()
    for held_out in (box(0, 0), ~box(2, 7), without_values):
        assert hole_dependence(gram, SHAPE, held_out).item() == pytest.approx(0, abs=1e-6)
    assert hole_dependence(gram, SHAPE, (line[:, None] != line[None, :]).flatten()).item() == pytest.approx(1)


def test_what_does_not_vary():
    lost = centred_gram(GRID[:, :1])
    assert hole_dependence(lost, SHAPE, box(2, 10)).item() == 0
    assert additivity(lost, SHAPE).item() == pytest.approx(1)
    assert additivity(centred_gram(torch.ones(COUNT**2, 2)), SHAPE).isnan()


def test_nan_and_nothing_kept_are_refused():
    with pytest.raises(InvalidValue, match="gram"):
        additivity(torch.full((6, 6), torch.nan), (2, 3))
    with pytest.raises(InvalidValue, match="held_out"):
        hole_dependence(torch.eye(6), (2, 3), torch.ones(6, dtype=torch.bool))


HOLE = box(3, 9)
STEPS = torch.where(HOLE[None, :], torch.inf, torch.cdist(GRID, GRID))
"""From each point to kept ones."""


def geometry(features, held_out=HOLE, shape=SHAPE):
    return hole_geometry(centred_gram(features), shape, held_out)


def moved(where):
    """The plane with held-out points put where others are."""
    return torch.where(HOLE[:, None], GRID[where], GRID)


def test_isometries_keep_it_open():
    plane = torch.cat([GRID, torch.zeros(len(GRID), 5)], dim=1) @ torch.linalg.qr(noise(7, 7)).Q
    for features in (GRID, 1e4 * plane + 3, GRID * torch.tensor([1.0, 6.0])):
        hole = geometry(features)
        assert torch.allclose(hole.openness, torch.ones(36).double())
        assert not hole.misplaced.any()


def test_what_is_mapped_onto_the_edge_closes_it():
    hole = geometry(moved(STEPS.argmin(dim=1)))
    assert hole.openness.tolist() == [0] * 36
    assert not hole.misplaced.any()


def test_what_is_mapped_onto_points_far_away_is_misplaced():
    far = torch.where(STEPS.isinf(), -1.0, STEPS).argmax(dim=1)
    hole = geometry(moved(far))
    assert hole.openness.tolist() == [0] * 36
    assert hole.misplaced.all()


def test_one_hot_codes_have_one_over_the_depth():
    hole = geometry(torch.nn.functional.one_hot(GRID.long()).flatten(1).double())
    depth = STEPS.amin(dim=1)[HOLE]
    assert torch.allclose(hole.openness, 1 / depth)
    assert not hole.misplaced.any()


def test_a_factor_that_is_gone_closes_it():
    assert geometry(GRID[:, :1]).openness.tolist() == [0] * 36
    assert geometry(torch.ones(len(GRID), 2)).openness.tolist() == [0] * 36


def explicit_geometry(features, shape, held_out):
    """Openness and misplacement of each held-out point, one after the other."""
    places = np.array(list(np.ndindex(shape)))
    kept = [k for k in range(len(places)) if not held_out[k]]
    units = []
    for factor in range(len(shape)):
        one = np.eye(len(shape), dtype=int)[factor]
        lengths = [
            np.linalg.norm(features[a] - features[b])
            for a in kept for b in kept if (places[b] - places[a] == one).all()
        ]  # fmt: skip
        units.append(sorted(lengths)[(len(lengths) - 1) // 2])
    openness, misplaced = [], []
    for h in np.flatnonzero(held_out):
        ways = np.array([np.linalg.norm((places[h] - places[k]) * units) for k in kept])
        images = np.array([np.linalg.norm(features[h] - features[k]) for k in kept])
        openness.append(images.min() / ways.min())
        far = images[ways > 2 * ways.min()]
        misplaced.append(bool(len(far)) and far.min() < min(units) / 2)
    return openness, misplaced


@pytest.mark.parametrize("shape", [(12,), (5, 6), (3, 4, 3)], ids=str)
def test_distances_written_out(shape):
    points = int(np.prod(shape))
    held_out = torch.rand(points, generator=torch.Generator().manual_seed(4)) < 0.3
    features = noise(points, 2)
    hole = geometry(features, held_out, shape)
    openness, misplaced = explicit_geometry(features.numpy(), shape, held_out.numpy())
    assert hole.openness.tolist() == pytest.approx(openness)
    assert hole.misplaced.tolist() == misplaced
    assert any(misplaced)
    assert not all(misplaced)


def test_masks_without_kept_neighbours_have_a_unit_too():
    checkerboard = (torch.arange(6)[:, None] + torch.arange(6)).flatten() % 2 == 0
    plane = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))
    assert torch.allclose(geometry(plane, checkerboard, (6, 6)).openness, torch.ones(18).double())


def test_a_mask_on_one_side_and_infinity_are_refused():
    for gram, held_out in [(torch.eye(6), HOLE[:6] | True), (torch.eye(6), HOLE[:6] & False)]:
        with pytest.raises(InvalidValue, match="held_out"):
            hole_geometry(gram, (2, 3), held_out)
    with pytest.raises(InvalidValue, match="gram"):
        hole_geometry(torch.full((6, 6), torch.inf), (2, 3), torch.arange(6) < 2)
