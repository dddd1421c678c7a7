"""Pixel tokens: the code, repeated at every pixel, plus a fixed two-dimensional sinusoidal position; and back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recombine.decoders.base import Interface, ToImage

POSITION_BASE = 10000.0
"""Ratio of the fastest frequency to the one past the slowest, as in the transformer's usual positions."""


class PixelTokens(nn.Module):
    """Codes to one token per pixel."""

    position: Tensor

    def __init__(self, interface: Interface, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(interface.code_size, width)
        self.register_buffer("position", sinusoidal_position(interface.plane, width), persistent=False)

    def forward(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch pixel width"]:
        projected = self.project(codes)[:, None, :]
        return projected + self.position.to(projected.dtype)


def sinusoidal_position(plane: tuple[int, int], width: int) -> Float[Tensor, "pixel width"]:
    """Half of the width tells the row, half the column; each half is sines, then cosines, of geometric frequencies.

    `width` is a multiple of 4.
    """
    pairs = width // 4
    frequency = POSITION_BASE ** -(torch.arange(pairs) / pairs)
    halves = []
    for coordinate in torch.meshgrid(*(torch.arange(n).float() for n in plane), indexing="ij"):
        angle = coordinate.reshape(-1, 1) * frequency
        halves.append(torch.cat([angle.sin(), angle.cos()], dim=1))
    return torch.cat(halves, dim=1)


class TokensToImage(ToImage):
    """Tokens `(batch, pixel, channel)` to images."""

    def forward(self, tokens: Float[Tensor, "batch pixel channel"]) -> Tensor:
        return super().forward(tokens.mT)


def read_out(interface: Interface, width: int) -> nn.Sequential:
    """The last stage: each token to its pixel's value, one for each channel."""
    return nn.Sequential(nn.Linear(width, interface.channels), TokensToImage(interface.image_shape))
