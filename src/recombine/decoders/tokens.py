"""Pixel tokens: the code, repeated at every pixel, plus a fixed two-dimensional sinusoidal position (SPEC §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recombine.decoders.base import Interface, MemberOutputs, StagedDecoder, ToImage
from recombine.decoders.members import linear

POSITION_BASE = 10000.0
"""Ratio of the fastest frequency to the one past the slowest, as in the transformer's usual positions."""


class PixelTokens(nn.Module):
    """Codes to one token a pixel."""

    position: Tensor

    def __init__(self, interface: Interface, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(interface.code_size, width)
        self.register_buffer("position", sinusoidal_position(interface.image_shape, width), persistent=False)

    def forward(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch pixel width"]:
        projected = self.project(codes)[:, None, :]
        return projected + self.position.to(projected.dtype)

    def members(self, weights: Mapping[str, Tensor], name: str, codes: Tensor) -> Tensor:
        """The same for many members: `(member, batch, code)` to `(member, batch, pixel, width)`."""
        projected = linear(weights, f"{name}.project", codes)[:, :, None, :]
        return projected + self.position.to(projected.dtype)


class TokenDecoder(StagedDecoder):
    """Tokens through layers to one value each; and the same for many members, given how they go through a layer."""

    @staticmethod
    def member_layer(layer: nn.Module, weights: Mapping[str, Tensor], name: str, tokens: Tensor) -> Tensor:
        """One layer of many members, `(member, batch, pixel, width)` to the same."""
        raise TypeError(f"{type(layer).__name__} has no way for many members")

    def forward_members(self, weights: Mapping[str, Tensor], inputs: Tensor, dtype: torch.dtype) -> MemberOutputs:
        (first, tokens), *layers, (_, output) = self.stages.items()
        values = cast(PixelTokens, tokens).members(weights, f"stages.{first}", inputs)
        for name, layer in layers:
            values = self.member_layer(layer, weights, f"stages.{name}", values)
        shape = cast(ToImage, output[1]).image_shape  # type: ignore[index]
        return MemberOutputs(linear(weights, "stages.output.0", values).squeeze(-1).unflatten(-1, shape))


def sinusoidal_position(image_shape: tuple[int, int], width: int) -> Float[Tensor, "pixel width"]:
    """Half of the width tells the row, half the column; each half is sines, then cosines, of geometric frequencies.

    `width` is a multiple of 4.
    """
    pairs = width // 4
    frequency = POSITION_BASE ** -(torch.arange(pairs) / pairs)
    halves = []
    for coordinate in torch.meshgrid(*(torch.arange(n).float() for n in image_shape), indexing="ij"):
        angle = coordinate.reshape(-1, 1) * frequency
        halves.append(torch.cat([angle.sin(), angle.cos()], dim=1))
    return torch.cat(halves, dim=1)
