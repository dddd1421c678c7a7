"""Bands of images: where they lie, and whether that is where they should."""

import math

import numpy as np
import pytest
import torch

from recombine.decoders.low_rank import LowRankEmbedding
from recombine.errors import InvalidValue
from recombine.metrics import band_alignment, band_index, band_position, mean_band_index, neuron_tuning
from recombine.tasks import BumpTask

SIZE = 12
TASK = BumpTask(size=SIZE)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
    return axis, int(distance.argmax()), profiles[axis].var() / image.var()


def test_it_is_what_numpy_finds_image_by_image():
    images = random(3, 4, 7, 9)
    band = band_position(images)
    for place in np.ndindex(3, 4):
        axis, position, strength = slow(images[place].numpy())
        assert (band.axis[place].item(), band.position[place].item()) == (axis, position)
        assert band.strength[place].item() == pytest.approx(strength)
    torch.testing.assert_close(band.strength, band_index(images))


def test_a_dark_band_lies_where_a_bright_one_does():
    band, dark = band_position(stripes()), band_position(1 - stripes())
    assert band.axis.tolist() == dark.axis.tolist() == [[1] * SIZE, [0] * SIZE]
    assert band.position.tolist() == dark.position.tolist() == [list(range(SIZE))] * 2


def test_the_tasks_own_stripes_are_aligned():
    assert band_alignment(stripes()).item() == 1
    assert band_alignment(stripes().mT).item() == 0
    assert band_alignment(stripes().mT, axes=(0, 1)).item() == 1
    assert band_alignment(stripes()[:1], axes=(1,)).item() == 1


def test_a_pixel_off_is_aligned_and_two_are_not():
    far = torch.arange(SIZE).expand(2, SIZE)
    inside = 5.0
    assert band_alignment(stripes(), far + 1.0).item() == 1
    assert band_alignment(stripes(), far + 2.0).item() == 0
    assert band_alignment(stripes(), far + 2.0, tolerance=2.0).item() == 1
    assert band_alignment(stripes(), torch.full((2, SIZE), inside)).item() == pytest.approx(3 / SIZE)


def test_noise_is_aligned_by_chance():
    share = band_alignment(random(200, 2, SIZE, SIZE, SIZE))
    within = (3 * SIZE - 2) / SIZE**2  # of the pixels, fewer at the border
    assert share.shape == (200,)
    assert share.mean().item() == pytest.approx(within / 2, abs=0.015)


def test_blank_embeddings_are_not_aligned():
    images = stripes()
    images[0] = 0
    assert band_alignment(images).item() == 0.5
    assert band_alignment(torch.zeros(2, 3, 4, 4)).item() == 0


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4)])
def test_no_image_has_no_band(shape):
    with pytest.raises(InvalidValue, match="at least one image of at least one pixel"):
        band_alignment(torch.zeros(shape), axes=(1, 0)[: shape[0]])


def test_axes_are_one_for_each_factor():
    for axes in ((1,), (1, 2), (1, 0, 1)):
        with pytest.raises(InvalidValue, match="axes"):
            band_alignment(stripes(), axes=axes)


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
    maps = random(2, 5, 6, 7)
    variance = maps.var(dim=(-2, -1), correction=0)
    expected = [np.average(band_index(maps[k]).numpy(), weights=variance[k].numpy()) for k in range(2)]
    assert mean_band_index(maps).tolist() == pytest.approx(expected)
    silent = torch.cat([maps, torch.ones(2, 3, 6, 7)], dim=1)
    torch.testing.assert_close(mean_band_index(silent), mean_band_index(maps))
    assert mean_band_index(torch.ones(3, 4, 4)).isnan()


def test_the_band_index_of_a_units_map_is_its_stripe_index():
    activations = random(42, 5)
    maps = activations.T.unflatten(1, (6, 7))
    torch.testing.assert_close(band_index(maps), neuron_tuning(activations, (6, 7)).stripe_index)
