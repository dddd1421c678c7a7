"""Layers of many members at once: weights have a leading member axis, activations `(member, batch, …)`.

What forward passes of many members are built from. Products are batched over members; elementwise parts are torch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recombine import kernels

Weights = Mapping[str, Tensor]
"""Parameters by name."""


def linear(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """A linear layer on the last axis."""
    flat = inputs.flatten(1, -2)
    outputs: Tensor = MemberLinear.apply(flat, weights[f"{name}.weight"], weights[f"{name}.bias"])
    return outputs.unflatten(1, inputs.shape[1:-1])


class MemberLinear(torch.autograd.Function):
    """`(member, example, in)` to `(member, example, out)`.

    torch's own derivative of a batched product with transposed weights hands their gradient back transposed, which
    costs a pass over memory; this one multiplies it in the order in which it is kept.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return torch.baddbmm(bias[:, None], inputs, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        below = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        return below, torch.bmm(gradient.mT, inputs), gradient.sum(dim=1)


def layer_norm(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """A layer norm of the last axis."""
    lined = (len(inputs),) + (1,) * (inputs.ndim - 2) + (-1,)
    weight, bias = (weights[f"{name}.{part}"].view(lined) for part in ("weight", "bias"))
    return torch.addcmul(bias, functional.layer_norm(inputs, inputs.shape[-1:]), weight)


def prelu(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """A PReLU with one slope per member."""
    slope = weights[f"{name}.weight"].view(-1, *(1,) * (inputs.ndim - 1))
    return torch.where(inputs > 0, inputs, inputs * slope)


def narrow_convolution(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """A convolution with kernel 3 and padding 1, from and to few channels."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    narrow = kernels.implementation("narrow", inputs.device) if inputs.is_cuda else None
    if narrow is not None and max(weight.shape[1:3]) <= kernels.NARROW[inputs.device.type]:
        outputs: Tensor = narrow.NarrowConvolution.apply(inputs, weight, bias)
        return outputs
    members, batch = inputs.shape[:2]
    grouped = functional.conv2d(
        inputs.transpose(0, 1).flatten(1, 2), weight.flatten(0, 1), bias.flatten(), padding=1, groups=members
    )
    return grouped.view(batch, members, -1, *inputs.shape[-2:]).transpose(0, 1)
