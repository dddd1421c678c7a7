"""Representations of factor grids that are known to be factorized, or not: one for each seed."""

import math

import torch


def combinations(shape):
    return torch.cartesian_prod(*(torch.arange(count) for count in shape))


def code(count, size, generator, smooth):
    """A vector per value of one factor, each coordinate with mean 0 and variance 1."""
    if smooth:
        positions = torch.linspace(-1.5, 1.5, count, dtype=torch.float64)
        frequency, phase = (torch.rand(size, generator=generator, dtype=torch.float64) for _ in range(2))
        values = torch.sin((0.5 + 2 * frequency) * positions[:, None] + 2 * math.pi * phase)
    else:
        values = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return (values - values.mean(dim=0)) / values.std(dim=0)


def codes(shape, size, generator, smooth):
    """Side by side, the codes of all factors."""
    points = combinations(shape)
    return torch.cat([code(n, size, generator, smooth)[points[:, k]] for k, n in enumerate(shape)], dim=1)


def mixed(values, generator, features=20):
    return values @ torch.randn(values.shape[1], features, generator=generator, dtype=values.dtype)


def twisted(values, generator, layers=3, strength=0.9):
    """Behind layers z + s·sin(z A + c) B with A, B rotations and s < 1: invertible, and not a coupling of halves."""
    size = values.shape[1]
    for _ in range(layers):
        first, second = torch.linalg.qr(torch.randn(2, size, size, generator=generator, dtype=values.dtype))[0]
        offset = 2 * torch.randn(size, generator=generator, dtype=values.dtype)
        values = values + strength * torch.sin(values @ first + offset) @ second
    return values


def blocks(shape, seed, size=2, smooth=False):
    """Linearly mixed codes of single factors."""
    generator = torch.Generator().manual_seed(seed)
    return mixed(codes(shape, size, generator, smooth), generator)


def twisted_blocks(shape, seed, size=2, smooth=True):
    """The same behind an invertible nonlinearity."""
    generator = torch.Generator().manual_seed(seed)
    return mixed(twisted(codes(shape, size, generator, smooth), generator), generator)


def lookup(shape, seed, features=20):
    """A random vector for each combination."""
    return torch.randn(math.prod(shape), features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of_one_number(numbers, seed, size=4):
    """Smooth functions of one number at each point."""
    generator = torch.Generator().manual_seed(seed)
    scaled = 2 * (numbers - numbers.mean()) / (numbers.max() - numbers.min())
    frequency, phase = (torch.rand(size, generator=generator, dtype=torch.float64) for _ in range(2))
    return mixed(torch.sin((0.5 + 4 * frequency) * scaled[:, None] + 2 * math.pi * phase), generator)


def sums(shape, seed):
    """Functions of x + y + … alone."""
    return of_one_number(combinations(shape).double().sum(dim=1), seed)


def products(shape, seed):
    """Functions of the product of one random number per value alone."""
    generator = torch.Generator().manual_seed(seed)
    points = combinations(shape)
    drawn = [torch.randn(n, generator=generator, dtype=torch.float64)[points[:, k]] for k, n in enumerate(shape)]
    return of_one_number(torch.stack(drawn).prod(dim=0), seed)


def grouped(shape, grouping, seed, size=3):
    """Linearly mixed random codes of groups of factors."""
    generator = torch.Generator().manual_seed(seed)
    points, parts = combinations(shape), []
    for group in grouping:
        cells = torch.zeros(len(points), dtype=torch.int64)
        for factor in group:
            cells = cells * shape[factor] + points[:, factor]
        parts.append(code(int(cells.max()) + 1, size, generator, smooth=False)[cells])
    return mixed(torch.cat(parts, dim=1), generator)


def many(kind, shape, count, **options):
    return torch.stack([kind(shape, seed, **options) for seed in range(count)])
