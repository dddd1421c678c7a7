"""Partial factorization: planted groupings are found."""

import pytest
import torch

from recombine.theory.factorization import PENALTY, best_grouping, partitions
from tests.theory.planted_codes import grouped

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
