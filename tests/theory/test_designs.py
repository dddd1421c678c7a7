"""Designs: effects of sums of functions, random hold-outs, groups."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.separation import UNKNOWN, Design, cell_numbers, kept_points

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
