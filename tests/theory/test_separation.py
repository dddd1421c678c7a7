"""Designs and separation: effects of sums, all rotations of a plane, and scores against loops."""

import math

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.separation import (
    UNKNOWN,
    Design,
    best_rotation,
    cell_numbers,
    explained_shares,
    kept_points,
    polar_step,
    predicted,
    separate,
    share_predicted,
)
from tests.theory.planted_codes import blocks, codes, lookup, many


def covariances(members, groups, size, seed=0):
    """Random ones whose sum is at most the identity."""
    values = torch.randn(members, groups, size, size, generator=torch.Generator().manual_seed(seed)).double()
    own = values @ values.mT
    return own / torch.linalg.eigvalsh(own.sum(dim=1)).amax(dim=-1)[:, None, None, None]


def objective(given, rotation):
    return explained_shares(given, rotation).amax(dim=1).sum(dim=-1)


@pytest.mark.parametrize("groups", [2, 3])
def test_no_rotation_of_a_plane_is_better(groups):
    given = covariances(100, groups, 2)
    angles = torch.linspace(0, math.pi, 1000, dtype=torch.float64)
    turns = torch.stack([torch.stack([angles.cos(), -angles.sin()]), torch.stack([angles.sin(), angles.cos()])])
    every = torch.stack([objective(given, turn.expand(100, 2, 2)) for turn in turns.permute(2, 0, 1)])
    reached = objective(given, best_rotation(given))
    if groups == 2:
        assert torch.allclose(reached, every.amax(dim=0), atol=1e-5)
    else:  # sometimes a local optimum
        assert (reached / every.amax(dim=0) > 0.999).double().mean() > 0.9


def test_polar_steps_never_lower_what_is_explained():
    given = covariances(30, 4, 6)
    rotation = torch.linalg.qr(torch.randn(30, 6, 6, generator=torch.Generator().manual_seed(1)).double())[0]
    before = objective(given, rotation)
    for _ in range(10):
        rotation = polar_step(given, rotation)
        after = objective(given, rotation)
        assert (after >= before - 1e-9).all()
        before = after
    assert torch.allclose(rotation.mT @ rotation, torch.eye(6).double().expand(30, 6, 6), atol=1e-9)


@pytest.mark.parametrize("shape", [(8, 8), (5, 5, 5), (3, 4, 3, 4)], ids=str)
def test_mixed_codes_are_separated_exactly_whatever_is_missing(shape):
    generator = torch.Generator().manual_seed(0)
    planted = codes(shape, 2, generator, smooth=False)
    size = planted.shape[1]
    mixing = torch.randn(size, size, generator=generator, dtype=torch.float64)
    design = Design.of(shape, kept_points(shape, None, 0))
    rotation, block = separate((planted @ mixing)[None], design)
    blocks_of_map = (mixing @ rotation[0]).reshape(len(shape), 2, size).abs().amax(dim=1)
    for coordinate, factor in enumerate(block[0].tolist()):
        others = [other for other in range(len(shape)) if other != factor]
        assert blocks_of_map[others, coordinate].max() < 1e-6 * blocks_of_map[factor, coordinate]
    assert torch.bincount(block[0]).tolist() == [2] * len(shape)


def test_the_score_is_that_of_loops():
    shape = (5, 6)
    coordinates = torch.cat([many(blocks, shape, 2)[..., :3], lookup(shape, 0, 3)[None]])
    design = Design.of(shape, kept_points(shape, None, 3))
    block = torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 1]])
    labels = design.labels[:, design.scored]
    guess = predicted(coordinates[:, design.kept], block, design, labels)
    ours = share_predicted(coordinates, guess, design)
    for member in range(3):
        shares = []
        for coordinate in range(3):
            values, factor = coordinates[member, :, coordinate], block[member, coordinate]
            mean, errors, spread = values[design.kept].mean(), [], []
            for point in torch.nonzero(design.scored).flatten():
                alike = design.kept & (design.labels[factor] == design.labels[factor, point])
                errors.append((values[point] - values[alike].mean()) ** 2)
                spread.append((values[point] - mean) ** 2)
            shares.append(1 - sum(errors) / sum(spread))
        assert torch.allclose(ours[member], torch.stack(shares).mean())


def test_coordinates_that_hardly_vary_where_they_are_scored_are_held_to_their_variance_elsewhere():
    held_out = torch.zeros(8, 8, dtype=torch.bool)
    held_out[3:5, 3:5] = True
    design = Design.of((8, 8), ~held_out.flatten())
    x = (torch.arange(64) // 8 - 3.5).double()[None, :, None]
    x = torch.where(x.abs() < 1, x * 1e-3, x)
    guess = torch.full((1, 4, 1), 0.1, dtype=torch.float64)
    assert share_predicted(x, guess, design) > 0.99


def test_a_map_that_went_astray_scores_nothing():
    design = Design.of((3, 3), torch.arange(9) != 4)
    values = torch.full((1, 9, 2), torch.nan)
    assert share_predicted(values, values[:, :1], design).tolist() == [-math.inf]
    assert best_rotation(torch.full((1, 3, 2, 2), torch.nan)).isfinite().all()


SHAPES = [(8, 8), (5, 5, 5), (2, 3, 2), (4, 1, 6)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_effects_of_a_sum_are_its_functions_whatever_is_missing(shape, seed):
    design = Design.of(shape, kept_points(shape, None, seed))
    generator = torch.Generator().manual_seed(seed)
    functions = [torch.randn(count, generator=generator, dtype=torch.float64) for count in shape]
    values = sum(own[design.labels[factor]] for factor, own in enumerate(functions)) + 5
    for operator, own in zip(design.effects, functions, strict=True):
        assert torch.allclose(operator @ values[design.kept], own - own.mean())
    assert design.fitted == 1 + sum(count - 1 for count in shape)


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (5, 5, 5), (3, 3, 3, 3)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_fifth_leaves_every_value_and_every_cell(shape, seed):
    kept = kept_points(shape, None, seed)
    assert int((~kept).sum()) == int(0.2 * len(kept))
    for first in range(len(shape)):
        assert len(cell_numbers(shape, (first,))[kept].unique()) == shape[first]
        for second in range(first) if len(shape) > 2 else ():
            assert len(cell_numbers(shape, (second, first))[kept].unique()) == shape[first] * shape[second]
    assert not torch.equal(kept, kept_points(shape, None, seed + 10))


def test_groups_number_the_combinations_that_are_kept():
    kept = torch.ones(2, 3, 2, dtype=torch.bool)
    kept[0, 0] = False
    kept[1, 1, 0] = False
    design = Design.of((2, 3, 2), kept.flatten(), [(0, 1), (2,)])
    assert design.counts == (5, 2)
    assert design.labels[0].tolist() == [UNKNOWN, UNKNOWN, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert torch.nonzero(design.scored).flatten().tolist() == [8], "nothing is known of where x = y = 0"


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        (torch.ones(3, 4, dtype=torch.bool), "every point with value 0 of factor 0"),
        (torch.zeros(3, 4, dtype=torch.bool), "no point"),
        (torch.arange(4).expand(3, 4) == 2, "every point with value 2 of factor 1"),
    ],
    ids=["everything", "nothing", "a value"],
)
def test_hold_outs_that_say_nothing_are_refused(held_out, message):
    with pytest.raises(InvalidValue, match=message):
        kept_points((3, 4), held_out.flatten(), 0)
