"""Architecture of a transposed-convolution network, inferred from the shapes of its parameters.

Weights and biases alternate: from the code to `first` × `first` pixels, `(code, channels, first, first)`; blocks
`(channels, channels, side, side)` that keep the size (side 3, stride 1) or double it (side 4, stride 2), with padding 1
and a ReLU; and a final convolution to one channel, `(1, channels, 3, 3)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a network's parameters, in order."""
SIDE, DOUBLING_SIDE = 3, 4
"""Side lengths of convolution kernels that keep the size and that double it."""


@dataclass(frozen=True)
class NetworkShape:
    """A network, described by the shapes of its parameters."""

    shapes: Shapes

    @staticmethod
    @lru_cache(maxsize=256)
    def of(shapes: Shapes) -> NetworkShape:
        """Return the network with these shapes; raise a ValueError if no kernel supports it."""
        network = NetworkShape(tuple(tuple(shape) for shape in shapes))
        if len(shapes) < 4 or network.with_channels(network.channels) != network.shapes:
            raise ValueError(f"shapes must be those of transposed convolutions to one channel, got {shapes}")
        return network

    @property
    def code(self) -> int:
        return self.shapes[0][0]

    @property
    def channels(self) -> int:
        return self.shapes[0][1]

    @property
    def first(self) -> int:
        """Rows and columns of the first stage."""
        return self.shapes[0][2]

    @cached_property
    def doubles(self) -> tuple[bool, ...]:
        """For each block, whether it doubles the size."""
        return tuple(weight[-1] == DOUBLING_SIDE for weight in self.shapes[2:-2:2])

    @property
    def size(self) -> int:
        """Rows and columns of the last stage."""
        return self.first * 2 ** sum(self.doubles)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def with_channels(self, channels: int) -> Shapes:
        """Return the shapes of the same network with a different number of channels."""
        shapes: list[tuple[int, ...]] = [(self.code, channels, self.first, self.first), (channels,)]
        for doubles in self.doubles:
            side = DOUBLING_SIDE if doubles else SIDE
            shapes += [(channels, channels, side, side), (channels,)]
        return (*shapes, (1, channels, SIDE, SIDE), (1,))
