"""Forward and backward pass of the convolutions of many decoders with Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recombine.kernels.shapes import NetworkShape, Shapes
from recombine.kernels.triton import colours, convolution, readout

MAX_CHANNELS = 64
"""Maximum number of channels in a tile; above it, the grouped convolutions of libraries are faster."""


def takes(shapes: Shapes, batch: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels support a network and are faster for it."""
    network = NetworkShape.of(shapes)
    return fits(network.channels, network.colours, batch * (network.size + 2) ** 2, dtype)


def fits(channels: int, planes: int, pixels: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels support blocks and are faster for them.

    This requires bfloat16, a power-of-two channel count that tensor cores can tile, few planes of the image (colours),
    and few enough pixels per member (with borders) for 32-bit offsets.
    """
    tiled = 16 <= channels <= MAX_CHANNELS and channels & (channels - 1) == 0 and planes <= colours.CHANNELS
    return dtype == torch.bfloat16 and tiled and channels * pixels < 2**31


def images(weights: Tensor, codes: Tensor, shapes: Shapes, dtype: torch.dtype) -> Tensor:
    """Decode codes `(member, batch, code)` to images `(member, batch, colour, y, x)`.

    `weights` are `(member, parameter)` in float32: each member's flattened parameters with these `shapes`, possibly
    followed by others. Activations and products are in `dtype`.
    """
    network = NetworkShape.of(shapes)
    parts = weights.split([*network.sizes, weights.shape[1] - sum(network.sizes)], dim=1)[:-1]
    first, *rest = (part.view(len(weights), *shape) for part, shape in zip(parts, shapes, strict=True))
    outputs: Tensor = Blocks.apply(spread(codes.to(dtype), first), network.doubles, *rest)
    return outputs


def spread(codes: Tensor, kernel: Tensor) -> Tensor:
    """Return products of codes and a first layer's weights `(member, code, channel, y, x)`, channels last."""
    product = torch.bmm(codes, kernel.flatten(2).to(codes.dtype))
    return product.unflatten(2, kernel.shape[2:]).permute(0, 1, 3, 4, 2)


class Blocks(torch.autograd.Function):
    """Map products of a first layer `(member, batch, y, x, channel)` to images `(member, batch, colour, y, x)`.

    Parameters in float32, with a leading member axis, are the first layer's bias, before its ReLU; weight and bias of
    each block, transposed convolutions with ReLUs, of which some double the size; and those of the last convolution. A
    bias before a ReLU may be a map `(member, y, x, channel)`.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, doubles: tuple[bool, ...], *parameters: Tensor) -> Tensor:
        biases, kernels = [bias.contiguous() for bias in parameters[0::2]], parameters[1::2]
        maps = [bias.ndim > 2 for bias in biases[:-1]]
        first = biases[0][:, None] if maps[0] else biases[0][:, None, None, None]
        rows, columns = (side + 2 for side in product.shape[2:4])
        image = product.new_zeros(*product.shape[:2], rows, columns, product.shape[4])
        torch.add(product, first.to(product.dtype), out=convolution.inner(image)).relu_()
        stages, taps = [image], []
        for kernel, bias, up in zip(kernels[:-1], biases[1:-1], doubles, strict=True):
            along, back = convolution.laid_out(kernel, image.dtype)
            image = convolution.forward(image, along, bias, up)
            stages.append(image)
            taps.append(back)
        ctx.last = readout if kernels[-1].shape[1] == 1 else colours
        outputs, back = ctx.last.forward(image, kernels[-1], biases[-1])
        ctx.save_for_backward(back, *stages, *taps)
        ctx.doubles, ctx.maps, ctx.shapes = doubles, maps, [kernel.shape for kernel in kernels]
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        back, *rest = ctx.saved_tensors
        depth = len(ctx.doubles)
        stages, taps = rest[: depth + 1], rest[depth + 1 :]
        below, bias, *backwards = ctx.last.backward(gradients[0], back, stages[-1])  # the last layer's first
        bias = convolution.inner(below).sum(dim=1, dtype=torch.float32) if ctx.maps[-1] else bias
        for index in reversed(range(depth)):
            backwards += [bias, convolution.weight_gradient(stages[index], below, ctx.doubles[index])]
            below, bias = convolution.input_gradient(below, taps[index], stages[index], ctx.doubles[index])
            bias = convolution.inner(below).sum(dim=1, dtype=torch.float32) if ctx.maps[index] else bias
        parts = list(reversed([*backwards, bias]))
        parts[1::2] = [part.view(shape) for part, shape in zip(parts[1::2], ctx.shapes, strict=True)]
        return convolution.inner(below), None, *parts
