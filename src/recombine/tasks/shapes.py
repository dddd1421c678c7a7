"""Sprite shapes, drawn as anti-aliased, differentiable coverage of each pixel.

A shape of scale s has an area of s² pixels and its centroid at the given position. Its coordinates, in pixels from the
centroid, are u (to the right) and v (up). Images are `image[y, x]` with pixel centres at the integers; angles are in
degrees, counter-clockwise as displayed.

**Edges.** Across an edge, coverage falls from 1 to 0 over two pixels, as the integral of a tent, so that the image has
a continuous derivative; edges along the pixel grid preserve area and centroid exactly, others nearly so. Convex
polygons are products of edges; other shapes use (nearly) exact signed distances. For these, the tent, whose variance is
1/6, adds an area of π/6 to a smooth outline (Steiner's formula), and the shape is drawn smaller to compensate.

**Exactness.** Offsets from the centre are computed before rotation, so that a shift by whole pixels shifts the image
bit for bit. `cos_sin` reduces angles to within 45° of a quarter turn before rounding, so that full turns change
nothing, bit for bit, and quarter turns have cosines and sines of exactly 0 and ±1.

Known answers: areas are accurate to 1 % and centroids to 1 % of s, for scales of at least `SMALLEST`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.factors import TURN

QUARTERS = 4
SMALLEST = 6.0
"""Smallest scale in pixels; below it, opposite soft edges overlap inside a shape."""
SPREAD = 1 / 6
"""Variance of an edge's tent, in squared pixels."""
LONGER = 1.5
"""Ratio of an ellipse's axes."""
TINY = 1e-30
"""Lower bound for the arguments of square roots, since their derivative at 0 is infinite."""

Pixels = Float[Tensor, "row y x"]
Scale = Float[Tensor, "row 1 1"]


def cos_sin(degrees: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Return the cosine and sine of each angle; both are differentiable.

    >>> cosine, sine = cos_sin(torch.tensor([0.0, 90.0, 540.0]))
    >>> cosine.tolist(), sine.tolist()
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0])
    """
    reduced = degrees.remainder(TURN)
    quarter = (reduced.detach() * (QUARTERS / TURN)).round()
    rest = torch.deg2rad(reduced - quarter * (TURN / QUARTERS))
    cosine, sine = rest.cos(), rest.sin()
    odd, beyond = quarter.remainder(2) == 1, quarter.remainder(QUARTERS)
    zero = torch.zeros_like(cosine)  # 0 − 0 is +0, never −0, so that equal angles give equal bits
    along, across = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    return (
        torch.where((beyond == 1) | (beyond == 2), zero - along, zero + along),
        torch.where(beyond >= 2, zero - across, zero + across),
    )


def edge(distance: Pixels) -> Pixels:
    """Return the coverage at a signed distance from an edge (negative inside): the integral of a tent."""
    near = distance.clamp(-1, 1)
    return 0.5 - near + 0.5 * near * near.abs()


def band(along: Pixels, half: Scale) -> Pixels:
    """Return pixel coverage of the band between `-half` and `half`."""
    return edge(along.abs() - half)


def norm(u: Pixels, v: Pixels) -> Pixels:
    """Return the distance from (0, 0), with a derivative of 0 there."""
    return (u * u + v * v).clamp(min=TINY).sqrt()


def shrunk(scale: Scale, bend: float) -> Scale:
    """Return the scale that gives the requested area after softening, which adds `bend` × `SPREAD` to the area."""
    return (scale * scale - bend * SPREAD).sqrt()


def square(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return each pixel's coverage by a square."""
    return band(u, scale / 2) * band(v, scale / 2)


def rectangle(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return the share of each pixel covered by a rectangle twice as wide as it is high."""
    return band(u, scale * math.sqrt(1 / 2)) * band(v, scale * math.sqrt(1 / 8))


def cross(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return each pixel's coverage by a plus sign made of five squares."""
    arm = scale / math.sqrt(20)
    across, upright = band(u, arm), band(v, arm)
    return band(u, 3 * arm) * upright + across * (band(v, 3 * arm) - upright)


def triangle(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return pixel coverage by an equilateral triangle with a horizontal base; each corner adds cot 60° to `bend`."""
    inner = shrunk(scale, math.sqrt(3)) / math.sqrt(math.sqrt(27))
    slope, height = u * math.sqrt(3 / 4), v / 2 - inner
    return edge(-v - inner) * edge(height + slope) * edge(height - slope)


def disc(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return each pixel's coverage by a disc."""
    return edge(norm(u, v) - shrunk(scale, math.pi) / math.sqrt(math.pi))


def ellipse(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return pixel coverage by a horizontal ellipse, whose distance is approximated to first order as f / |∇f|."""
    wide = shrunk(scale, math.pi) * math.sqrt(LONGER / math.pi)
    u, v = u / wide, v * (LONGER / wide)
    radius = norm(u, v)
    return edge(wide * radius * (radius - 1) / norm(u, v * LONGER))


def heart(u: Pixels, v: Pixels, scale: Scale) -> Pixels:
    """Return each pixel's coverage by a heart: a square standing on a corner, with half a disc on each upper side."""
    radius = shrunk(scale, math.pi) / math.sqrt(4 + math.pi)
    u, v = u.abs(), v + radius * (math.pi + 4 / 3) / (math.sqrt(2) * (4 + math.pi))  # relative to the square's centre
    middle = radius * math.sqrt(1 / 2)
    return edge(torch.minimum((u + v.abs()) * math.sqrt(1 / 2), norm(u - middle, v - middle)) - radius)


SHAPES: dict[str, Callable[[Pixels, Pixels, Scale], Pixels]] = {
    shape.__name__: shape for shape in (square, ellipse, heart, triangle, rectangle, cross, disc)
}
"""All shapes by name."""


def coverage(
    shape: str,
    size: int,
    x: Float[Tensor, " row"],
    y: Float[Tensor, " row"],
    scale: Float[Tensor, " row"],
    rotation: Float[Tensor, " row"],
) -> Pixels:
    """Return the coverage, 0 to 1, of each pixel of a square image by a shape at (x, y).

    >>> middle, scale = torch.tensor([16.0]), torch.tensor([10.0])
    >>> round(coverage("heart", 33, middle, middle, scale, torch.tensor([30.0])).sum().item())
    100
    """
    pixels = torch.arange(size, dtype=x.dtype, device=x.device)
    right, down = pixels - x[:, None], pixels - y[:, None]
    cosine, sine = (part[:, None] for part in cos_sin(rotation))
    u = (cosine * right)[:, None, :] - (sine * down)[:, :, None]
    v = -(sine * right)[:, None, :] - (cosine * down)[:, :, None]
    return SHAPES[shape](u, v, scale[:, None, None])
