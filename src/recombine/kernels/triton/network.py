"""Forward and backward pass of many transposed-convolution decoders with Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recombine.kernels.shapes import NetworkShape, Shapes
from recombine.kernels.triton import colours, convolution, readout

MAX_CHANNELS = 64
"""Maximum number of channels in a tile; above it, the grouped convolutions of libraries are faster."""


def takes(shapes: Shapes, batch: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels support a network and are faster for it. This requires bfloat16, a power-of-two
    channel count that tensor cores can tile, few colours, and few enough pixels per member (with borders) for 32-bit
    offsets."""
    network = NetworkShape.of(shapes)
    channels, pixels = network.channels, batch * (network.size + 2) ** 2
    tiled = 16 <= channels <= MAX_CHANNELS and channels & (channels - 1) == 0
    tiled &= network.colours <= colours.CHANNELS
    return dtype == torch.bfloat16 and tiled and channels * pixels < 2**31


class TransposedConvolutions(torch.autograd.Function):
    """Decode codes `(member, batch, code)` to images `(member, batch, colour, y, x)`; only parameters have gradients.

    `weights` are `(member, parameter)` in float32: each member's flattened parameters with these `shapes`, possibly
    followed by others. Activations and products are in `dtype`.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, codes: Tensor, shapes: Shapes, dtype: torch.dtype) -> Tensor:
        network, (members, batch) = NetworkShape.of(shapes), codes.shape[:2]
        parameters = _unflattened(weights, network)
        kernels, biases = parameters[0::2], [bias.contiguous() for bias in parameters[1::2]]
        channels, size = network.channels, network.first
        codes = codes.to(dtype)
        product = torch.bmm(codes, kernels[0].flatten(2).to(dtype)).view(members, batch, channels, size, size)
        image = torch.relu(product + biases[0].to(dtype)[:, None, :, None, None]).permute(0, 1, 3, 4, 2)
        image = convolution.bordered(image)
        stages, taps = [image], []
        for kernel, bias, doubles in zip(kernels[1:-1], biases[1:-1], network.doubles, strict=True):
            along, back = convolution.laid_out(kernel, dtype)
            image = convolution.forward(image, along, bias, doubles)
            stages.append(image)
            taps.append(back)
        last = readout if network.colours == 1 else colours
        images, back = last.forward(image, kernels[-1], biases[-1])
        ctx.save_for_backward(codes, back, *stages, *taps)
        ctx.network, ctx.last, ctx.spare = network, last, weights.shape[1] - sum(network.sizes)
        return images

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        codes, back, *rest = ctx.saved_tensors
        doubles, depth = ctx.network.doubles, len(ctx.network.doubles)
        stages, taps = rest[: depth + 1], rest[depth + 1 :]
        below, bias, *backwards = ctx.last.backward(gradients[0], back, stages[-1])
        for index in reversed(range(depth)):
            weight = convolution.weight_gradient(stages[index], below, doubles[index])
            backwards += [bias, weight]
            below, bias = convolution.input_gradient(below, taps[index], stages[index], doubles[index])
        below = convolution.inner(below).permute(0, 1, 4, 2, 3).flatten(2)
        backwards += [bias, torch.bmm(codes.mT, below).float()]
        parts = [part.flatten(1) for part in reversed(backwards)]
        return torch.cat([*parts, parts[0].new_zeros(len(parts[0]), ctx.spare)], dim=1), None, None, None


def _unflattened(weights: Tensor, network: NetworkShape) -> list[Tensor]:
    """Return every parameter with a leading member axis, as views."""
    parts = weights.split([*network.sizes, weights.shape[1] - sum(network.sizes)], dim=1)[:-1]
    return [part.view(len(weights), *shape) for part, shape in zip(parts, network.shapes, strict=True)]
