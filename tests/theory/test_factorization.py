"""Tests of factorization: planted codes pass, entangled ones do not, and planted groupings are found."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.factorization import (
    PASSING,
    PENALTY,
    best_grouping,
    linear_factorization,
    nonlinear_factorization,
    partitions,
    unit_selectivity,
)
from tests.theory.planted_codes import blocks, codes, grouped, lookup, many, mixed, products, sums, twisted_blocks

ENTANGLED = [lookup, sums, products]
SMOOTH, WIDE, FEW = {"smooth": True}, {"size": 3}, {"features": 4}


def rate(passes):
    return passes.double().mean().item()


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(8, 8), (5, 5, 5), (9, 7)], ids=str)
def test_mixed_codes_pass_the_linear_test(shape, count):
    outcome = linear_factorization(many(blocks, shape, count), shape)
    assert rate(outcome.passes) >= 0.95
    assert (outcome.score > 0.99).all()
    assert torch.allclose(outcome.recovered, outcome.score)
    assert torch.allclose(outcome.share, torch.full_like(outcome.share, 1 / len(shape)))


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [twisted_blocks, *ENTANGLED])
@pytest.mark.parametrize("shape", [(8, 8), (5, 5, 5)], ids=str)
def test_others_fail_the_linear_test(kind, shape, count):
    assert rate(linear_factorization(many(kind, shape, count), shape, permutations=19).passes) <= 0.05


def test_p_values_of_entangled_activations_are_spread_evenly():
    p_values = linear_factorization(many(lookup, (8, 8), 100, features=4), (8, 8)).p_value
    for level in (0.05, 0.2, 0.5, 0.8):
        assert abs((p_values <= level).double().mean() - level) < 3 * (level * (1 - level) / 100) ** 0.5


@pytest.mark.slow
def test_twisted_codes_pass_the_nonlinear_test_only():
    activations = torch.stack([twisted_blocks((8, 8), 0, size=1), lookup((8, 8), 0)])
    assert not linear_factorization(activations, (8, 8)).passes.any()
    outcome = nonlinear_factorization(activations, (8, 8), steps=100)
    assert outcome.passes.tolist() == [True, False]
    assert outcome.p_value.nan_to_num(2.0).tolist() == [0.05, 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENTANGLED)
def test_entangled_codes_fail_the_nonlinear_test(kind):
    outcome = nonlinear_factorization(many(kind, (8, 8), 3), (8, 8), steps=60)
    assert (torch.minimum(outcome.score, outcome.recovered) < 0.8).all()
    assert not outcome.passes.any()


def straightened(kind, shape, **options):
    """Share of a hundred whose score and recovered share suffice."""
    outcome = nonlinear_factorization(many(kind, shape, 100, **options), shape, permutations=0)
    return rate(torch.minimum(outcome.score, outcome.recovered) >= PASSING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shape", "options"),
    [
        (twisted_blocks, (16, 16), {}), (twisted_blocks, (16, 16), WIDE), (twisted_blocks, (7, 7, 7), {"size": 1}),
        (blocks, (12, 12), {}),
    ],
    ids=["smooth codes", "larger codes", "three factors", "mixed codes"],
)  # fmt: skip
def test_factorized_codes_are_straightened_in_a_hundred(kind, shape, options):
    assert straightened(kind, shape, **options) >= 0.95


@pytest.mark.slow
def test_permutations_of_straightened_codes_score_less_in_a_hundred():
    """Fewer points than above: some codes are no longer straightened, and fail for that alone."""
    outcome = nonlinear_factorization(many(twisted_blocks, (12, 12), 100), (12, 12))
    straight = torch.minimum(outcome.score, outcome.recovered) >= PASSING
    assert rate(straight) >= 0.9
    assert torch.equal(outcome.passes, straight)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [(lookup, {}), (lookup, FEW), (sums, {}), (products, {})],
    ids=["lookup", "lookup in few dimensions", "sums", "products"],
)
@pytest.mark.parametrize("shape", [(8, 8), (12, 12)], ids=str)
def test_entangled_codes_fail_the_nonlinear_test_in_a_hundred(kind, options, shape):
    assert rate(nonlinear_factorization(many(kind, shape, 100, **options), shape).passes) <= 0.05


@pytest.mark.slow
def test_squashing_what_is_entangled_does_not_pass():
    """x and y have coordinates of their own; a third is random, and a map could hide it below another."""
    generator = torch.Generator().manual_seed(0)
    both = codes((10, 10), 1, generator, smooth=True)
    activations = mixed(torch.cat([both, lookup((10, 10), 0, 1)], dim=1), generator)
    outcome = nonlinear_factorization(activations, (10, 10), steps=120)
    assert outcome.recovered < 0.8


def test_a_factor_that_is_not_there_is_an_empty_block():
    x = torch.arange(64).reshape(8, 8).flatten().div(8, rounding_mode="floor")
    activations = torch.stack([torch.sin(x), torch.cos(x)], dim=-1)
    for outcome in (linear_factorization(activations, (8, 8)), nonlinear_factorization(activations, (8, 8), steps=10)):
        assert outcome.share.tolist() == [1.0, 0.0]
        assert outcome.score > 0.99
        assert not outcome.passes
    lone = (x + torch.arange(64) % 8).double()[:, None]
    assert nonlinear_factorization(lone, (8, 8)).share.count_nonzero() == 1


def test_members_do_not_depend_on_each_other():
    activations = torch.stack([blocks((6, 6), 0), blocks((6, 6), 1, size=1), lookup((6, 6), 0)])
    outcome = linear_factorization(activations.unflatten(0, (3, 1)), (6, 6))
    assert outcome.score.shape == (3, 1)
    assert (outcome.block == -1).sum(dim=-1).flatten().tolist()[1] == outcome.block.shape[-1] - 2
    for place, own in enumerate(activations):
        alone = linear_factorization(own, (6, 6))
        assert torch.allclose(alone.score, outcome.score[place, 0])
        assert alone.p_value == outcome.p_value[place, 0]


def test_what_is_held_out_may_be_given():
    held_out = torch.zeros(8, 8, dtype=torch.bool)
    held_out[3:6, 3:6] = True
    activations = torch.stack([blocks((8, 8), 0), blocks((8, 8), 0)])
    activations[1, held_out.flatten()] = lookup((3, 3), 0)
    outcome = linear_factorization(activations, (8, 8), held_out.flatten())
    assert outcome.passes.tolist() == [True, False], "kept points alone do not decide"


@pytest.mark.parametrize(
    ("features", "shape", "held_out"),
    [
        (torch.ones(64, 3), (8, 8), None),
        (lookup((8, 8), 0) * torch.nan, (8, 8), None),
        (lookup((8, 8), 0), (8, 7), None),
        (lookup((8, 8), 0), (8, 8), torch.arange(64) < 8),
    ],
    ids=["constant", "NaN", "another size", "a value never kept"],
)
def test_what_cannot_be_tested_is_refused(features, shape, held_out):
    with pytest.raises(InvalidValue):
        linear_factorization(features, shape, held_out)


def test_units_of_single_factors_are_selective_until_they_are_mixed():
    shape = (5, 6, 4)
    separate = codes(shape, 3, torch.Generator().manual_seed(0), smooth=False)
    own = unit_selectivity(separate, shape)
    assert own.factor.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert torch.allclose(own.share.amax(dim=-1), torch.ones(9).double())
    turned = mixed(separate, torch.Generator().manual_seed(0), features=9)
    assert unit_selectivity(turned, shape).share.amax(dim=-1).mean() < 0.8
    assert linear_factorization(turned, shape, share=1.0).passes, "functional modularity does not mind"


def test_selectivity_is_that_of_loops():
    values = lookup((3, 4), 0, 5)
    ours = unit_selectivity(values[None], (3, 4)).share[0]
    for unit in range(5):
        grid = values[:, unit].reshape(3, 4)
        rows = torch.stack([row.mean() for row in grid]).var(correction=0)
        columns = torch.stack([column.mean() for column in grid.T]).var(correction=0)
        assert torch.allclose(ours[unit], torch.stack([rows, columns]) / grid.var(correction=0))


PLANTED = [((0,), (1,), (2,)), ((0, 1), (2,)), ((0, 2), (1,)), ((0,), (1, 2)), ((0, 1, 2),)]


def found(shape, grouping, count):
    """Share of representations whose planted grouping is found."""
    outcome = best_grouping(torch.stack([grouped(shape, grouping, seed) for seed in range(count)]), shape)
    return sum(outcome.groupings[own] == grouping for own in outcome.best.tolist()) / count


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("grouping", PLANTED, ids=str)
def test_planted_groupings_are_found(grouping, count):
    assert found((5, 5, 5), grouping, count) >= 0.95


def test_partitions_are_as_many_as_bell_numbers():
    assert [len(set(partitions(count))) for count in range(1, 6)] == [1, 2, 5, 15, 52]
    for grouping in partitions(4):
        assert sorted(factor for group in grouping for factor in group) == [0, 1, 2, 3]


def test_what_cannot_be_scored_has_no_value():
    held_out = torch.zeros(3, 3, 3, dtype=torch.bool)
    held_out[0, 0] = True
    outcome = best_grouping(grouped((3, 3, 3), PLANTED[0], 0, size=1), (3, 3, 3), held_out.flatten())
    place = outcome.groupings.index(((0, 1), (2,)))
    assert outcome.score[place].isnan()
    assert outcome.value[place] == -torch.inf
    assert outcome.groupings[outcome.best] == PLANTED[0]


def test_the_penalty_decides_between_groupings_that_fit():
    activations = grouped((4, 4, 4), PLANTED[0], 0)
    outcome = best_grouping(activations, (4, 4, 4))
    expected = [len(own) - 3 for own in outcome.groupings]
    assert torch.allclose(outcome.value, outcome.score + PENALTY * torch.tensor(expected))
    assert outcome.score[outcome.groupings.index(((0, 1, 2),))] == 1
