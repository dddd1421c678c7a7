"""Decoders of pixel tokens: all members' layers as batched products, and fused attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders import StagedDecoder
from recombine.decoders.base import ToImage
from recombine.decoders.tokens import PixelTokens
from recombine.decoders.transformer import EncoderLayer
from recombine.training.dispatch.contract import MemberOutputs
from recombine.training.dispatch.layers import Weights, layer_norm, linear, prelu
from recombine.training.layout import FlatLayout

MemberLayer = Callable[[nn.Module, Weights, str, Tensor], Tensor]
"""A layer's module, all weights, its name and tokens `(member, batch, pixel, width)` to tokens."""


def forward_coordinate_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Outputs of many coordinate MLPs."""
    return _through(_coordinate_layer, decoder, layout.unflatten_members(weights.to(dtype)), inputs.to(dtype))


def forward_transformer_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Outputs of many transformers."""
    return _through(_encoder_layer, decoder, layout.unflatten_members(weights.to(dtype)), inputs.to(dtype))


def _through(layer: MemberLayer, decoder: StagedDecoder, weights: Weights, inputs: Tensor) -> MemberOutputs:
    """Codes to tokens, through all layers, to each token's colour."""
    (first, tokens), *layers, (_, output) = decoder.stages.items()
    projected = linear(weights, f"stages.{first}.project", inputs)[:, :, None, :]
    values = projected + cast(PixelTokens, tokens).position.to(projected.dtype)
    for name, module in layers:
        values = layer(module, weights, f"stages.{name}", values)
    shape = cast(ToImage, output[1]).image_shape  # type: ignore[index]
    return MemberOutputs(linear(weights, "stages.output.0", values).mT.flatten(-2).unflatten(-1, shape))


def _coordinate_layer(module: nn.Module, weights: Weights, name: str, tokens: Tensor) -> Tensor:
    return prelu(weights, f"{name}.1", linear(weights, f"{name}.0", tokens))


def _encoder_layer(module: nn.Module, weights: Weights, name: str, tokens: Tensor) -> Tensor:
    """Members are more examples to attention."""
    heads = cast(EncoderLayer, module).heads
    mixed = linear(weights, f"{name}.mix", tokens).unflatten(-1, (3, heads, -1)).flatten(0, 1)
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2)
    merged = linear(weights, f"{name}.merge", attended.unflatten(0, tokens.shape[:2]))
    tokens = layer_norm(weights, f"{name}.after_attention", tokens + merged)
    fed = linear(weights, f"{name}.feed.2", torch.relu(linear(weights, f"{name}.feed.0", tokens)))
    return layer_norm(weights, f"{name}.after_feed", tokens + fed)
