"""Fully connected decoder: `depth` ReLU layers, then linear to all pixels (SPEC §4).

The paper uses width 256 with bump codes and 128 with rate codes, depth 3 … 7. Stages: `layer1` … and `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, MemberOutputs, StagedDecoder, ToImage
from recombine.decoders.members import linear


@DECODERS.register
class MLP(DecoderSpec):
    """Multi-layer perceptron."""

    kind: Literal["mlp"] = "mlp"
    width: Annotated[int, Field(ge=1, le=2**16)] = 256
    """Neurons of every hidden layer."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Hidden layers."""

    def build(self, interface: Interface) -> StagedDecoder:
        sizes = [interface.code_size] + [self.width] * self.depth
        stages: dict[str, nn.Module] = {
            f"layer{number}": nn.Sequential(nn.Linear(before, after), nn.ReLU())
            for number, (before, after) in enumerate(pairwise(sizes), start=1)
        }
        stages["output"] = nn.Sequential(nn.Linear(self.width, interface.pixels), ToImage(interface.image_shape))
        return MLPDecoder(stages)


class MLPDecoder(StagedDecoder):
    """The chain, and all members' layers as batched products."""

    def forward_members(self, weights: Mapping[str, Tensor], inputs: Tensor, dtype: torch.dtype) -> MemberOutputs:
        *hidden, last = self.stages
        for name in hidden:
            inputs = torch.relu(linear(weights, f"stages.{name}.0", inputs))
        drawn = linear(weights, f"stages.{last}.0", inputs)
        return MemberOutputs(drawn.unflatten(-1, cast(ToImage, self.stages[last][1]).image_shape))  # type: ignore[index]
