"""Structural modularity: units and weights whose structure is known, and what a rotation hides."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.factorization import linear_factorization
from recombine.theory.modularity import structural_modularity, unit_selectivity
from tests.theory.planted_codes import codes, lookup, mixed


def generator():
    return torch.Generator().manual_seed(0)


def test_units_of_single_factors_are_selective_until_they_are_mixed():
    shape = (5, 6, 4)
    separate = codes(shape, 3, generator(), smooth=False)
    own = unit_selectivity(separate, shape)
    assert own.factor.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert torch.allclose(own.share.amax(dim=-1), torch.ones(9).double())
    turned = mixed(separate, generator(), features=9)
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


def test_units_that_do_not_vary_have_no_factor():
    own = unit_selectivity(torch.full((2, 12, 3), 0.1), (3, 4))
    assert own.factor.unique().tolist() == [-1]
    assert own.share.abs().sum() == 0


def test_blocks_of_weights_have_modularity_one_and_unrelated_ones_none():
    inputs, outputs = torch.arange(60) % 3, torch.arange(90) % 3
    weight = torch.randn(20, 90, 60, generator=generator())
    inside = outputs[:, None] == inputs
    assert torch.allclose(structural_modularity(weight * inside, inputs, outputs), torch.ones(20).double())
    assert structural_modularity(weight, inputs, outputs).abs().max() < 0.05
    assert (structural_modularity(weight * ~inside, inputs, outputs) < -0.3).all()
    half = structural_modularity(weight * (inside + ~inside * 0.5**0.5), inputs, outputs)
    assert torch.allclose(half, torch.full((20,), 0.25).double(), atol=0.05), "(1/2 − 1/3) / (1 − 1/3)"


def test_what_random_assignment_gives_is_taken_off():
    weight = torch.randn(40, 30, generator=generator())
    inputs, outputs = torch.arange(30) % 2, torch.arange(40) % 2
    orders = [torch.randperm(30, generator=generator().manual_seed(seed)) for seed in range(200)]
    values = torch.stack([structural_modularity(weight, inputs[order], outputs) for order in orders])
    assert values.mean().abs() < 0.01


def test_units_of_no_factor_count_as_outside():
    weight = torch.eye(4)
    inputs, outputs = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, -1])
    assert structural_modularity(weight, inputs, outputs) == pytest.approx((3 / 4 - 3 / 8) / (1 - 3 / 8))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: unit_selectivity(torch.ones(12, 2), (3, 5)), "grid"),
        (lambda: unit_selectivity(torch.full((12, 2), torch.nan), (3, 4)), "features"),
        (lambda: structural_modularity(torch.zeros(2, 2), torch.arange(2), torch.arange(2)), "weight"),
        (lambda: structural_modularity(torch.ones(2, 2), torch.arange(3), torch.arange(2)), "inputs"),
        (lambda: structural_modularity(torch.ones(2, 2), torch.zeros(2).int(), torch.zeros(2).int()), "inputs"),
    ],
    ids=["another size", "NaN", "no weights", "another number of units", "one factor"],
)
def test_mistakes_are_one_line(call, field):
    with pytest.raises(InvalidValue, match=field) as raised:
        call()
    assert "\n" not in str(raised.value)
