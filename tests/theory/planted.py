"""Functions on grids whose rank is known."""

import numpy as np
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


def planted_mixture(shape, rank, count, seed=0, concentration=0.3):
    """Mixtures of `rank` products of sparse random distributions, with weights that are not small."""
    generator = np.random.default_rng(1000 * seed + 10 * rank + len(shape))
    drawn = [generator.dirichlet(np.full(size, concentration), (count, rank)) for size in shape]
    weights = torch.from_numpy(generator.dirichlet(np.full(rank, 8.0), count))
    factors = [torch.from_numpy(own).mT for own in drawn]
    return (khatri_rao(factors) * weights[:, None, :]).sum(dim=-1)
