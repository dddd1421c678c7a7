"""How deep inside a hold-out a point lies, and which points are its interior.

Conventions: distances are Chebyshev's (the largest difference along any factor), in grid steps, to the nearest kept
point. What lies past the grid's border is not a kept point, so a corner that is held out is deepest in the corner. A
held-out point beside a kept one has distance 1.

Known answers: the middle of a held-out square of 5 × 5 points has distance 3, one of a random mask mostly 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, grid_shape, whole_number

MARGIN = 3
"""Grid steps to the nearest kept point from which on a held-out point counts as interior."""
FEWEST = 4
"""Interior points below which a smaller margin is taken."""


@checked
def distance_inside(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Float[Tensor, " point"]:
    """Distance from each point to the nearest kept one.

    Parameters
    ----------
    held_out
        True where a point is held out, points in the grid's order.
    shape
        Number of values of each factor.

    Returns
    -------
    Tensor
        Grid steps; 0 at kept points, infinity everywhere if there is none.

    Examples
    --------
    >>> distance_inside(torch.tensor([False, True, True, True, False, True]), (6,)).tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0]
    """
    shape = grid_shape(shape, len(held_out))
    deeper = held_out.reshape(shape)
    distance = torch.zeros(shape, dtype=torch.float64, device=held_out.device)
    for _ in range(max(shape)):
        distance += deeper
        for axis, count in enumerate(shape):
            first, last = deeper.narrow(axis, 0, 1), deeper.narrow(axis, count - 1, 1)  # the border is no kept point
            padded = torch.cat([first, deeper, last], dim=axis)
            deeper = deeper & padded.narrow(axis, 0, count) & padded.narrow(axis, 2, count)
    return torch.where(held_out.all(), torch.inf, distance.flatten())


@checked
def interior(held_out: Bool[Tensor, " point"], shape: tuple[int, ...], margin: int = MARGIN) -> Bool[Tensor, " point"]:
    """Held-out points that are at least `margin` grid steps away from every kept one.

    Parameters
    ----------
    held_out
        True where a point is held out, points in the grid's order.
    shape
        Number of values of each factor.
    margin
        Smallest distance. Where it leaves fewer than `FEWEST` points, the largest smaller one that does not is taken,
        at last 1: all held-out points.

    Returns
    -------
    Tensor
        True for interior points.

    Examples
    --------
    >>> held_out = torch.tensor([False, True, True, True, True, True, True, False])
    >>> interior(held_out, (8,), margin=2).tolist()
    [False, False, True, True, True, True, False, False]
    """
    whole_number("margin", margin)
    distance = distance_inside(held_out, shape)
    if not bool(held_out.all()):
        margin = min(margin, max(1, int(distance.max())))
    while margin > 1 and int((distance >= margin).sum()) < FEWEST:
        margin -= 1
    return distance >= margin
