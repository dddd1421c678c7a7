"""Architecture of a transposed-convolution network, inferred from the shapes of its parameters.

Weights and biases alternate: from the code to `first` × `first` pixels, `(code, channels, first, first)`; blocks
`(channels, channels, side, side)` that keep the size (side 3, stride 1) or double it (side 4, stride 2), with padding 1
and a ReLU; and a final convolution to grey or colours, `(colours, channels, 3, 3)`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Self

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a network's parameters, in order."""
SIDE, DOUBLING_SIDE = 3, 4
"""Side lengths of convolution kernels that keep the size and that double it."""


class NetworkShape:
    """A network, described by the shapes of its parameters."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes, self.sizes = shapes, tuple(math.prod(shape) for shape in shapes)
        self.code, self.channels, self.first, _ = shapes[0]
        self.colours = shapes[-1][0]
        self.doubles = tuple(weight[-1] == DOUBLING_SIDE for weight in shapes[2:-2:2])
        self.size = self.first * 2 ** sum(self.doubles)  # rows and columns of the last stage
        if len(shapes) < 4 or self.with_channels(self.channels) != shapes:
            raise ValueError(f"shapes must be those of transposed convolutions and a convolution, got {shapes}")

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, shapes: Shapes) -> Self:
        """Return the network with these shapes; raise a ValueError if no kernel supports it."""
        return cls(shapes)

    def with_channels(self, channels: int) -> Shapes:
        """Return the shapes of the same network with a different number of channels."""
        shapes: list[tuple[int, ...]] = [(self.code, channels, self.first, self.first), (channels,)]
        for doubles in self.doubles:
            side = DOUBLING_SIDE if doubles else SIDE
            shapes += [(channels, channels, side, side), (channels,)]
        return (*shapes, (self.colours, channels, SIDE, SIDE), (self.colours,))
