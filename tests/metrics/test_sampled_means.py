"""Estimates from some of a grid's points: exact where all were drawn, and within their stated error elsewhere."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.metrics.sampling import mean_estimate, quantile, ratio_estimate, repeated_estimate, stratified_sample

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
