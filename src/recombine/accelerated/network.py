"""The whole transposed-convolution decoder of many members, forward and backward, on the kernels of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recombine.accelerated import convolution, readout


class ConvolutionalMembers(torch.autograd.Function):
    """`(member, batch, code)` to `(member, batch, y, x)`; gradients of the weights alone.

    Weights come in float32, as `FromPoint`, transposed convolutions and `ToChannel` keep them with a leading member
    axis, weight and bias in turn; `ups` says which of the convolutions double the size.
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, ups: Sequence[bool], dtype: torch.dtype, *weights: Tensor) -> Tensor:
        kernels, biases = weights[0::2], [bias.contiguous() for bias in weights[1::2]]
        members, batch = codes.shape[:2]
        channels, size = kernels[0].shape[2], kernels[0].shape[-1]
        codes = codes.to(dtype)
        product = torch.bmm(codes, kernels[0].flatten(2).to(dtype)).view(members, batch, channels, size, size)
        image = torch.relu(product + biases[0].to(dtype)[:, None, :, None, None]).permute(0, 1, 3, 4, 2)
        image = convolution.bordered(image)
        stages, taps = [image], []
        for kernel, bias, up in zip(kernels[1:-1], biases[1:-1], ups, strict=True):
            along, back = convolution.laid_out(kernel, dtype)
            image = convolution.forward(image, along, bias, up)
            stages.append(image)
            taps.append(back)
        places = kernels[-1].flatten(3).squeeze(1).transpose(1, 2).to(dtype).contiguous()
        ctx.save_for_backward(codes, places, *stages, *taps)
        ctx.ups, ctx.shapes = ups, [weight.shape for weight in weights]
        ctx.precision = convolution.precision(image)
        return readout.forward(image, places, biases[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        codes, places, *rest = ctx.saved_tensors
        depth = len(ctx.ups)
        stages, taps = rest[: depth + 1], rest[depth + 1 :]
        gradient = gradient.contiguous()
        weight, bias = readout.weight_gradient(stages[-1], gradient, ctx.precision)
        found = [bias[:, None], weight.transpose(1, 2)]
        below, bias = readout.input_gradient(gradient, places, stages[-1])
        for index in reversed(range(depth)):
            weight = convolution.weight_gradient(stages[index], below, ctx.ups[index])
            found += [bias, weight]
            below, bias = convolution.input_gradient(below, taps[index], stages[index], ctx.ups[index])
        below = convolution.inner(below).permute(0, 1, 4, 2, 3).flatten(2)
        found += [bias, torch.bmm(codes.mT, below).float()]
        shaped = [part.reshape(shape) for part, shape in zip(reversed(found), ctx.shapes, strict=True)]
        return None, None, None, *shaped
