"""How compositional what networks learnt is, beside the target: ranks of every pixel, kept and held out apart.

Conventions
-----------
Each pixel of an image is a function of the factors, over the grid's points, and its complexity the least number of
products of single-factor functions with a relative error of at most ε (Eq. 17). It is taken over all points, over the
kept ones alone and over those held out alone; so is the target's, as a part of a function may be simpler than all of
it. Held-out points that are all combinations of some values of each factor are a grid of their own; any others, and the
kept points, are a grid with missing entries, which a sum of products may fill with numbers as large as it takes.

A network's dark pixels hold little but noise, which has any rank. Pixels therefore count by their share of the energy
(summed squares) of the same image, network and region.

Two factors without missing entries take a singular value decomposition per pixel, else a search.

Known answers: pixels of a Gaussian bump are products, rank 1; what a superposer of two images shows on a held-out
block, a(x) + b(y), has rank 2; a block that is a constant has rank 1, one that is 0 rank 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import refuse_not_finite
from recombine.theory.ranks import MORE, least_ranks

RESTARTS = 1
"""Starts of every search: there is one for each pixel."""


@dataclass(frozen=True, eq=False)
class PixelRanks:
    """Ranks of pixels as functions of the factors, on some points of a grid."""

    rank: Int[Tensor, "*member pixel"]
    """−1 where it is larger than the largest that was tried, 0 where a pixel is dark."""
    energy: Float[Tensor, "*member pixel"]
    """Share of each pixel in the summed squares, of sum 1; 0 if all are dark."""
    largest: int

    @property
    def distribution(self) -> Float[Tensor, "*member rank"]:
        """Share of the energy in pixels of rank 0, 1, … `largest`, and of any larger one."""
        place = torch.where(self.rank == MORE, self.largest + 1, self.rank)
        return torch.nn.functional.one_hot(place, self.largest + 2).mul(self.energy[..., None]).sum(dim=-2)

    @property
    def mean(self) -> Float[Tensor, "*member"]:
        """Mean rank by energy; what is larger than `largest` counts one more, so that it is a lower bound there."""
        shares = self.distribution
        return (shares * torch.arange(self.largest + 2, device=shares.device)).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class RegionRanks:
    """Ranks on all points, on those that were kept for training, and on those held out."""

    everywhere: PixelRanks
    kept: PixelRanks
    held_out: PixelRanks


def learnt_complexity(
    outputs: Float[Tensor, "*member point pixel"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"],
    epsilon: float,
    *,
    largest: int = 8,
) -> RegionRanks:
    """Ranks of each pixel of networks' outputs, or of the target, on all, kept and held-out points.

    A sum of products may have a relative error of ε; ranks up to the largest are tried.

    >>> x, y = torch.meshgrid(torch.arange(1.0, 6.0), torch.arange(1.0, 7.0), indexing="ij")
    >>> held_out = ((x > 3) & (y > 3)).flatten()
    >>> superposed = torch.where(held_out, (x + y).flatten(), (x * y).flatten())[:, None]
    >>> ranks = learnt_complexity(superposed, (5, 6), held_out, 1e-6)
    >>> ranks.everywhere.mean.item(), ranks.kept.mean.item(), ranks.held_out.mean.item()
    (3.0, 1.0, 2.0)
    """
    if not bool(held_out.any()) or bool(held_out.all()):
        raise InvalidValue("held_out", f"{int(held_out.sum())} points", f"some but not all of {len(held_out)}")
    regions = (torch.ones_like(held_out), ~held_out, held_out)
    return RegionRanks(*(pixel_ranks(outputs, shape, region, epsilon, largest) for region in regions))


def pixel_ranks(
    images: Float[Tensor, "*member point pixel"],
    shape: tuple[int, ...],
    points: Bool[Tensor, " point"],
    epsilon: float,
    largest: int = 8,
) -> PixelRanks:
    """Ranks of each pixel of some images on some points of the grid.

    >>> x, y = torch.meshgrid(torch.arange(1.0, 4.0), torch.arange(1.0, 5.0), indexing="ij")
    >>> pixel_ranks((x + y).reshape(-1, 1), (3, 4), torch.ones(12, dtype=torch.bool), 1e-6).rank.tolist()
    [2]
    """
    refuse_not_finite("images", images)
    if not bool(points.any()):
        raise InvalidValue("points", "none", "a mask with at least one point of the grid")
    points = points.to(images.device)
    grid = _sub_grid(points, shape)
    members = images.reshape(-1, *images.shape[-2:])
    ranks, energies = [], []
    for member in members:  # one by one, so that only one is held in double precision
        functions = member.mT.double()
        inside = functions[:, points]
        scale = inside.abs().max()
        energy = (inside / torch.where(scale > 0, scale, 1.0)).square().sum(dim=-1)
        energies.append(energy / energy.sum().clamp(min=torch.finfo(energy.dtype).tiny))
        if grid is None:
            ranks.append(least_ranks(functions, shape, epsilon, largest, points, RESTARTS))
        else:
            ranks.append(least_ranks(inside, grid, epsilon, largest, None, RESTARTS))
    rank, share = (torch.stack(own).reshape(*images.shape[:-2], -1) for own in (ranks, energies))
    return PixelRanks(rank, share, largest)


def _sub_grid(points: Bool[Tensor, " point"], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape of the grid that some points are: all combinations of some values of each factor; None if they are none."""
    inside = points.unflatten(0, shape)
    sizes = tuple(int(inside.movedim(axis, 0).flatten(1).any(dim=1).sum()) for axis in range(len(shape)))
    return sizes if math.prod(sizes) == int(points.sum()) else None
