"""Does the hole stay open: isometries, collapses, codes, and distances written out."""

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.theory.transport import hole_geometry
from tests.small import noise
from tests.theory.chains import GRID, centred_gram
from tests.theory.test_transport import SHAPE, box

HOLE = box(3, 9)
STEPS = torch.where(HOLE[None, :], torch.inf, torch.cdist(GRID, GRID))
"""From each point to kept ones."""


def geometry(features, held_out=HOLE, shape=SHAPE):
    return hole_geometry(centred_gram(features), shape, held_out)


def moved(where):
    """The plane with held-out points put where others are."""
    return torch.where(HOLE[:, None], GRID[where], GRID)


def test_isometries_keep_it_open():
    plane = torch.cat([GRID, torch.zeros(len(GRID), 5)], dim=1) @ torch.linalg.qr(noise(7, 7)).Q
    for features in (GRID, 1e4 * plane + 3, GRID * torch.tensor([1.0, 6.0])):
        hole = geometry(features)
        assert torch.allclose(hole.openness, torch.ones(36).double())
        assert not hole.misplaced.any()


def test_what_is_mapped_onto_the_edge_closes_it():
    hole = geometry(moved(STEPS.argmin(dim=1)))
    assert hole.openness.tolist() == [0] * 36
    assert not hole.misplaced.any()


def test_what_is_mapped_onto_points_far_away_is_misplaced():
    far = torch.where(STEPS.isinf(), -1.0, STEPS).argmax(dim=1)
    hole = geometry(moved(far))
    assert hole.openness.tolist() == [0] * 36
    assert hole.misplaced.all()


def test_one_hot_codes_have_one_over_the_depth():
    hole = geometry(torch.nn.functional.one_hot(GRID.long()).flatten(1).double())
    depth = STEPS.amin(dim=1)[HOLE]
    assert torch.allclose(hole.openness, 1 / depth)
    assert not hole.misplaced.any()


def test_a_factor_that_is_gone_closes_it():
    assert geometry(GRID[:, :1]).openness.tolist() == [0] * 36
    assert geometry(torch.ones(len(GRID), 2)).openness.tolist() == [0] * 36


def explicit_geometry(features, shape, held_out):
    """Openness and misplacement of each held-out point, one after the other."""
    places = np.array(list(np.ndindex(shape)))
    kept = [k for k in range(len(places)) if not held_out[k]]
    units = []
    for factor in range(len(shape)):
        one = np.eye(len(shape), dtype=int)[factor]
        lengths = [
            np.linalg.norm(features[a] - features[b])
            for a in kept for b in kept if (places[b] - places[a] == one).all()
        ]  # fmt: skip
        units.append(sorted(lengths)[(len(lengths) - 1) // 2])
    openness, misplaced = [], []
    for h in np.flatnonzero(held_out):
        ways = np.array([np.linalg.norm((places[h] - places[k]) * units) for k in kept])
        images = np.array([np.linalg.norm(features[h] - features[k]) for k in kept])
        openness.append(images.min() / ways.min())
        far = images[ways > 2 * ways.min()]
        misplaced.append(bool(len(far)) and far.min() < min(units) / 2)
    return openness, misplaced


@pytest.mark.parametrize("shape", [(12,), (5, 6), (3, 4, 3)], ids=str)
def test_distances_written_out(shape):
    points = int(np.prod(shape))
    held_out = torch.rand(points, generator=torch.Generator().manual_seed(4)) < 0.3
    features = noise(points, 2)
    hole = geometry(features, held_out, shape)
    openness, misplaced = explicit_geometry(features.numpy(), shape, held_out.numpy())
    assert hole.openness.tolist() == pytest.approx(openness)
    assert hole.misplaced.tolist() == misplaced
    assert any(misplaced)
    assert not all(misplaced)


def test_masks_without_kept_neighbours_have_a_unit_too():
    checkerboard = (torch.arange(6)[:, None] + torch.arange(6)).flatten() % 2 == 0
    plane = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))
    assert torch.allclose(geometry(plane, checkerboard, (6, 6)).openness, torch.ones(18).double())


def test_a_mask_on_one_side_and_infinity_are_refused():
    for gram, held_out in [(torch.eye(6), HOLE[:6] | True), (torch.eye(6), HOLE[:6] & False)]:
        with pytest.raises(InvalidValue, match="held_out"):
            hole_geometry(gram, (2, 3), held_out)
    with pytest.raises(InvalidValue, match="gram"):
        hole_geometry(torch.full((6, 6), torch.inf), (2, 3), torch.arange(6) < 2)
