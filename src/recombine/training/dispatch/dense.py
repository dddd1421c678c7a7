"""The fully connected decoder: all members' layers as batched products."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.decoders.base import ToImage
from recombine.training.dispatch.contract import MemberOutputs
from recombine.training.dispatch.layers import linear
from recombine.training.layout import FlatLayout


def forward_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Outputs of many members."""
    named, values = layout.unflatten_members(weights.to(dtype)), inputs.to(dtype)
    *hidden, last = decoder.stages
    for name in hidden:
        values = torch.relu(linear(named, f"stages.{name}.0", values))
    pixels = linear(named, f"stages.{last}.0", values)
    return MemberOutputs(pixels.unflatten(-1, cast(ToImage, decoder.stages[last][1]).image_shape))  # type: ignore[index]
