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


def test_nearest_is_the_brute_force_nearest():
    grid = FactorGrid((Factor("a", 0, 6, 7), Factor("b", -1, 1, 5)))
    low, high = torch.tensor([0.0, -1.0]).double(), torch.tensor([6.0, 1.0]).double()
    values = low + (high - low) * torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spacing = torch.tensor([1.0, 0.5]).double()
    brute = torch.cdist(values / spacing, grid.points / spacing).argmin(dim=1)
    assert torch.equal(grid.nearest(values), brute)


@pytest.mark.parametrize(
    "factor",
    [
        Factor("a", 0, 270, 4, form="angle"), Factor("a", 10, 150, 8, form="angle", period=180),
        Factor.of("a", [-3, 0, 1], form="angle", period=6.0),
    ],
    ids=["degrees", "half turns", "uneven"],
)  # fmt: skip
def test_nearest_of_an_angle_is_the_nearest_on_the_circle(factor):
    values = torch.linspace(-2 * factor.period, 3 * factor.period, 997, dtype=torch.float64) + 0.0123
    away = (values[:, None] - factor.values).remainder(factor.period)
    brute = torch.minimum(away, factor.period - away).argmin(dim=1)
    assert torch.equal(FactorGrid((factor,)).nearest(values[:, None]), brute)


def test_a_grid_of_too_many_points_is_refused_before_any_is_made():
    side = Factor("x", 0, 9_999, 10_000)
    with pytest.raises(InvalidValue, match="at most 10000000 combinations"):
        FactorGrid((side, Factor("y", 0, 9_999, 10_000)))
    assert FactorGrid((side, Factor("y", 0, 999, 1_000))).size == LARGEST_GRID


def test_rows_and_positions_of_some_points_are_those_of_all():
    grid = FactorGrid((Factor("a", 0, 2, 3), Factor.of("b", [0.5, 0.6, 1.0, 4.0]), Factor("c", 5, 5, 1)))
    some = torch.tensor([11, 0, 5, 5])
    points = [list(p) for p in itertools.product([0, 1, 2], [0.5, 0.6, 1.0, 4.0], [5])]
    assert grid.rows(some).tolist() == [points[i] for i in some]
    assert torch.equal(grid.positions(some), grid.indices[some])
    assert torch.equal(grid.rows(some), grid.points[some])
    for wrong in (12, -1):
        with pytest.raises(ValueError, match="out of bounds"):
            grid.rows(torch.tensor([wrong]))


def test_uneven_values_have_positions_in_straight_lines_between_them():
    factor = Factor.of("size", [0.5, 0.7, 1.0, 2.0])
    assert (factor.low, factor.high, factor.count) == (0.5, 2.0, 4)
    assert torch.equal(factor.position(factor.values), torch.arange(4.0, dtype=torch.float64))
    between = torch.tensor([0.6, 0.85, 1.25, 3.0, 0.3], dtype=torch.float64)
    assert torch.allclose(factor.position(between), torch.tensor([0.5, 1.5, 2.25, 4.0, -1.0], dtype=torch.float64))
    grid = FactorGrid((factor,))
    assert grid.nearest(torch.tensor([[0.59], [0.61], [1.49], [1.51], [9.0]]).double()).tolist() == [0, 1, 2, 3, 3]


def test_even_values_make_an_even_factor():
    assert Factor.of("x", range(28)) == Factor("x", 0, 27, 28)
    assert Factor.of("angle", [0, 90, 180, 270], "angle") == Factor("angle", 0, 270, 4, "angle", period=360)
    assert Factor.of("only", [3.5]) == Factor("only", 3.5, 3.5, 1)


def test_axes_by_name_or_place():
    grid = FactorGrid(tuple(Factor(name, 0, 2, 3) for name in ("x", "y", "size")))
    assert grid.axes(None) == (0, 1, 2)
    assert grid.axes(("size", 0)) == (2, 0)
    for wrong in (("z",), (3,), (-1,), ("x", 0), ()):
        with pytest.raises(InvalidValue, match="distinct factors from x, y, size, by name or index"):
            grid.axes(wrong)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Factor("x", 0, 1, 0), "x.count"),
        (lambda: FactorGrid.parse("x=3:0"), "x.high"),
        (lambda: Factor("x", 3, 1, 5), "x.high"),
        (lambda: Factor("x", math.nan, 1, 2), "x.low"),
        (lambda: Factor("x", 0, math.inf, 2), "x.high"),
        (lambda: Factor("x=1", 0, 1, 2), "factor"),
        (lambda: Factor("x", 0, 1, 3, given=(0, 1)), "x.given"),
        (lambda: Factor("x", 0, 2, 3, given=(0, 2, 1)), "x.given"),
        (lambda: Factor("x", 0, 1, 2, given=(0, math.nan)), "x.given"),
        (lambda: Factor("x", 0, 1, 2, period=3), "x.period"),
        (lambda: Factor("x", 0, 1, 2, "angle", period=0), "x.period"),
        (lambda: Factor("x", 0, 361, 5, "angle"), "x.high"),
        (lambda: Factor.of("x", []), "x.given"),
        (lambda: FactorGrid(()), "factors"),
        (lambda: FactorGrid((Factor("x", 0, 1, 2), Factor("x", 0, 1, 2))), "factors"),
    ],
)
def test_mistakes_name_the_field(make, field):
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.field == field
