"""How wrong outputs are, which values they show, and how deep inside a hold-out they lie (§3.2).

Conventions: squared errors are means over pixels (or code neurons), one number per grid point; regions are `id` (kept
combinations) and `ood` (held out). An error *over blank* is divided by the error, on the same points, of the output
that ignores the input: 1 means no better than drawing nothing. A point is a *hit* when the extreme pixel lies within
`tolerance` pixels of the truth along both axes.

The extreme pixel of a grey image is its brightest or darkest one. Colour has no polarity: a red thing on white is
darker in two channels and as bright in the third. There it is the pixel farthest from the background, distances summed
over channels (`contrast`). An image with the same bump in every channel has the same extreme pixel either way.

The extreme pixel needs a bump and says nothing of size or hue. For any renderer, `nearest_values` says which value of
each factor an output shows: it is compared, factor by factor, with the images that differ from its own target in that
factor alone. Of equally near images the lowest value counts.

Depth inside a hold-out is the distance to the nearest kept point, Chebyshev's (the largest difference along any
factor), in grid steps. What lies past the grid's border is not a kept point, so a corner that is held out is deepest in
the corner. A held-out point beside a kept one has distance 1.

Known answers: a perfect output has error 0 and is a hit; a blank output has 1 over blank; a bump drawn one pixel off
is a hit, two off is not. Targets show their own values wherever images differ; a blank output shows the value whose
image has the least energy. The middle of a held-out square of 5 × 5 points has distance 3, one of a random mask mostly
1.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue

Polarity = Literal["bright", "dark"]
TOLERANCE = 1.0
"""Pixels that a coordinate may be off and still count."""
MARGIN = 3
"""Grid steps to the nearest kept point from which on a held-out point counts as interior."""
FEWEST = 4
"""Interior points below which a smaller margin is taken."""


def squared_error(
    outputs: Float[Tensor, " ..."], targets: Float[Tensor, " point *pixel"]
) -> Float[Tensor, "... point"]:
    """Mean squared error of the output at each point, with any member axes of the outputs before the points'.

    >>> squared_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [2.0]
    """
    if outputs.shape[outputs.ndim - targets.ndim :] != targets.shape or targets.ndim < 2:  # they would broadcast
        raise InvalidValue("outputs", outputs, f"of shape {tuple(targets.shape)}, as the targets")
    return (outputs - targets).square().flatten(-(targets.ndim - 1)).mean(dim=-1)


def contrast(images: Float[Tensor, "*point channel y x"], background: float = 0.0) -> Float[Tensor, "*point y x"]:
    """How far each pixel of a colour image is from the background: Σ |value − background| over channels.

    A grey image, bright where something is drawn, for `extreme_pixel`, `separate_peaks` and all others that look at
    grey ones.

    >>> red_on_white = torch.tensor([[[1.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.25]]])
    >>> contrast(red_on_white, background=1.0).tolist()
    [[0.0, 1.75]]
    """
    return (images - background).abs().sum(dim=-3)


def extreme_pixel(images: Float[Tensor, "*point y x"], polarity: Polarity = "bright") -> Int[Tensor, "*point 2"]:
    """`(column, row)` of the brightest (or darkest) pixel of each image, the first one among equals.

    >>> extreme_pixel(torch.tensor([[0.0, 0.0, 0.5], [0.0, 1.0, 0.0]])).tolist()
    [1, 1]
    """
    flat = images.flatten(-2)
    index = flat.argmax(dim=-1) if polarity == "bright" else flat.argmin(dim=-1)
    return torch.stack([index % images.shape[-1], index // images.shape[-1]], dim=-1)


def hits(
    located: Float[Tensor, "*member point axis"] | Int[Tensor, "*member point axis"],
    truth: Float[Tensor, "point axis"],
) -> Bool[Tensor, "*member point"]:
    """Whether every coordinate, such as `extreme_pixel` reads off outputs, is within `TOLERANCE` pixels.

    >>> hits(torch.tensor([[1.0, 4.0], [1.0, 5.0]]), torch.tensor([[2.0, 3.0], [2.0, 3.0]])).tolist()
    [True, False]
    """
    return ((located - truth).abs() <= TOLERANCE).all(dim=-1)


def nearest_values(
    outputs: Float[Tensor, "*member point pixel"], targets: Float[Tensor, "point pixel"], shape: tuple[int, ...]
) -> Int[Tensor, "*member point factor"]:
    """Position of the value that an output shows, factor by factor, from 0; points are in the grid's order.

    >>> targets = torch.eye(6)
    >>> nearest_values(targets, targets, (2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    >>> nearest_values(targets.roll(1, dims=0), targets, (2, 3))[1].tolist()  # shows what is right at the point before
    [0, 0]
    """
    energy = targets.square().sum(dim=-1)
    found = [_along(outputs, targets, energy, shape, factor) for factor in range(len(shape))]
    return torch.stack(found, dim=-1)


def _along(outputs: Tensor, targets: Tensor, energy: Tensor, shape: tuple[int, ...], factor: int) -> Tensor:
    """Of one factor: lines of the grid along it, all their outputs against all their targets."""
    lead = outputs.ndim - 2

    def lines(values: Tensor, axis: int) -> Tensor:
        return values.unflatten(axis, shape).movedim(axis + factor, axis + len(shape) - 1)

    own, right = lines(outputs, lead), lines(targets, 0)
    distance = lines(energy, 0)[..., None, :] - 2 * own @ right.mT
    nearest = distance.argmin(dim=-1)
    return nearest.movedim(lead + len(shape) - 1, lead + factor).flatten(lead)


def distance_inside(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Float[Tensor, " point"]:
    """Distance from each point of a grid to the nearest kept one: 0 at kept points, infinity if there is none.

    >>> distance_inside(torch.tensor([False, True, True, True, False, True]), (6,)).tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0]
    """
    deeper = held_out.reshape(shape)
    distance = torch.zeros(shape, dtype=torch.float64, device=held_out.device)
    for _ in range(max(shape)):
        distance += deeper
        for axis, count in enumerate(shape):
            first, last = deeper.narrow(axis, 0, 1), deeper.narrow(axis, count - 1, 1)  # the border is no kept point
            padded = torch.cat([first, deeper, last], dim=axis)
            deeper = deeper & padded.narrow(axis, 0, count) & padded.narrow(axis, 2, count)
    return torch.where(held_out.all(), torch.inf, distance.flatten())


def interior(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Bool[Tensor, " point"]:
    """Held-out points that are at least `MARGIN` grid steps away from every kept one.

    Where that leaves fewer than `FEWEST` points, the largest smaller margin that does not is taken, at last 1: all
    held-out points.

    >>> held_out = torch.tensor([False, True, True, True, True, True, True, False])
    >>> interior(held_out, (8,)).tolist()
    [False, False, True, True, True, True, False, False]
    """
    distance, margin = distance_inside(held_out, shape), MARGIN
    if not bool(held_out.all()):
        margin = min(margin, max(1, int(distance.max())))
    while margin > 1 and int((distance >= margin).sum()) < FEWEST:
        margin -= 1
    return distance >= margin
