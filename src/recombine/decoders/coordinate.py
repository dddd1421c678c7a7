"""Coordinate MLP, the "spatially aware" one: pixel tokens through per-token layers, no attention (SPEC §4).

Stages: `tokens`, `layer1` … (linear + PReLU) and `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage
from recombine.decoders.members import linear, prelu
from recombine.decoders.tokens import PixelTokens, TokenDecoder


@DECODERS.register
class CoordinateMLP(DecoderSpec):
    """A small network that each pixel runs on its own position."""

    kind: Literal["coordinate"] = "coordinate"
    width: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 128
    """Size of a token."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Layers."""

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {"tokens": PixelTokens(interface, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(nn.Linear(self.width, self.width), nn.PReLU())
        stages["output"] = nn.Sequential(nn.Linear(self.width, 1), ToImage(interface.image_shape))
        return CoordinateDecoder(stages)


class CoordinateDecoder(TokenDecoder):
    """The chain, and all members' layers as batched products."""

    @staticmethod
    def member_layer(layer: nn.Module, weights: Mapping[str, Tensor], name: str, tokens: Tensor) -> Tensor:
        return prelu(weights, f"{name}.1", linear(weights, f"{name}.0", tokens))
