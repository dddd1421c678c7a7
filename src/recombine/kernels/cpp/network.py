"""Forward and backward pass of the transposed-convolution decoder with the compiled kernels.

Kernels work on whole blocks of channels. Other widths are padded with channels whose weights and biases are zero. These
stay zero after every ReLU and affect nothing, and their gradients are discarded.
"""

from __future__ import annotations

import math
from ctypes import c_long
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recombine.kernels.cpp.build import call
from recombine.kernels.cpp.chunks import by_chunks, chunks_of, return_buffer, take_buffer
from recombine.kernels.shapes import NetworkShape, Shapes

BLOCK = 16
"""Number of channels that kernels compute at a time."""


class _Sizes(NamedTuple):
    """Numbers of elements in parameters, prepared weights, a batch's stages and a chunk's sums; rows per image."""

    parameters: int
    prepared: int
    stages: int
    sums: int
    image: int


class _Plan(NetworkShape):
    """A transposed-convolution network, padded to whole blocks of channels."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__(shapes)
        self.padded_channels = -(-self.channels // BLOCK) * BLOCK
        self.parameters = sum(self.sizes)
        self.pads = self.padded_channels != self.channels
        numbers = (self.code, self.first, self.padded_channels, len(self.doubles), *self.doubles)
        self.numbers = (c_long * len(numbers))(*numbers)  # first argument of every kernel

    def call(self, name: str, *arguments: Tensor | int) -> None:
        values = (part.data_ptr() if isinstance(part, Tensor) else part for part in arguments)
        call(name, self.numbers, *values)

    def memory(self, batch: int) -> _Sizes:
        """Return how much memory a batch needs, including padding."""
        numbers = (c_long * len(_Sizes._fields))()
        call("sizes", self.numbers, batch, numbers)
        return _Sizes(*numbers)

    def padded(self, weights: Tensor) -> Tensor:
        """Return the parameters padded with zeros, in the layout that kernels read."""
        if not self.pads:
            return weights
        positions = self._positions
        return weights.new_zeros(self.memory(1).parameters).index_copy_(0, positions, weights[: len(positions)])

    def cropped(self, gradient: Tensor, size: int) -> Tensor:
        """Remove the padding from the gradient, and append zeros up to length `size`."""
        own = gradient.index_select(0, self._positions) if self.pads else gradient[: self.parameters]
        return own if len(own) == size else torch.cat([own, own.new_zeros(size - len(own))])

    @cached_property
    def _positions(self) -> Tensor:
        """Index of each parameter among the padded parameters."""
        parts, start = [], 0
        for own, padded in zip(self.shapes, self.with_channels(self.padded_channels), strict=True):
            numbers = torch.arange(start, start + math.prod(padded)).view(padded)
            parts.append(numbers[tuple(slice(length) for length in own)].flatten())
            start += math.prod(padded)
        return torch.cat(parts)


def takes(shapes: Shapes, batch: int, dtype: torch.dtype) -> bool:
    """Return whether kernels support a network: any width, since padding still pays off, but grey images only."""
    return dtype == torch.float32 and batch > 0 and NetworkShape.of(shapes).colours == 1


def images(weights: Tensor, codes: Tensor, shapes: Shapes, dtype: torch.dtype) -> Tensor:
    """Decode codes `(batch, code)` to images `(batch, 1, y, x)`.

    `weights` are the flattened parameters with these `shapes`, possibly followed by others; `dtype` is float32.
    """
    outputs: Tensor = TransposedConvolutions.apply(weights, codes, shapes, dtype)
    return outputs


class TransposedConvolutions(torch.autograd.Function):
    """What `images` returns. Only parameters have gradients, and backward runs once."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, codes: Tensor, shapes: Shapes, dtype: torch.dtype) -> Tensor:
        plan, weights, codes, batch = _Plan.of(shapes), weights.contiguous(), codes.contiguous(), len(codes)
        fits = weights.ndim == 1 and len(weights) >= plan.parameters and codes.shape == (batch, plan.code)
        fits &= plan.colours == 1
        if not fits or {dtype, weights.dtype, codes.dtype} != {torch.float32}:  # else kernels read out of bounds
            raise ValueError(
                f"weights and codes must fit the network, in float32, got {tuple(weights.shape)}, {tuple(codes.shape)}"
            )
        sizes = plan.memory(batch)
        prepared, stages = take_buffer(sizes.prepared), take_buffer(sizes.stages)
        images = codes.new_empty(batch, 1, sizes.image, sizes.image)
        padded = plan.padded(weights)
        plan.call("prepare", padded, prepared)
        by_chunks(batch, partial(plan.call, "forward", padded, prepared, codes, stages, images, batch))
        ctx.save_for_backward(codes)
        ctx.plan, ctx.sizes, ctx.buffers, ctx.size = plan, sizes, (prepared, stages), len(weights)
        return images

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.buffers is None:
            raise RuntimeError("compiled kernels reuse their memory: backward can be called only once")
        (codes,), gradient, plan = ctx.saved_tensors, gradients[0].contiguous(), ctx.plan
        (prepared, stages), batch = ctx.buffers, len(codes)
        chunks = len(chunks_of(batch))
        below = take_buffer(batch * (plan.first + 2) ** 2 * plan.padded_channels)
        sums = take_buffer(chunks * ctx.sizes.sums)
        by_chunks(batch, partial(plan.call, "backward", prepared, stages, gradient, below, sums, batch))
        padded = gradient.new_empty(ctx.sizes.parameters)
        plan.call("finish", codes, below, gradient, sums, chunks, padded, batch)
        ctx.buffers = None
        for buffer in (prepared, stages, below, sums):
            return_buffer(buffer)
        return plan.cropped(padded, ctx.size), None, None, None
