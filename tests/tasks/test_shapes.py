"""Shapes: areas, centroids, exactness, and a slow oracle that counts points."""

import math

import pytest
import torch

from recombine.tasks.shapes import SHAPES, SMALLEST, cos_sin, coverage

SIZE = 64


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def drawn(shape, x, y, scale, rotation, size=SIZE):
    return coverage(
        shape, size, *torch.broadcast_tensors(*map(torch.atleast_1d, map(torch.as_tensor, (x, y, scale, rotation))))
    )


def placed(count, scale):
    """Random places, sub-pixel, and angles, among them those at which corners and edges lie on the pixels."""
    generator = torch.Generator().manual_seed(0)
    x, y, turn = torch.rand(3, count, dtype=torch.float64, generator=generator)
    angle = 360 * turn
    angle[: count // 4] = torch.arange(count // 4) * 45.0
    return 28 + 8 * x, 28 + 8 * y, torch.full_like(x, scale), angle


@pytest.mark.parametrize("scale", [SMALLEST, 12.0, 30.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_areas_and_centroids_are_as_asked(shape, scale):
    x, y, scales, angle = placed(100, scale)
    images, pixels = coverage(shape, SIZE, x, y, scales, angle), torch.arange(SIZE, dtype=torch.float64)
    assert images.min() >= 0
    assert images.max() <= 1 + 1e-12
    area = images.sum(dim=(1, 2))
    assert (area / scale**2 - 1).abs().max() < 0.01
    right, down = (images.sum(dim=1) @ pixels) / area - x, (images.sum(dim=2) @ pixels) / area - y
    assert torch.hypot(right, down).max() < 0.01 * scale


def inside(shape, u, v, scale):
    """Whether points belong to a shape, in its own coordinates."""
    if shape in ("square", "rectangle"):
        width, height = (scale, scale) if shape == "square" else (scale * math.sqrt(2), scale / math.sqrt(2))
        return (u.abs() < width / 2) & (v.abs() < height / 2)
    if shape == "cross":
        arm = scale / math.sqrt(5)
        return ((u.abs() < arm / 2) & (v.abs() < 1.5 * arm)) | ((v.abs() < arm / 2) & (u.abs() < 1.5 * arm))
    if shape in ("disc", "ellipse"):
        ratio = 1.0 if shape == "disc" else 1.5
        return u**2 / ratio + v**2 * ratio < scale**2 / math.pi
    if shape == "triangle":
        side = scale * 2 / 3**0.25
        bottom = -side / math.sqrt(12)
        return (v > bottom) & (v - bottom < math.sqrt(3) * (side / 2 - u.abs()))
    side = 2 * scale / math.sqrt(4 + math.pi)  # of the heart's square, whose lowest corner is looked for first
    area, disc = side**2, math.pi * side**2 / 8
    lift = 2 * disc * (side / 2 + 2 * side / (3 * math.pi)) / math.sqrt(2) / (area + 2 * disc)
    p, q = (v + lift + u) / math.sqrt(2), (v + lift - u) / math.sqrt(2)
    discs = (torch.hypot(p - side / 2, q) < side / 2) | (torch.hypot(p, q - side / 2) < side / 2)
    return ((p.abs() < side / 2) & (q.abs() < side / 2)) | discs


@pytest.mark.parametrize("angle", [0.0, 25.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_is_that_of_counted_points_under_a_tent(shape, angle):
    """The oracle filters the sharp shape by a tent along rows and columns; the drawn one by a tent along normals."""
    size, fine, x, y, scale = 24, 16, 11.3, 12.1, 10.0
    places = (torch.arange((size + 2) * fine, dtype=torch.float64) + 0.5) / fine - 1.5  # one pixel more on each side
    right, up, turn = places - x, y - places[:, None], math.radians(angle)
    u = math.cos(turn) * right + math.sin(turn) * up
    v = -math.sin(turn) * right + math.cos(turn) * up
    tent = (1 - (places - torch.arange(size, dtype=torch.float64)[:, None]).abs()).clamp(min=0) / fine
    oracle = tent @ inside(shape, u, v, scale).double() @ tent.mT
    image = drawn(shape, *column(x, y, scale, angle), size=size)[0]
    assert (image - oracle).abs().max() < 0.16  # at a corner
    assert (image - oracle).abs().mean() < 0.003


@pytest.mark.parametrize("shape", SHAPES)
def test_shifts_by_whole_pixels_and_full_turns_are_exact(shape):
    for dtype in (torch.float64, torch.float32):
        x, y = (torch.tensor(place, dtype=dtype) for place in ([20.25, 20.3], [21.5, 19.7]))
        scale, angle = (torch.tensor(value, dtype=dtype) for value in ([9.5, 11.3], [33.25, 117.5]))
        image = coverage(shape, 48, x, y, scale, angle)
        assert image.any()
        assert torch.equal(coverage(shape, 48, x, y, scale, angle + 360), image)
        assert torch.equal(coverage(shape, 48, x, y, scale, angle - 1080), image)
        moved = coverage(shape, 48, x + 5, y - 3, scale, angle)  # all four sums are numbers without rounding
        assert torch.equal(moved, image.roll((-3, 5), dims=(1, 2)))


@pytest.mark.parametrize("shape", SHAPES)
def test_quarter_turns_turn_the_pixels(shape):
    middle, scale = column(16.0), column(11.0)
    upright = coverage(shape, 33, middle, middle, scale, column(0.0))
    turned = coverage(shape, 33, middle, middle, scale, column(90.0))
    assert torch.equal(turned, upright.rot90(dims=(1, 2)))  # counter-clockwise, as rot90


def test_shapes_stand_upright():
    heart, triangle, wide = (
        drawn(shape, *column(31.5, 31.5, 20.0, 0.0))[0] for shape in ("heart", "triangle", "ellipse")
    )
    rows = torch.arange(SIZE)
    assert heart[heart.sum(dim=1) > 1][0, 31] < 0.1, "a notch on top"
    assert (triangle > 0.5).sum(dim=1)[rows > 36].max() == (triangle > 0.5).sum(dim=1).max(), "stands on a side"
    assert (wide > 0.5).any(dim=0).sum() > (wide > 0.5).any(dim=1).sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_are_those_of_small_differences(shape):
    at = column(30.3, 31.9, 13.7, 28.0)

    def image(values):
        return drawn(shape, *values)[0]

    for axis in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[axis] = 1.0
        _, exact = torch.func.jvp(image, (at,), (step,))
        difference = (image(at + 1e-6 * step) - image(at - 1e-6 * step)) / 2e-6
        assert (exact - difference).abs().max() < 1e-5 * exact.abs().max() or exact.abs().max() < 1e-12
    assert shape == "disc" or exact.abs().max() > 1e-3, "a turn is seen"


def test_every_angle_is_that_of_the_library_and_a_full_turn_changes_no_bit():
    for dtype, tolerance in ((torch.float64, 1e-15), (torch.float32, 1e-7)):
        degrees = torch.arange(0, 360, 0.125, dtype=dtype)
        for part, known in zip(cos_sin(degrees), (torch.cos, torch.sin), strict=True):
            assert (part.double() - known(torch.deg2rad(degrees.double()))).abs().max() < tolerance
        for one, more in zip(cos_sin(degrees), cos_sin(degrees + 720), strict=True):
            assert torch.equal(one, more)
