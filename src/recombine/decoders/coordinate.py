"""Coordinate MLP, the "spatially aware" one: pixel tokens through per-token layers, no attention (SPEC §4).

Stages: `tokens`, `layer1` … (linear + PReLU) and `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, MemberAnswers, StagedDecoder, ToImage
from recombine.decoders.members import linear, prelu
from recombine.decoders.tokens import PixelTokens, read_pixels


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


class CoordinateDecoder(StagedDecoder):
    """The chain, and all members' layers as batched products."""

    def member_answers(self, weights: Mapping[str, Tensor], inputs: Tensor, dtype: torch.dtype) -> MemberAnswers:
        tokens, *hidden, _ = self.stages.items()
        values = cast(PixelTokens, tokens[1]).members(weights, f"stages.{tokens[0]}", inputs)
        for name, _ in hidden:
            values = prelu(weights, f"stages.{name}.1", linear(weights, f"stages.{name}.0", values))
        return MemberAnswers(read_pixels(self, weights, values))
