"""Which value of each factor an output shows: the one whose image is nearest, all other factors being right.

Works for any renderer: an output is compared, factor by factor, with the images that differ from its own target in that
factor alone. A position read off the brightest pixel (`extreme_pixel`) needs a bump and says nothing of size or hue.

Known answers: targets show their own values wherever images differ; of equally near images the lowest value counts; a
blank output shows the value whose image has the least energy.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.checks import checked, grid_shape


@checked
def nearest_values(
    outputs: Float[Tensor, "*member point pixel"], targets: Float[Tensor, "point pixel"], shape: tuple[int, ...]
) -> Int[Tensor, "*member point factor"]:
    """Position of the value that an output shows, factor by factor.

    Parameters
    ----------
    outputs
        At every point of the grid, in its order.
    targets
        Right images at the same points.
    shape
        Number of values of each factor.

    Returns
    -------
    Tensor
        From 0 to the number of values less one.

    Examples
    --------
    >>> targets = torch.eye(6)
    >>> nearest_values(targets, targets, (2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    >>> nearest_values(targets.roll(1, dims=0), targets, (2, 3))[1].tolist()  # shows what is right at the point before
    [0, 0]
    """
    shape = grid_shape(shape, targets.shape[0])
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
