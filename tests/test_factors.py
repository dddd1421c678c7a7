import itertools

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid


def test_points_are_ordered_as_a_product():
    grid = FactorGrid((Factor("a", 0, 2, 3), Factor("b", 10, 11, 2), Factor("c", 5, 5, 1)))
    assert grid.shape == (3, 2, 1)
    assert grid.points.tolist() == [list(p) for p in itertools.product([0, 1, 2], [10, 11], [5])]


def test_position_counts_spacings_from_the_lowest():
    factor = Factor("brightness", 0.25, 1.0, 4)
    assert torch.allclose(factor.position(factor.values), torch.arange(4.0, dtype=torch.float64))


def test_nearest_is_the_brute_force_nearest():
    grid = FactorGrid((Factor("a", 0, 6, 7), Factor("b", -1, 1, 5)))
    low, high = torch.tensor([0.0, -1.0]).double(), torch.tensor([6.0, 1.0]).double()
    values = low + (high - low) * torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spacing = torch.tensor([1.0, 0.5]).double()
    brute = torch.cdist(values / spacing, grid.points / spacing).argmin(dim=1)
    assert torch.equal(grid.nearest(values), brute)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Factor("x", 0, 1, 0), "x.count"),
        (lambda: Factor("x", 3, 1, 5), "x.high"),
        (lambda: FactorGrid(()), "factors"),
        (lambda: FactorGrid((Factor("x", 0, 1, 2), Factor("x", 0, 1, 2))), "factors"),
    ],
)
def test_mistakes_name_the_field(make, field):
    with pytest.raises(InvalidValue, match=field):
        make()
