"""Sprites and balls: colour, order, places, devices, derivatives."""

import pytest
import torch

from recombine.tasks import BallsTask, SpriteTask
from recombine.tasks import sprites as module
from recombine.tasks.shapes import coverage
from recombine.tasks.sprites import hue_color

SIX = "shape=7,scale=3,rotation=4,x=4,y=4,hue=3"
TWELVE = ",".join([SIX, *(f"{part.split('=')[0]}2=2" for part in SIX.split(","))])


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def some(task, count, seed=0):
    """Rows of values anywhere in the task's ranges, categories at their values."""
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for factor in task.grid.factors:
        share = torch.rand(count, dtype=torch.float64, generator=generator)
        column = factor.low + (factor.high - factor.low) * share
        columns.append(column.round() if factor.name.startswith("shape") else column)
    return torch.stack(columns, dim=1)


def test_one_sprite_is_its_coverage_in_its_colour():
    task = SpriteTask(size=40, factors=SIX)
    values = some(task, 30)
    for row, image in zip(values, task.render(values), strict=True):
        shape, scale, rotation, x, y, hue = row[:, None]
        covered = coverage(task.shapes[int(shape)], 40, x, y, scale, rotation)
        torch.testing.assert_close(image, covered * hue_color(hue)[0][:, None, None])


def test_the_second_sprite_is_in_front():
    fields = {"size": 32, "factors": "x=4,x2=4", "fixed": "y=16,y2=16,scale=12,scale2=7", "shapes": "square"}
    grey = SpriteTask(sprites=2, **fields).render(rows([16.0, 16.0], [8.0, 26.0]))
    assert grey[0, 16, 16] == 0.5
    assert grey[0, 16, 11] == 1
    assert grey[1, 16, 8] == 1
    assert grey[1, 16, 26] == 0.5
    colour = SpriteTask(sprites=2, colour=True, **fields).render(rows([16.0, 16.0]))[0]
    assert colour[:, 16, 16].tolist() == hue_color(rows(180.0))[0].tolist()
    assert colour[:, 16, 11].tolist() == hue_color(rows(0.0))[0].tolist()


def test_balls_are_two_discs_of_opposite_colours():
    task = BallsTask(size=40, holdout="none")
    assert task.grid.names == ("x", "y", "x2", "y2")
    image = task.render(rows([13.0, 14.0, 26.0, 27.0]))[0]
    first, second = (coverage("disc", 40, rows(a), rows(b), rows(10.0), rows(0.0))[0] for a, b in ((13, 14), (26, 27)))
    colours = hue_color(rows(0.0, 180.0))[:, :, None, None]
    torch.testing.assert_close(image, first * colours[0] + second * colours[1])
    assert torch.equal(colours.sum(dim=0).flatten(), rows(1.0, 1.0, 1.0)), "opposite hues add up to white"
    assert torch.equal(task.render(rows([20.0, 20.0, 20.0, 20.0]))[0, :, 20, 20], colours[1].flatten())


@pytest.mark.parametrize("direction", ["decode", "encode"])
def test_examples_and_blanks_have_channels(direction):
    task = SpriteTask(size=20, factors="x=4,hue=3", direction=direction, holdout="none")
    example = task.examples(task.grid.points)
    images, codes = (example.targets, example.inputs) if direction == "decode" else example
    assert images.shape == (12, 3, 20, 20)
    assert codes.shape == (12, 7)
    assert images.dtype == codes.dtype == torch.float32
    assert task.blank.shape == ((3, 20, 20) if direction == "decode" else (7,))
    grey = SpriteTask(size=20, factors="x=4,y=3", direction="encode", holdout="none")
    assert grey.examples(grey.grid.points).inputs.shape == (12, 1, 20, 20)


@pytest.mark.parametrize("size", [20, 28])
def test_no_sprite_leaves_the_image_unless_ranges_are_given(size):
    task = SpriteTask(size=size, factors="shape=7,scale=2,rotation=24,x=2,y=2", holdout="none")
    area = task.render(task.grid.points).sum(dim=(1, 2))
    assert (area / task.grid.points[:, 1] ** 2 - 1).abs().max() < 0.01


def test_a_row_is_drawn_as_it_is_alone_whatever_the_batch(monkeypatch):
    task = SpriteTask(size=20, factors=SIX)
    values = some(task, 23)
    together = task.render(values)
    assert torch.equal(torch.cat([task.render(row[None]) for row in values]), together)
    monkeypatch.setattr(module, "PIXELS_AT_ONCE", {"cpu": 5 * 20**2})
    assert torch.equal(task.render(values), together)
    assert task.render(values[:0]).shape == (0, 3, 20, 20)
    single = task.render(values.float())
    assert single.dtype == torch.float32
    assert (single - together).abs().max() < 1e-4


def test_derivatives_are_those_of_small_differences_and_shape_has_none():
    task = SpriteTask(size=24, sprites=2, factors=TWELVE)
    at = some(task, 8, seed=3)
    for axis, name in enumerate(task.grid.names):
        step = torch.zeros_like(at)
        step[:, axis] = 1.0
        _, exact = torch.func.jvp(task.render, (at,), (step,))
        if name.startswith("shape"):
            assert not exact.any()
            continue
        difference = (task.render(at + 1e-6 * step) - task.render(at - 1e-6 * step)) / 2e-6
        assert (exact - difference).abs().max() < 1e-5 * exact.abs().max(), name
        cotangent = torch.rand(exact.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(axis))
        values = at.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((task.render(values) * cotangent).sum(), values)
        assert gradient[:, axis].sum().item() == pytest.approx((exact * cotangent).sum().item(), rel=1e-8)


def test_the_metric_along_the_colour_wheel_is_known():
    task = SpriteTask(size=24, factors="hue=5,x=3")
    at = rows([77.0, 11.5])
    jacobian = torch.func.jacfwd(task.render)(at)[0, ..., 0, :].flatten(0, 2)
    metric = jacobian.mT @ jacobian
    covered = SpriteTask(size=24, factors="x=3", holdout="none").render(at[:, 1:])
    assert metric[0, 0].item() == pytest.approx(3 / 8 * torch.pi**2 / 180**2 * covered.square().sum().item())


@pytest.mark.gpu
def test_images_are_drawn_on_the_device_of_the_values():
    task = SpriteTask(size=64, sprites=2, factors=TWELVE)
    values = some(task, 200)
    images = task.render(values.cuda())
    assert images.device.type == "cuda"
    assert (images.cpu() - task.render(values)).abs().max() < 1e-10
