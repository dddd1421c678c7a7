"""Bumps with up to five factors: the paper's images, known answers, absent factors, derivatives."""

import math

import pytest
import torch

from recombine.tasks import BumpsTask, BumpTask

ALL = "x=5,y=5,size=3,intensity=3,orientation=4"


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("fields", [{}, {"polarity": "dark", "sigma": 1.7}], ids=str)
def test_with_x_and_y_alone_the_images_are_those_of_the_paper(fields):
    paper, bumps = BumpTask(size=12, **fields), BumpsTask(size=12, factors="x=12,y=12", **fields)
    values = torch.cat([paper.grid.points, paper.isolated_values()])
    assert torch.equal(bumps.grid.points, paper.grid.points)
    assert torch.equal(bumps.render(values), paper.render(values))
    assert torch.equal(bumps.blank, paper.blank)
    assert torch.equal(bumps.held_out, paper.held_out)


def test_a_bump_is_drawn_pixel_by_pixel():
    task = BumpsTask(size=9, sigma=1.5, elongation=4.0, factors=ALL)
    image = task.render(rows([2.0, 6.25, 1.2, 0.5, 30.0]))[0]
    along, across = 1.5 * 1.2 * 2, 1.5 * 1.2 / 2
    for y in range(9):
        for x in range(9):
            right, up = x - 2, 6.25 - y
            p = right * math.cos(math.pi / 6) + up * math.sin(math.pi / 6)
            q = -right * math.sin(math.pi / 6) + up * math.cos(math.pi / 6)
            assert image[y, x].item() == pytest.approx(0.5 * math.exp(-(p**2 / along**2 + q**2 / across**2) / 2))


def test_volume_is_that_of_size_and_intensity_at_every_orientation():
    task = BumpsTask(size=64, sigma=2.0, factors=ALL, fixed="")
    for angle in (0.0, 17.0, 90.0, 133.0, torch.nan):
        volume = task.render(rows([31.3, 30.8, 1.25, 0.5, angle])).sum().item()
        assert volume == pytest.approx(2 * math.pi * (2.0 * 1.25) ** 2 * 0.5, rel=1e-6)


def test_half_turns_and_whole_pixels_are_exact():
    task = BumpsTask(size=40, sigma=2.0, factors=ALL)
    image = task.render(rows([17.25, 20.5, 1.5, 0.75, 35.5]))
    assert torch.equal(task.render(rows([17.25, 20.5, 1.5, 0.75, 215.5])), image)
    moved = task.render(rows([20.25, 18.5, 1.5, 0.75, 35.5]))
    assert torch.equal(moved[0, :-2, 3:], image[0, 2:, :-3])


def test_absent_factors_are_neutral():
    task = BumpsTask(size=15, factors=ALL)
    nan = torch.nan
    plain = BumpTask(size=15).render(rows([7.0, 5.0]))
    torch.testing.assert_close(task.render(rows([7.0, 5.0, nan, nan, nan])), plain)
    torch.testing.assert_close(task.render(rows([7.0, 5.0, 1.0, 1.0, nan])), plain)
    assert torch.equal(task.render(rows([nan, nan, 2.0, 0.5, 30.0])), torch.full((1, 15, 15), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 140.0, torch.nan])
def test_a_stripe_is_the_largest_bump_at_each_pixel(angle):
    task, nan = BumpsTask(size=13, factors="x=13,y=13,orientation=4"), torch.nan
    places = torch.arange(-40, 53, 0.05, dtype=torch.float64)
    upright = task.render(rows([5.0, nan, angle]))[0]
    swept = torch.stack([torch.full_like(places, 5.0), places, torch.full_like(places, angle)], dim=1)
    assert (upright - task.render(swept).amax(dim=0)).abs().max() < 2e-3
    assert torch.equal(upright, upright[:1].expand(13, 13))
    level = task.render(rows([nan, 5.0, angle]))[0]
    assert (level - task.render(swept[:, [1, 0, 2]]).amax(dim=0)).abs().max() < 2e-3


def test_factors_left_out_are_absent_and_may_be_fixed():
    one = BumpsTask(size=11, factors="x=11", holdout="none")
    assert torch.equal(one.render(rows([4.0])), BumpTask(size=11).render(rows([4.0, torch.nan])))
    assert one.position_factors == ()
    assert BumpsTask().position_factors == ("x", "y")
    fixed = BumpsTask(size=11, factors="x=11", holdout="none", fixed="y=3,size=2,intensity=0.5")
    torch.testing.assert_close(fixed.render(rows([4.0])), 0.5 * BumpTask(size=11, sigma=2.0).render(rows([4.0, 3.0])))


def test_derivatives_are_those_of_small_differences_also_beside_absent_factors():
    task = BumpsTask(size=12, sigma=1.5, factors=ALL)
    nan = torch.nan
    at = rows([5.3, 6.1, 1.2, 0.6, 25.0], [5.3, nan, 1.2, 0.6, 25.0], [nan, 4.4, nan, 0.9, nan])
    present = ~torch.isnan(at)
    for axis in range(5):
        step = torch.zeros_like(at)
        step[:, axis] = 1.0
        _, exact = torch.func.jvp(task.render, (at,), (step,))
        difference = (task.render(at + 1e-6 * step) - task.render(at - 1e-6 * step)) / 2e-6
        torch.testing.assert_close(exact[present[:, axis]], difference[present[:, axis]], rtol=1e-6, atol=1e-8)
        assert not exact[~present[:, axis]].any(), "nothing depends on an absent factor"
