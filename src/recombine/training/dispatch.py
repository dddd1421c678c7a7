"""Forward passes of decoders on each device. Only this module depends on both architectures and kernels.

A GPU runs many members at once, a CPU one network at a time. `FORWARDS` lists decoders that can run faster than
their module; all others, including user-defined decoders, run their module, batched by `torch.func.vmap`. Entries do
not apply to subclasses, which may build different networks. Tests compare every entry with the module.

Whole-network kernels for a CPU support only grey images; colour images use the module there. With many members, weights
have a leading member axis and activations are `(member, batch, …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import ModuleType
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from recombine import kernels
from recombine.decoders import (
    CNN,
    MLP,
    BroadcastDecoder,
    CoordinateMLP,
    DecoderSpec,
    LowRank,
    StagedDecoder,
    Transformer,
)
from recombine.decoders.base import ToImage
from recombine.decoders.cnn import Resize, ToChannels
from recombine.decoders.low_rank import EmbeddingParts, LowRankDecoder, LowRankEmbedding
from recombine.decoders.pixelwise import coordinates
from recombine.decoders.tokens import EncoderLayer, PixelTokens
from recombine.training.layers import Weights, activated, attended, linear, narrow_convolution, normed, prelu

ALIGNED = 8
"""Parameter vectors are padded to a multiple of this length (16 bytes of bfloat16, the alignment of tensor cores)."""


class FlatLayout:
    """Converts named tensors, such as a module's parameters, to one vector and back.

    The ensemble stores weights and both AdamW moments as `(member, parameter)` matrices, so the optimiser takes a
    handful of operations for any decoder, and a checkpoint has three tensors. Zeros at the end of each vector align the
    next one.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self.names = list(named)
        self.shapes = tuple(tuple(part.shape) for part in named.values())
        self.types = tuple(part.dtype for part in named.values())
        self.spare = -sum(part.numel() for part in named.values()) % ALIGNED
        self.sizes = [*(part.numel() for part in named.values()), self.spare]
        self.size = sum(self.sizes)

    def flatten(self, named: Mapping[str, Tensor]) -> Float[Tensor, " parameter"]:
        """Return the tensors as a new vector."""
        parts = [named[name].detach().float().flatten() for name in self.names]
        device = parts[0].device if parts else None
        return torch.cat([*parts, torch.zeros(self.spare, device=device)])

    def unflatten(self, vectors: Float[Tensor, "*member parameter"]) -> dict[str, Tensor]:
        """Return named views into a vector, or into the vectors of all members; integers are copies."""
        named = zip(self.names, vectors.split(self.sizes, dim=-1)[:-1], self.shapes, self.types, strict=True)
        return {
            name: part.view((*vectors.shape[:-1], *shape)).to(vectors.dtype if kind.is_floating_point else kind)
            for name, part, shape, kind in named
        }


class MemberOutputs(NamedTuple):
    """Outputs and penalties of many members, or of one network without a member axis."""

    outputs: Tensor
    penalties: Mapping[str, Tensor] = {}


class Forwards(NamedTuple):
    """Fast forward passes of a decoder; None means that the module is used."""

    members: Callable[[StagedDecoder, FlatLayout, Tensor, Tensor, torch.dtype], MemberOutputs] | None = None
    """Takes module, layout, float32 weights `(member, parameter)`, inputs `(member, batch, …)` and compute dtype."""
    one: Callable[[StagedDecoder, FlatLayout, Tensor, Tensor], MemberOutputs | None] | None = None
    """Same for one float32 network on a CPU; only weights have gradients. Returns None if the module is fastest."""


def cnn_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members."""
    images = _kernel_images(layout, weights, inputs, dtype) if inputs.is_cuda else None
    if images is not None:
        return MemberOutputs(resized(decoder, images))
    named = {name: part.to(dtype) for name, part in layout.unflatten(weights).items()}
    return MemberOutputs(grouped(decoder, named, inputs.to(dtype)))


def cnn_one(decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor) -> MemberOutputs | None:
    """Return outputs of one network on a CPU."""
    images = _kernel_images(layout, weights, inputs, inputs.dtype)
    return None if images is None else MemberOutputs(_last(decoder)[1](images))


def _kernel_images(layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return images `(*member, batch, channel, y, x)` from whole-network kernels, or None if they do not apply."""
    network = kernels.implementation("network", inputs.device)
    if network is None or not network.takes(layout.shapes, inputs.shape[-2], dtype):
        return None
    images: Tensor = network.images(weights, inputs, layout.shapes, dtype)
    return images


def broadcast_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members."""
    network = kernels.implementation("network", inputs.device) if inputs.is_cuda else None
    named = layout.unflatten(weights)
    colours, channels = named["stages.output.0.weight"].shape[1:3]
    rows, columns = cast(ToImage, decoder.stages["output"][1]).image_shape[-2:]  # type: ignore[index]
    if network is None or not network.fits(channels, colours, inputs.shape[1] * (rows + 2) * (columns + 2), dtype):
        return module_members(decoder, layout, weights, inputs, dtype)
    return MemberOutputs(_images(decoder, broadcast_planes(network, named, (rows, columns), inputs.to(dtype)), 3))


def broadcast_planes(network: ModuleType, weights: Weights, plane: tuple[int, int], codes: Tensor) -> Tensor:
    """Return images of spatial broadcast decoders `(member, batch, channel, y, x)` from convolution kernels.

    Codes are the same at every pixel inside the image. So a tap of the first convolution adds one product wherever it
    lies inside, and coordinates, times their weights, add the same to all examples.
    """
    *hidden, last = [weights[f"{name}.weight"] for name in _convolutions(weights)]
    kernel, size = hidden[0].to(codes.dtype), codes.shape[2]
    first = kernel[:, :, :size].permute(0, 2, 3, 4, 1)  # (member, code, y, x, out)
    taps = torch.bmm(codes, first.flatten(2)).unflatten(2, (9, -1))
    places = kernel[:, None, :, size:].flatten(3).mT.expand(-1, codes.shape[1], -1, -1)
    seen = torch.cat([codes.new_ones(1, *plane), coordinates(plane, codes.device).to(codes.dtype)])
    shifted = functional.unfold(seen[None], 3, padding=1)[0]  # (map and tap, pixel)
    factors = torch.cat([taps, places], dim=2).flatten(0, 1)
    product = torch.bmm(shifted.mT.expand(len(factors), -1, -1), factors).view(*codes.shape[:2], *plane, -1)
    biases = [weights[f"{name}.bias"] for name in _convolutions(weights)]
    blocks = [kernel.flip(3, 4).transpose(1, 2).contiguous() for kernel in hidden[1:]]
    pairs = zip([*blocks, functional.pad(last, (1, 1, 1, 1))], biases[1:], strict=True)
    parameters = [part for pair in pairs for part in pair]
    planes: Tensor = network.Blocks.apply(product, (False,) * len(blocks), biases[0], *parameters)
    return planes


def _convolutions(weights: Weights) -> list[str]:
    return [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]


def module_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members by their module."""

    def outputs(own: Tensor, codes: Tensor) -> Tensor:
        result: Tensor = functional_call(decoder, layout.unflatten(own), (codes,))
        return result

    return MemberOutputs(vmap(outputs)(weights.to(dtype), inputs.to(dtype)))


def grouped(decoder: StagedDecoder, weights: Weights, inputs: Tensor) -> Tensor:
    """Return outputs of all members as one network of grouped convolutions, channels last throughout."""
    members, batch = inputs.shape[:2]
    kernel, bias = weights["stages.layer0.0.weight"], weights["stages.layer0.0.bias"]
    channels, size = kernel.shape[2], kernel.shape[-1]
    product = inputs @ kernel.permute(0, 1, 3, 4, 2).flatten(2)  # (member, batch, y x channel)
    image = product.view(members, batch, size, size, channels).permute(1, 2, 3, 0, 4) + bias
    image = functional.relu(image.flatten(-2).permute(0, 3, 1, 2))  # (batch, member channel, y, x), channels last
    _, *blocks, _ = decoder.stages.items()
    for name, stage in blocks:
        block = stage[0]  # type: ignore[index]
        kernel, bias = weights[f"stages.{name}.0.weight"], weights[f"stages.{name}.0.bias"]
        image = functional.relu(
            functional.conv_transpose2d(
                image, kernel.flatten(0, 1), bias.flatten(), block.stride, block.padding, groups=members
            )
        )
    # the last convolution is a matrix product with shifts
    rows, columns = image.shape[-2:]
    pixels = image.permute(0, 2, 3, 1).reshape(batch * rows * columns, members, -1).transpose(0, 1)
    kernel, bias = weights["stages.output.0.weight"], weights["stages.output.0.bias"]
    taps = kernel.flatten(3).permute(0, 3, 1, 2).flatten(1, 2)  # (member, tap and colour, channel)
    maps = (taps @ pixels.mT).view(members, -1, kernel.shape[1], batch, rows, columns).transpose(0, 1)
    planes = _last(decoder)[0].summed(maps) + bias[:, :, None, None, None]
    return resized(decoder, planes.transpose(1, 2))


def resized(decoder: StagedDecoder, planes: Tensor) -> Tensor:
    """Resize planes `(member, batch, channel, y, x)` to images of the decoder's size."""
    images: Tensor = _last(decoder)[1](planes.flatten(0, 1))
    return images.unflatten(0, planes.shape[:2])


def _last(decoder: StagedDecoder) -> tuple[ToChannels, Resize]:
    return cast("tuple[ToChannels, Resize]", tuple(decoder.stages["output"].children()))


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
    BroadcastDecoder: Forwards(broadcast_members),
    CoordinateMLP: Forwards(partial(token_members, _coordinate_layer)),
    Transformer: Forwards(partial(token_members, _encoder_layer)),
}
