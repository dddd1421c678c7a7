"""Functions on grids whose rank is known."""

import torch

from recombine.theory.search import khatri_rao


def planted(shape, rank, count, seed=0):
    """Sums of `rank` products of random functions."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * rank + len(shape))
    drawn = [torch.randn(count, size, rank, generator=generator, dtype=torch.float64) for size in shape]
    return khatri_rao(drawn).sum(dim=-1)


def with_noise(values, share, seed=0):
    """The same with noise of a share of their spread."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(values.shape, generator=generator, dtype=values.dtype)
    return values + share * values.std(dim=-1, keepdim=True) * noise


def holed(shape, share=0.15, seed=0):
    """A mask that lacks a share of the points, and a box of them as a hold-out would."""
    points = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) > share
    points[tuple(slice(size - 2, size) for size in shape)] = False
    return points.flatten()
