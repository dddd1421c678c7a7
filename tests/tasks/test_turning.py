"""Cosines and sines in degrees."""

import torch

from recombine.tasks.shapes import cos_sin


def test_quarter_turns_are_exact():
    cosine, sine = cos_sin(torch.arange(-360.0, 721.0, 90.0, dtype=torch.float64))
    assert cosine.tolist() == [1, 0, -1, 0] * 3 + [1]
    assert sine.tolist() == [0, 1, 0, -1] * 3 + [0]
    assert not torch.signbit(cosine[cosine == 0]).any()
    assert not torch.signbit(sine[sine == 0]).any()


def test_every_angle_is_that_of_the_library_and_a_full_turn_changes_no_bit():
    for dtype, tolerance in ((torch.float64, 1e-15), (torch.float32, 1e-7)):
        degrees = torch.arange(0, 360, 0.125, dtype=dtype)
        for part, known in zip(cos_sin(degrees), (torch.cos, torch.sin), strict=True):
            assert (part.double() - known(torch.deg2rad(degrees.double()))).abs().max() < tolerance
        for one, more in zip(cos_sin(degrees), cos_sin(degrees + 720), strict=True):
            assert torch.equal(one, more)


def test_derivatives_are_minus_the_sine_and_the_cosine():
    degrees = torch.arange(-400.0, 400.0, 7.0, dtype=torch.float64)
    (cosine, sine), speeds = torch.func.jvp(cos_sin, (degrees,), (torch.ones_like(degrees),))
    torch.testing.assert_close(speeds[0], torch.deg2rad(-sine))
    torch.testing.assert_close(speeds[1], torch.deg2rad(cosine))
