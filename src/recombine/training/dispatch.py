"""Forward passes of decoders on each device. Only this module depends on both architectures and kernels.

A GPU runs many members at once, a CPU one network at a time. `FORWARDS` lists decoders that can run faster than
their module; all others, including user-defined decoders, run their module, batched by `torch.func.vmap`. Entries do
not apply to subclasses, which may build different networks. Tests compare every entry with the module.

With many members, weights have a leading member axis and activations are `(member, batch, …)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from recombine import kernels
from recombine.decoders import (
    CNN,
    MLP,
    BroadcastDecoder,
    CoordConvDecoder,
    CoordinateMLP,
    DecoderSpec,
    LadderDecoder,
    LowRank,
    StagedDecoder,
    Transformer,
)
from recombine.decoders.base import ToImage
from recombine.decoders.low_rank import EmbeddingParts, LowRankDecoder, LowRankEmbedding
from recombine.decoders.tokens import EncoderLayer, PixelTokens
from recombine.training.convolutional import (
    block_members,
    broadcast_planes,
    cnn_members,
    cnn_one,
    coordconv_planes,
    ladder_planes,
)
from recombine.training.layers import activated, attended, linear, narrow_convolution, normed, prelu
from recombine.training.members import FlatLayout, MemberOutputs, Weights


class Forwards(NamedTuple):
    """Fast forward passes of a decoder; None means that the module is used."""

    members: Callable[[StagedDecoder, FlatLayout, Tensor, Tensor, torch.dtype], MemberOutputs] | None = None
    """Takes module, layout, float32 weights `(member, parameter)`, inputs `(member, batch, …)` and compute dtype."""
    one: Callable[[StagedDecoder, FlatLayout, Tensor, Tensor], MemberOutputs | None] | None = None
    """Same for one float32 network on a CPU; only weights have gradients. Returns None if the module is fastest."""


def low_rank_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs and penalties of many members; embeddings stay in float32."""
    named = layout.unflatten(weights)
    first, *hidden, last = decoder.stages
    parts = _parts(cast(LowRankDecoder, decoder).embedding, named, f"stages.{first}")
    values = parts.rendered(inputs).to(dtype)
    named = {name: part.to(dtype) for name, part in named.items() if not name.startswith(f"stages.{first}.")}
    for name in hidden:
        values = prelu(named, f"stages.{name}.1", narrow_convolution(named, f"stages.{name}.0", values))
    planes = narrow_convolution(named, f"stages.{last}.0", values)
    return MemberOutputs(_images(decoder, planes, 3), parts.penalties())


def low_rank_one(decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor) -> MemberOutputs | None:
    """Return outputs and penalties of one network on a CPU."""
    named = layout.unflatten(weights)
    first, *hidden, last = decoder.stages
    widest = max(max(named[f"stages.{name}.0.weight"].shape[:2]) for name in (*hidden, last))
    narrow = kernels.implementation("narrow", inputs.device)
    if narrow is None or widest > kernels.NARROW[inputs.device.type]:
        return None
    parts = _parts(cast(LowRankDecoder, decoder).embedding, named, f"stages.{first}")
    values = parts.rendered(inputs)
    for name in (*hidden, last):
        kernel, bias = (named[f"stages.{name}.0.{part}"] for part in ("weight", "bias"))
        values = narrow.NarrowConvolution.apply(values, kernel, bias)
        if name != last:
            values = functional.prelu(values, named[f"stages.{name}.1.weight"])
    return MemberOutputs(_images(decoder, values, 3), parts.penalties())


def _images(decoder: StagedDecoder, numbers: Tensor, axes: int) -> Tensor:
    """Reshape the last `axes` axes to the decoder's image shape."""
    return numbers.flatten(-axes).unflatten(-1, cast(ToImage, decoder.stages["output"][1]).image_shape)  # type: ignore[index]


def _parts(embedding: LowRankEmbedding, weights: Weights, name: str) -> EmbeddingParts:
    """Extract an embedding's components from a dict of parameters, with or without a leading member axis."""
    rows, columns, strengths = (
        [weights[f"{name}.{kind}.{k}"] for k in range(len(embedding.code_sizes) * embedding.channels)]
        for kind in ("rows", "columns", "strengths")
    )
    on_kernels = rows[0].is_cuda and kernels.available(rows[0].device, "vectors")
    family = KernelParts if on_kernels else EmbeddingParts
    return family(rows, columns, strengths, embedding.vectors == "unit", embedding.channels)


class KernelParts(EmbeddingParts):
    """Embedding components of many members, computed by kernels with a single pass over memory."""

    @cached_property
    def scaled(self) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Unit-norm rows times their strengths, and unit-norm columns, each with its sum of variances."""
        from recombine.kernels.triton.vectors import ScaledUnits

        rows = [ScaledUnits.apply(v, s, self.unit) for v, s in zip(self.rows, self.strengths, strict=True)]
        return rows, [ScaledUnits.apply(u, None, self.unit) for u in self.columns]

    def images(self) -> list[Tensor]:
        return [v.mT @ u for (v, _), (u, _) in zip(*self.scaled, strict=True)]

    def entropy(self) -> Tensor:
        from recombine.kernels.triton.vectors import Entropies

        return torch.stack([Entropies.apply(strength) for strength in self.strengths]).sum(dim=0)

    def variance(self) -> Tensor:
        rows, columns = self.scaled
        return torch.stack([spread for _, spread in rows + columns]).sum(dim=0)


def dense_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members."""
    named, values = layout.unflatten(weights.to(dtype)), inputs.to(dtype)
    *hidden, last = decoder.stages
    for name in hidden:
        values = activated(named, f"stages.{name}.0", values)
    pixels = linear(named, f"stages.{last}.0", values)
    return MemberOutputs(_images(decoder, pixels, 1))


MemberLayer = Callable[[nn.Module, Weights, str, Tensor], Tensor]
"""Maps a layer's module, all weights, its name and tokens `(member, batch, pixel, width)` to new tokens."""


def token_members(
    layer: MemberLayer, decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members, mapping codes to tokens, through all layers, to pixels."""
    named = layout.unflatten(weights.to(dtype))
    (first, tokens), *layers, _ = decoder.stages.items()
    projected = linear(named, f"stages.{first}.project", inputs.to(dtype))[:, :, None, :]
    values = projected + cast(PixelTokens, tokens).position.to(projected.dtype)
    for name, module in layers:
        values = layer(module, named, f"stages.{name}", values)
    return MemberOutputs(_images(decoder, linear(named, "stages.output.0", values).mT, 2))


def _coordinate_layer(module: nn.Module, weights: Weights, name: str, tokens: Tensor) -> Tensor:
    return activated(weights, f"{name}.0", tokens, f"{name}.1")


def _encoder_layer(module: nn.Module, weights: Weights, name: str, tokens: Tensor) -> Tensor:
    """Apply an encoder layer; attention treats members as additional examples."""
    heads = cast(EncoderLayer, module).heads
    mixed = linear(weights, f"{name}.mix", tokens).unflatten(-1, (3, heads, -1)).flatten(0, 1)
    merged = attended(mixed).flatten(-2).unflatten(0, tokens.shape[:2])
    tokens = normed(weights, f"{name}.after_attention", tokens, f"{name}.merge", merged)
    fed = activated(weights, f"{name}.feed.0", tokens)
    return normed(weights, f"{name}.after_feed", tokens, f"{name}.feed.2", fed)


FORWARDS: dict[type[DecoderSpec], Forwards] = {
    CNN: Forwards(cnn_members, cnn_one),
    LowRank: Forwards(low_rank_members, low_rank_one),
    MLP: Forwards(dense_members),
    BroadcastDecoder: Forwards(partial(block_members, broadcast_planes)),
    CoordConvDecoder: Forwards(partial(block_members, coordconv_planes)),
    LadderDecoder: Forwards(partial(block_members, ladder_planes)),
    CoordinateMLP: Forwards(partial(token_members, _coordinate_layer)),
    Transformer: Forwards(partial(token_members, _encoder_layer)),
}
