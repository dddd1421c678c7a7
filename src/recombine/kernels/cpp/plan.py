"""A network as the C++ kernels want it: whole blocks of channels, and how much memory a batch takes.

Kernels handle whole blocks of channels. Other widths are padded with channels whose weights and biases are zero: they
stay zero after every ReLU, nothing depends on them, and their gradients are dropped.
"""

from __future__ import annotations

import math
from ctypes import c_long, c_ubyte
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recombine.kernels.cpp.build import call
from recombine.kernels.shapes import NetworkShape, Shapes

BLOCK = 16
"""Channels that kernels handle at a time."""


class Sizes(NamedTuple):
    """Numbers of: parameters, weights as kernels read them, a batch's stages, a chunk's sums; and rows of an image."""

    parameters: int
    prepared: int
    stages: int
    sums: int
    image: int


class Plan:
    """A network of transposed convolutions, padded to whole blocks of channels."""

    def __init__(self, network: NetworkShape) -> None:
        self.network, self.code, self.first = network, network.code, network.first
        self.channels = -(-network.channels // BLOCK) * BLOCK
        self.parameters = sum(network.sizes)
        self.pads = self.channels != network.channels

    @staticmethod
    @lru_cache(maxsize=64)
    def of(shapes: Shapes) -> Plan:
        """The plan of a network by the shapes of its parameters, made once."""
        return Plan(NetworkShape.of(shapes))

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """What every kernel is told first."""
        doubles = self.network.doubles
        return self.code, self.first, self.channels, len(doubles), (c_ubyte * len(doubles))(*doubles)

    def call(self, name: str, *arguments: Tensor | int) -> None:
        """Call a kernel of the whole network."""
        values = (part.data_ptr() if isinstance(part, Tensor) else part for part in arguments)
        call(name, *self.arguments, *values)

    def sizes(self, batch: int) -> Sizes:
        """How much memory a batch takes, padding included."""
        numbers = (c_long * len(Sizes._fields))()
        call("sizes", *self.arguments, batch, numbers)
        return Sizes(*numbers)

    def padded(self, weights: Tensor) -> Tensor:
        """A network's parameters among zeros, as kernels read them."""
        if not self.pads:
            return weights
        positions = self._positions
        return weights.new_zeros(self.sizes(1).parameters).index_copy_(0, positions, weights[: len(positions)])

    def cropped(self, gradient: Tensor, size: int) -> Tensor:
        """The gradient of a network's parameters, and zeros up to a size, without those of the padding."""
        own = gradient.index_select(0, self._positions) if self.pads else gradient[: self.parameters]
        return own if len(own) == size else torch.cat([own, own.new_zeros(size - len(own))])

    @cached_property
    def _positions(self) -> Tensor:
        """Where each parameter of the network lies among the padded ones."""
        parts, start = [], 0
        for own, padded in zip(self.network.shapes, self.network.with_channels(self.channels), strict=True):
            numbers = torch.arange(start, start + math.prod(padded)).view(padded)
            parts.append(numbers[tuple(slice(length) for length in own)].flatten())
            start += math.prod(padded)
        return torch.cat(parts)
