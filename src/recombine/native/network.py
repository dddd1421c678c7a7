"""The whole transposed-convolution decoder, forward and backward, on the compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recombine.native import kernels


class Convolutional(torch.autograd.Function):
    """`(batch, code)` to `(batch, y, x)`; gradients of the weights alone.

    Weights are those of `FromPoint`, transposed convolutions and `ToChannel`, weight and bias in turn; `ups` says which
    of the convolutions double the size.
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, ups: Sequence[bool], *weights: Tensor) -> Tensor:
        kernel, bias = weights[:2]
        channels, size = kernel.shape[1], kernel.shape[-1]
        first = torch.addmm(bias.repeat_interleave(size * size), codes, kernel.flatten(1)).view(
            -1, channels, size, size
        )
        image = codes.new_zeros(len(codes), size + 2, size + 2, channels)
        torch.relu_(image[:, 1:-1, 1:-1].copy_(first.permute(0, 2, 3, 1)))
        stages = [image]
        for up, kernel, bias in zip(ups, weights[2:-2:2], weights[3:-2:2], strict=True):
            stages.append(kernels.forward(stages[-1], kernel, bias, up))
        ctx.save_for_backward(codes, *weights[0::2], *stages)
        ctx.ups = ups
        return kernels.draw(stages[-1], *weights[-2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, depth = gradients[0].contiguous(), len(ctx.ups)
        codes, *rest = ctx.saved_tensors
        weights, stages = rest[: depth + 2], rest[depth + 2 :]
        below, bias, weight = kernels.undraw(stages[-1], weights[-1], gradient)
        found = [gradient.sum().reshape(1), weight]
        for index in reversed(range(depth)):
            found += [bias, kernels.weight_gradient(stages[index], below, ctx.ups[index])]
            below, bias = kernels.input_gradient(below, weights[index + 1], stages[index], ctx.ups[index])
        first = below[:, 1:-1, 1:-1].permute(0, 3, 1, 2).flatten(1)
        found += [bias, (codes.T @ first).view_as(weights[0])]
        return None, None, *reversed(found)
