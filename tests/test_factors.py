import itertools
import math

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.factors import LARGEST_GRID, Factor, FactorGrid


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


@pytest.mark.parametrize("count", [10**7 + 1, 10**9, 10**300])
def test_a_factor_of_too_many_values_is_refused_before_any_is_made(count):
    with pytest.raises(InvalidValue, match=r"x.count: .* at most 10000000"):
        Factor("x", 0, 1e300, count)


def test_a_grid_of_too_many_points_is_refused_before_any_is_made():
    side = Factor("x", 0, 9_999, 10_000)
    with pytest.raises(InvalidValue, match="grid: 100000000 is not allowed; allowed: at most 10000000 combinations"):
        FactorGrid((side, Factor("y", 0, 9_999, 10_000)))
    assert FactorGrid((side, Factor("y", 0, 999, 1_000))).size == LARGEST_GRID


@pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf])
def test_bounds_are_finite(bound):
    with pytest.raises(InvalidValue, match=r"x\.low: "):
        Factor("x", bound, 1, 2)
    with pytest.raises(InvalidValue, match=r"x\.high: "):
        Factor("x", 0, bound, 2)


@pytest.mark.parametrize("name", ["", "a b", "x=1", "3d", "[red]"])
def test_names_are_identifiers(name):
    with pytest.raises(InvalidValue, match="factor: "):
        Factor(name, 0, 1, 2)


def test_values_are_different_numbers():
    for low, high, count in ((1e16, 1e16 + 2, 9), (-1e308, 1e308, 3), (0, 5e-324, 9)):
        with pytest.raises(InvalidValue, match=f"{count} different numbers"):
            Factor("x", low, high, count)
