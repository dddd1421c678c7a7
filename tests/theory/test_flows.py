"""Flows: invertible, the identity at first, and trained alike alone and in company."""

import pytest
import torch

from recombine.theory.flows import Flow, straightened
from recombine.theory.separation import Design, kept_points
from tests.theory.planted_codes import codes, lookup, twisted


def shaken(members, size):
    """A flow with random numbers."""
    flow = Flow.identity(members, size)
    generator = torch.Generator().manual_seed(0)
    return flow.with_parameters([
        own.double() + torch.randn(own.shape, generator=generator, dtype=torch.float64) for own in flow.parameters
    ])  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_maps_are_inverted_exactly(size):
    points = torch.randn(3, 40, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    flow = shaken(3, size)
    images = flow(points)
    assert torch.allclose(flow.inverse(images), points, atol=1e-8)
    if size > 1:
        assert (images - points).abs().mean() > 0.5
    assert torch.allclose(Flow.identity(3, size)(points.float()), points.float(), atol=1e-5)


def test_a_member_is_trained_to_the_same_alone():
    shape = (6, 6)
    design = Design.of(shape, kept_points(shape, None, 0))
    generator = torch.Generator().manual_seed(0)
    points = torch.stack([lookup(shape, 1, 2), twisted(codes(shape, 1, generator, smooth=True), generator)])
    together = straightened(points, design, steps=30)(points)
    alone = straightened(points[1:], design, steps=30)(points[1:])
    assert torch.allclose(together[1], alone[0], atol=1e-3)
    assert (alone[0] - points[1]).abs().max() > 0.05, "and it is trained to something"


def test_held_out_points_are_never_seen():
    shape = (6, 6)
    design = Design.of(shape, kept_points(shape, None, 0))
    points = lookup(shape, 0, 3)[None]
    spoilt = torch.where(design.kept[None, :, None], points, 1e6)
    maps = [straightened(own, design, steps=20)(points) for own in (points, spoilt)]
    assert torch.equal(*maps)
