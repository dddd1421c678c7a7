"""Bands of images: where they lie, and whether that is where they should."""

import math

import numpy as np
import pytest
import torch

from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import band_alignment, band_index, band_position, mean_band_index, neuron_tuning
from recombine.tasks import BumpTask
from tests.small import noise

SIZE = 12
TASK = BumpTask(size=SIZE)


def stripes(shift=0):
    """Embeddings of the bump task as they should be: its own stripes, of x and of y."""
    places, absent = torch.arange(SIZE).double() + shift, torch.full((SIZE,), math.nan).double()
    vertical = TASK.render(torch.stack([places, absent], dim=1))
    horizontal = TASK.render(torch.stack([absent, places], dim=1))
    return torch.stack([vertical, horizontal])


def slow(image):
    """One image, in numpy."""
    profiles = [image.mean(axis=1), image.mean(axis=0)]
    axis = int(np.argmax([profile.var() for profile in profiles]))
    distance = np.abs(profiles[axis] - np.median(profiles[axis]))
    inside = [pixel for pixel, far in enumerate(distance) if far >= max(distance) / 2]
    return axis, (inside[0] + inside[-1]) / 2, profiles[axis].var() / image.var()


def test_it_is_what_numpy_finds_image_by_image():
    images = noise(3, 4, 7, 9)
    band = band_position(images)
    for place in np.ndindex(3, 4):
        axis, position, strength = slow(images[place].numpy())
        assert (band.axis[place].item(), band.position[place].item()) == (axis, position)
        assert band.strength[place].item() == pytest.approx(strength)
    torch.testing.assert_close(band.strength, band_index(images))


def test_a_dark_band_lies_where_a_bright_one_does():
    band, dark = band_position(stripes()), band_position(1 - stripes())
    assert band.axis.tolist() == dark.axis.tolist() == [[1] * SIZE, [0] * SIZE]
    assert band.position.tolist() == dark.position.tolist()
    assert band.position[:, 1:-1].tolist() == [list(range(1, SIZE - 1))] * 2
    assert band.position[:, [0, -1]].tolist() == [[0.5, SIZE - 1.5]] * 2  # the rest of the stripe is not in the image


def test_the_tasks_own_stripes_are_aligned():
    assert band_alignment(stripes()).item() == 1
    assert band_alignment(stripes().mT).item() == 0


def test_a_pixel_off_is_aligned_and_two_are_not():
    assert band_alignment(stripes(shift=1)).item() == 1
    assert band_alignment(stripes(shift=2)).item() == pytest.approx(2 / SIZE)  # those past the edge seem to lie on it
    assert band_alignment(stripes(shift=2), tolerance=2.0).item() == 1


def test_a_dark_and_a_bright_flank_have_the_coordinate_between_them():
    images = torch.zeros(2, SIZE, SIZE, SIZE)
    for value in range(2, SIZE - 2):
        images[0, value, :, value - 2], images[0, value, :, value + 2] = -1, 0.9
        images[1, value, value - 2], images[1, value, value + 2] = -1, 0.9
    assert band_alignment(images, border=2, tolerance=0).item() == (SIZE - 8) / (SIZE - 4)  # a flank in the border


def test_what_lies_at_the_border_is_left_out():
    images = stripes()
    images[0, :, :, 0] = images[1, :, 0] = 9.0
    assert band_alignment(images).item() < 0.5
    assert band_alignment(images, border=1).item() == 1


def test_blank_embeddings_are_not_aligned():
    images = stripes()
    images[0] = 0
    assert band_alignment(images).item() == 0.5
    assert band_alignment(torch.zeros(2, 3, 4, 4)).item() == 0


def test_a_low_rank_embedding_has_images_in_this_order():
    """Columns' vectors that are peaks at the coordinate, and flat rows', make vertical bands, as x needs."""
    embedding = LowRankEmbedding((SIZE, SIZE), (SIZE, SIZE), 1)
    peaks, flat = torch.eye(SIZE)[:, None, :], torch.ones(SIZE, 1, SIZE)
    with torch.no_grad():
        for factor, (rows, columns) in enumerate([(flat, peaks), (peaks, flat)]):
            embedding.rows[factor].copy_(rows)
            embedding.columns[factor].copy_(columns)
        assert band_alignment(torch.stack(embedding.images())).item() == 1


def test_a_mean_over_units_is_weighted_by_variance():
    maps = noise(2, 5, 6, 7)
    variance = maps.var(dim=(-2, -1), correction=0)
    expected = [np.average(band_index(maps[k]).numpy(), weights=variance[k].numpy()) for k in range(2)]
    assert mean_band_index(maps).tolist() == pytest.approx(expected)
    silent = torch.cat([maps, torch.ones(2, 3, 6, 7)], dim=1)
    torch.testing.assert_close(mean_band_index(silent), mean_band_index(maps))
    assert mean_band_index(torch.ones(3, 4, 4)).isnan()


def test_the_band_index_of_a_units_map_is_its_stripe_index():
    activations = noise(42, 5)
    maps = activations.T.unflatten(1, (6, 7))
    torch.testing.assert_close(band_index(maps), neuron_tuning(activations, (6, 7)).stripe_index)
