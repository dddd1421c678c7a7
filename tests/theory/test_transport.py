"""Is a stage still a product of one block per factor: known answers, and everything written out."""

from itertools import product

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.transport import additivity, hole_dependence
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
