"""Estimates from some of a grid's points, and sub-grids: within their stated error, random, and of its own values."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.metrics.sampling import (
    draw_sub_grids,
    gap_free_sub_grid,
    mean_estimate,
    quantile,
    ratio_estimate,
    repeated_estimate,
    stratified_sample,
    sub_grid_shape,
)
from recombine.metrics.stages import finite_difference_metric, metric_tensor, neighbour_metric

POINTS = 600
DRAWS = 300
"""That fewer than 90 % of them cover the truth has a chance below 1 in 1000 where 95 % do."""


def grid_values():
    generator = torch.Generator().manual_seed(0)
    held_out = torch.rand(POINTS, generator=generator) < 0.2
    error = torch.rand(POINTS, generator=generator, dtype=torch.float64) ** 3 + held_out
    return held_out, error, 0.5 + torch.rand(POINTS, generator=generator, dtype=torch.float64)


def covered(estimate, whole):
    """In how many draws the truth lies within the half-width."""
    return int(((estimate.value - whole).abs() <= quantile(estimate.freedom) * estimate.standard_error).sum())


@pytest.mark.parametrize("points", [30, 100])
def test_estimates_are_within_their_stated_error(points):
    held_out, error, blank = grid_values()
    drawn = [stratified_sample(held_out, points, seed) for seed in range(DRAWS)]
    inside = []
    for region in (held_out, ~held_out):
        own, count = torch.stack([sample[region[sample]] for sample in drawn]), int(region.sum())
        inside.append(covered(mean_estimate(error[own], count), error[region].mean()))
        ratio = error[region].mean() / blank[region].mean()
        inside.append(covered(ratio_estimate(error[own], blank[own], count), ratio))
    assert min(inside) >= 0.9 * DRAWS
    assert max(inside) < DRAWS  # an error that is never exceeded says too little


def test_a_whole_population_has_no_error():
    values = torch.rand(20, dtype=torch.float64)
    estimate = mean_estimate(values, 20)
    assert (estimate.value.item(), estimate.standard_error.item()) == (values.mean().item(), 0)
    assert ratio_estimate(values, values + 1, 20).standard_error.item() == 0


def test_too_few_points_have_no_error_to_state():
    assert mean_estimate(torch.ones(1), 5).standard_error.isnan()
    assert mean_estimate(torch.ones(0), 0).value.isnan()


def test_repeated_numbers_leave_out_what_is_none():
    values = torch.tensor([[1.0, torch.nan], [3.0, 5.0], [torch.inf, 7.0]])
    estimate = repeated_estimate(values)
    assert estimate.value.tolist() == [2.0, 6.0]
    assert estimate.standard_error.tolist() == pytest.approx([1.0, 1.0])


def test_a_small_hold_out_is_drawn_whole():
    held_out = torch.arange(1000) >= 993
    drawn = stratified_sample(held_out, 100, seed=3)
    assert len(drawn) == 100
    assert int(held_out[drawn].sum()) == 7
    assert torch.equal(drawn, drawn.unique())
    assert torch.equal(drawn, stratified_sample(held_out, 100, seed=3))
    assert not torch.equal(drawn, stratified_sample(held_out, 100, seed=4))


def test_fewer_points_than_were_drawn_are_refused():
    with pytest.raises(InvalidValue, match="population"):
        mean_estimate(torch.ones(3), 2)


def test_what_is_absent_is_never_drawn():
    held_out, *_ = grid_values()
    present = torch.arange(POINTS) % 3 > 0
    for points in (10, 100, POINTS):
        sample = stratified_sample(held_out & present, points, 1, present)
        assert present[sample].all()
        assert len(set(sample.tolist())) == len(sample) == min(points, int(present.sum()))
    everything = torch.ones(POINTS, dtype=torch.bool)
    assert torch.equal(stratified_sample(held_out, 40, 1, everything), stratified_sample(held_out, 40, 1))


GRID = FactorGrid((Factor("x", 0, 9, 10), Factor("y", -1, 1, 7), Factor("size", 0.5, 1, 2)))


@pytest.mark.parametrize(
    ("shape", "points", "expected"),
    [((10, 10), 25, (5, 5)), ((10, 2, 10), 50, (5, 2, 5)), ((1, 100), 30, (1, 30)), ((3, 3), 100, (3, 3))],
)
def test_shapes(shape, points, expected):
    assert sub_grid_shape(shape, points) == expected


def test_points_are_those_of_the_whole_grid():
    for part in draw_sub_grids(GRID, 24, 3, seed=1):
        assert part.grid.shape == (4, 3, 2)
        assert torch.equal(part.grid.points, GRID.points[part.indices])
        for own, whole in zip(part.grid.factors, GRID.factors, strict=True):
            assert torch.equal(own.position(own.values), whole.position(own.values))


def test_every_point_is_as_likely_as_any_other():
    counts = torch.zeros(GRID.size)
    for part in draw_sub_grids(GRID, 24, 800):
        counts[part.indices] += 1
    share = counts / 800  # whose standard deviation is 0.013
    assert (share - 24 / GRID.size).abs().max() < 0.06


def test_a_hold_out_is_looked_for():
    held_out = torch.zeros(GRID.shape, dtype=torch.bool)
    held_out[0, 0] = True
    for part in draw_sub_grids(GRID, 24, 20, held_out=held_out.flatten()):
        assert int(held_out.flatten()[part.indices].sum()) == 2


def test_neighbours_give_the_differences_of_the_whole_grid():
    weight = torch.randn(3, 5, dtype=torch.float64)

    def reader(values, tap):
        tap("bent", torch.sin(values @ weight))
        tap("output", (values @ weight).square()[:, None])

    indices = torch.tensor([0, 3, 57, 139])
    metrics = neighbour_metric(reader, GRID, indices, torch.device("cpu"), memory=4000)
    stages = {}
    reader(GRID.points, lambda name, activation: stages.setdefault(name, activation.flatten(1)))
    for name, stage in stages.items():
        spacing = tuple(factor.spacing for factor in GRID.factors)
        torch.testing.assert_close(metrics[name], finite_difference_metric(stage, GRID.shape, spacing)[indices])


@pytest.mark.parametrize("members", [0, 1])
def test_a_fraction_of_a_step_against_a_loop_and_towards_the_derivative(members):
    grid = FactorGrid((Factor("x", 0, 4, 5), Factor("y", 0, 2, 3)))
    weights = torch.randn(members or 1, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def reader(values, tap):
        tap("bent", torch.sin(values @ (weights if members else weights[0])))

    def stage(x, y):
        return torch.sin(torch.tensor([x, y], dtype=torch.float64) @ weights[0])

    errors, inner = [], torch.tensor([4, 7, 10])
    for fraction in (1.0, 0.5, 0.125):
        found = neighbour_metric(
            reader, grid, torch.arange(15), torch.device("cpu"), members=members, fraction=fraction, memory=4000
        )["bent"]
        own = found[0] if members else found
        for place, (x, y) in enumerate(grid.points.tolist()):
            right, left, up, down = (
                min(x + fraction, 4),
                max(x - fraction, 0),
                min(y + fraction, 2),
                max(y - fraction, 0),
            )
            slopes = torch.stack(
                [(stage(right, y) - stage(left, y)) / (right - left), (stage(x, up) - stage(x, down)) / (up - down)]
            )
            torch.testing.assert_close(own[place], slopes @ slopes.mT)
        exact = metric_tensor(reader, grid.points, members=members)["bent"]
        errors.append((found - exact)[..., inner, :, :].abs().max().item())
    assert errors[0] > 2 * errors[1] > 2 * 10 * errors[2]  # of second order, but for the ends of the grid


def slowly_without_gaps(shape, present):
    """Positions of each factor that stay: whole slices are cut out, and everything is counted again each time."""
    chosen, left = [list(range(count)) for count in shape], present.reshape(shape)
    while not left.all():
        lacking = [(~left).double().mean(dim=[a for a in range(left.ndim) if a != k]) for k in range(left.ndim)]
        axis = max(range(left.ndim), key=lambda k: float(lacking[k].max()))
        worst = int(lacking[axis].argmax())
        del chosen[axis][worst]
        left = left.index_select(axis, torch.tensor([k for k in range(left.shape[axis]) if k != worst]))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_values_that_lack_most_are_left_out_until_nothing_is_missing(seed):
    present = torch.rand(GRID.size, generator=torch.Generator().manual_seed(seed)) > 0.05
    part = gap_free_sub_grid(GRID, present)
    assert present[part.indices].all()
    assert torch.equal(part.grid.points, GRID.points[part.indices])
    steps = [list(factor.steps) for factor in part.grid.factors]
    assert steps == slowly_without_gaps(GRID.shape, present)


def test_gaps_everywhere():
    plane = FactorGrid(GRID.factors[:2])
    with pytest.raises(InvalidValue, match="at least two values of each factor"):
        gap_free_sub_grid(plane, (torch.arange(70) == 0) | (torch.arange(70) == 8))


def test_a_part_of_a_part_has_the_whole_grids_positions():
    part = gap_free_sub_grid(GRID, torch.arange(GRID.size) != 31)
    (inner,) = draw_sub_grids(part.grid, 12, 1, seed=2)
    assert torch.equal(inner.grid.points, GRID.points[part.indices[inner.indices]])
    for own, whole in zip(inner.grid.factors, GRID.factors, strict=True):
        assert own.spacing == whole.spacing
        assert torch.equal(own.position(own.values), whole.position(own.values))
