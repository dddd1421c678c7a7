"""A chain of layers over two factors: a block code, a rotation, an invertible coupling layer, and layers that lose."""

from itertools import accumulate

import torch
from torch.func import jacfwd, vmap

from recombine.theory.projections import both_grams

COUNT = 12
UNITS = torch.arange(-5.0, COUNT + 5, dtype=torch.float64)
"""Preferred values, also beyond the range, so that the sum of a code is the same at every value."""
GRID = torch.cartesian_prod(torch.arange(COUNT), torch.arange(COUNT)).double()
MIDDLE = (COUNT - 1) / 2


def centred_gram(features):
    return both_grams(features)[0]


def code(values):
    return torch.exp(-((values[..., None] - UNITS) ** 2) / 2)


def blocks(values):
    """A bump code of each factor, one behind the other."""
    return code(values).flatten(-2)


def decoded(representation):
    """The factors' values from their blocks."""
    parts = representation.unflatten(-1, (2, len(UNITS)))
    return (parts * UNITS).sum(dim=-1) / parts.sum(dim=-1)


def pooled(representation):
    """The second factor's units replaced by their mean."""
    first, second = representation.split(len(UNITS), dim=-1)
    return torch.cat([first, second.mean(dim=-1, keepdim=True).expand_as(second)], dim=-1)


def saturated(representation):
    """Values of the second factor in the upper half clipped to the middle."""
    values = decoded(representation)
    return blocks(torch.stack([values[..., 0], values[..., 1].clamp(max=MIDDLE)], dim=-1))


def merged(representation):
    """Both blocks code for the factors' mean."""
    return blocks(decoded(representation).mean(dim=-1, keepdim=True).expand(*representation.shape[:-1], 2))


class Mixing:
    """A rotation, then a coupling layer: one half shifts and scales the other one. Both can be undone."""

    def __init__(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        size = 2 * len(UNITS)
        self.rotation = torch.linalg.qr(torch.randn(size, size, generator=generator).double()).Q
        self.shift, self.scale = (
            torch.randn(2, size // 2, size // 2, generator=generator).double() * 6 / (size / 2) ** 0.5
        )

    def rotate(self, representation):
        return representation @ self.rotation

    def couple(self, representation):
        first, second = representation.chunk(2, dim=-1)
        return torch.cat(
            [first, second * torch.exp(torch.tanh(first @ self.scale)) + torch.sin(first @ self.shift)], dim=-1
        )

    def undone(self, representation):
        first, second = representation.chunk(2, dim=-1)
        second = (second - torch.sin(first @ self.shift)) * torch.exp(-torch.tanh(first @ self.scale))
        return torch.cat([first, second], dim=-1) @ self.rotation.T

    def within(self, layer):
        """A layer that acts on the blocks, in mixed coordinates."""
        return lambda representation: self.couple(self.rotate(layer(self.undone(representation))))


def stages(lossy, seed=0):
    """Features and metric tensors after each layer, by name."""
    mixing = Mixing(seed)
    layers = {"blocks": blocks, "rotated": mixing.rotate, "coupled": mixing.couple, "lossy": mixing.within(lossy)}
    composed = accumulate(layers.values(), lambda before, layer: lambda values: layer(before(values)))
    features, metrics = {}, {}
    for name, network in zip(layers, composed, strict=True):
        features[name] = network(GRID)
        jacobian = vmap(jacfwd(network))(GRID)
        metrics[name] = jacobian.mT @ jacobian
    return features, metrics
