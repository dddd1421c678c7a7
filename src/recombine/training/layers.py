"""Layers of many members on a GPU, by kernels if there are some.

Weights are named, with a leading member axis, and activations are `(member, batch, …)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recombine import kernels
from recombine.training.members import Weights

TILE, TILES = 128, 256
"""Sides of the tiles in which libraries compute products on a GPU, and the number of tiles that keep one busy."""


def linear(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """Apply a linear layer to the last axis."""
    return _product(inputs, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    outputs: Tensor = MemberLinear.apply(inputs.flatten(1, -2), weight, bias)
    return outputs.unflatten(1, inputs.shape[1:-1])


class MemberLinear(torch.autograd.Function):
    """Linear layers of many members: `(member, example, in)` to `(member, example, out)`, with or without a bias.

    For a batched product with transposed weights, torch returns a transposed gradient, which costs a pass over memory;
    this function computes the gradient in the layout of the weights.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.biased = bias is not None
        return torch.bmm(inputs, weight.mT) if bias is None else torch.baddbmm(bias[:, None], inputs, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        below = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        return below, _weight_gradient(gradient, inputs), gradient.sum(dim=1) if ctx.biased else None


def _weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return each member's sum over examples of gradient times input.

    With few members and many examples, such as pixels, a product per member would leave most of a GPU idle, so that
    examples are divided into parts.
    """
    members, examples = inputs.shape[:2]
    tiles, parts = members * -(-gradient.shape[2] // TILE) * -(-inputs.shape[2] // TILE), 1
    while inputs.is_cuda and 2 * parts * tiles <= TILES and not examples % (2 * parts) and examples > 4 * TILE * parts:
        parts *= 2
    left, right = (part.reshape(members * parts, -1, part.shape[2]) for part in (gradient, inputs))
    sums = torch.bmm(left.mT, right)
    return sums if parts == 1 else sums.unflatten(0, (members, parts)).sum(dim=1)


def activated(weights: Weights, name: str, inputs: Tensor, slope: str | None = None) -> Tensor:
    """Apply a linear layer and a ReLU or, given the name of a slope, a PReLU."""
    own = kernels.implementation("tokens", inputs.device) if inputs.is_cuda else None
    if own is None:
        outputs = linear(weights, name, inputs)
        return functional.relu(outputs) if slope is None else prelu(weights, slope, outputs)
    products = _product(inputs, weights[f"{name}.weight"])
    slopes = None if slope is None else weights[f"{slope}.weight"]
    activations: Tensor = own.Activated.apply(products.flatten(1, -2), weights[f"{name}.bias"], slopes)
    return activations.view_as(products)


def normed(weights: Weights, name: str, values: Tensor, branch: str, inputs: Tensor) -> Tensor:
    """Add a linear layer's outputs to values and apply layer norm to the last axis."""
    gain, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    own = kernels.implementation("tokens", inputs.device) if inputs.is_cuda else None
    if own is None:
        lined = (len(values),) + (1,) * (values.ndim - 2) + (-1,)
        total = functional.layer_norm(values + linear(weights, branch, inputs), values.shape[-1:])
        return torch.addcmul(shift.view(lined), total, gain.view(lined))
    products, bias = _product(inputs, weights[f"{branch}.weight"]), weights[f"{branch}.bias"]
    outputs: Tensor = own.Normed.apply(values.flatten(1, -2), products.flatten(1, -2), bias, gain, shift)
    return outputs.view_as(values)


def prelu(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """Apply PReLU with one slope per member."""
    slope = weights[f"{name}.weight"].view(-1, *(1,) * (inputs.ndim - 1))
    return torch.where(inputs > 0, inputs, inputs * slope)


def narrow_convolution(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """Apply a 3×3 convolution with padding 1 to images with few channels."""
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


def attended(mixed: Tensor) -> Tensor:
    """Map queries, keys and values `(sequence, token, 3, head, depth)` to outputs `(sequence, token, head, depth)`."""
    own = kernels.implementation("attention", mixed.device) if mixed.is_cuda else None
    if own is not None and own.takes(mixed.shape[-1], mixed.dtype):
        outputs: Tensor = own.Attention.apply(mixed)
        return outputs
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
