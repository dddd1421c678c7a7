"""The hole that a hold-out leaves in the data, along a network (§3.4): does it stay open, is it filled from elsewhere?

Conventions
-----------
Persistent homology would search for a hole in a cloud of points. Here the grid is known, and so is the
hole's place, so that it is enough to ask how wide it is and whether something else lies in it:

- `openness`: the distance of a held-out point's image to the nearest kept image, over the shortest way from it to a
  kept point in factor space, a step along factor i having the length u_i that is the median over neighbouring kept
  points' images. 1: the hole is as wide as in factor space; 0: held-out points are mapped onto kept ones.
- `misplaced`: whether the image lies within half a usual step (the shortest u_i that is not 0) of that of a kept point
  that is far from it in factor space, more than twice as far as the nearest kept one. A usual step stands for the
  distance to its own neighbours, since where a whole region is put elsewhere neighbours go with it.

Lengths are chords. A code that is curved has a lower openness than 1 with nothing collapsed: a one-hot code, in which
all values are equally far apart, has 1/d at a point d steps inside. Compare stages with the input.

All of it comes from a Gram matrix over the grid's points, so that rotations, shifts and a common scale change nothing.

Known answers: an isometric embedding has openness 1 and nothing misplaced, also if factors have different scales;
held-out points that are mapped onto the hole's edge have openness 0; onto points far from it, 0 and all misplaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, grid_shape
from recombine.errors import InvalidValue
from recombine.theory.point_grams import squared_distances
from recombine.theory.transport import ROUNDING, grid_places, kept_points

FAR = 2.0
"""How many times as far as the nearest kept point a kept point is far."""
NEAR = 0.5
"""In usual steps between neighbours' images."""


@dataclass(frozen=True)
class Hole:
    """What a stage makes of the hole that a hold-out leaves."""

    openness: Float[Tensor, "*member held"]
    """At each held-out point, in the grid's order."""
    misplaced: Bool[Tensor, "*member held"]


@checked
def hole_geometry(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Hole:
    """How wide the hole is that a hold-out leaves, and which held-out points lie elsewhere.

    Parameters
    ----------
    gram
        Products of features at the grid's points, in its order.
    shape
        Number of values of each factor.
    held_out
        True where a point is held out; some are, and some are not.

    Returns
    -------
    Hole
        Openness and misplacement of each held-out point.

    Examples
    --------
    >>> line = torch.arange(5.0)[:, None]
    >>> inside = torch.tensor([False, True, True, True, False])
    >>> [round(value, 6) for value in hole_geometry(line @ line.T, (5,), inside).openness.tolist()]
    [1.0, 1.0, 1.0]
    """
    shape = grid_shape(shape, gram.shape[-1])
    finite("gram", gram)
    kept = kept_points(held_out)
    held = torch.nonzero(held_out.cpu()).flatten()
    if not len(held):
        raise InvalidValue("held_out", "no point", "at least one held-out point")
    squared = squared_distances(gram.double())
    usual = squared.mean(dim=(-2, -1))
    places = grid_places(shape).to(gram.device)
    units = _step_lengths(squared, shape, held_out)
    steps = (places[held][:, None, :] - places[kept][None, :, :]).double().square()
    ways = torch.einsum("hkf,...f->...hk", steps, units)
    images = squared[..., held, :][..., kept]
    way, image = ways.amin(dim=-1), images.amin(dim=-1)
    floor = (ROUNDING**2 * usual)[..., None]
    apart = (image > floor) & (way > floor)
    openness = torch.where(apart, (image / torch.where(apart, way, 1.0)).sqrt(), 0.0)
    far = ways > FAR**2 * way[..., None] + floor[..., None]
    step = torch.where(units > floor, units, torch.inf).amin(dim=-1, keepdim=True)
    elsewhere = torch.where(far, images, torch.inf).amin(dim=-1)
    return Hole(openness, elsewhere < step * NEAR**2)


def _step_lengths(squared: Tensor, shape: tuple[int, ...], held_out: Tensor) -> Tensor:
    """Median squared distance of neighbours' images along each factor, of kept ones where some are neighbours.

    Held-out points that collapse would otherwise shorten the unit in which their collapse is measured.
    """
    indices = torch.arange(prod(shape)).reshape(shape)
    lengths = []
    for factor, count in enumerate(shape):
        if count == 1:
            lengths.append(torch.zeros_like(squared[..., 0, 0]))
            continue
        first, second = (indices.narrow(factor, start, count - 1).flatten() for start in (0, 1))
        kept = ~(held_out.cpu()[first] | held_out.cpu()[second])
        chosen = kept if bool(kept.any()) else torch.ones_like(kept)
        lengths.append(squared[..., first[chosen], second[chosen]].median(dim=-1).values)
    return torch.stack(lengths, dim=-1)
