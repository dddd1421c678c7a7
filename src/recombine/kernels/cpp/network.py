"""The whole transposed-convolution decoder, forward and backward, on the compiled kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recombine.kernels.cpp.chunks import by_chunks, chunks_of, return_buffer, take_buffer
from recombine.kernels.cpp.plan import Plan
from recombine.kernels.shapes import NetworkShape, Shapes


def takes(shapes: Shapes, batch: int, dtype: torch.dtype) -> bool:
    """Whether the kernels take such a network: any number of channels, as padding to whole blocks pays, in float32."""
    return dtype == torch.float32 and batch > 0 and NetworkShape.of(shapes).channels > 0


class TransposedConvolutions(torch.autograd.Function):
    """Codes `(batch, code)` to images `(batch, y, x)`; gradients of the parameters alone, and once.

    `weights` has the parameters one after another, whose shapes are `shapes`, and perhaps more; `dtype` is float32.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, codes: Tensor, shapes: Shapes, dtype: torch.dtype) -> Tensor:
        plan, weights, codes, batch = Plan.of(shapes), weights.contiguous(), codes.contiguous(), len(codes)
        fits = weights.ndim == 1 and len(weights) >= plan.parameters and codes.shape == (batch, plan.code)
        if not fits or {dtype, weights.dtype, codes.dtype} != {torch.float32}:  # kernels would read past them
            raise ValueError(
                f"weights of {tuple(weights.shape)} and codes of {tuple(codes.shape)} must fit, in float32"
            )
        sizes = plan.sizes(batch)
        prepared, stages = take_buffer(sizes.prepared), take_buffer(sizes.stages)
        images = codes.new_empty(batch, sizes.image, sizes.image)
        padded = plan.padded(weights)
        plan.call("prepare", padded, prepared)
        by_chunks(
            batch,
            lambda first, last, _: plan.call(
                "forward", padded, prepared, codes, stages, images, batch, first, last
            ),
        )  # fmt: skip
        ctx.save_for_backward(codes)
        ctx.plan, ctx.sizes, ctx.buffers, ctx.size = plan, sizes, (prepared, stages), len(weights)
        return images

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.buffers is None:
            raise RuntimeError("a network on compiled kernels goes backward once: their memory is used again")
        (codes,), gradient, plan = ctx.saved_tensors, gradients[0].contiguous(), ctx.plan
        (prepared, stages), batch = ctx.buffers, len(codes)
        chunks = len(chunks_of(batch))
        below = take_buffer(batch * (plan.first + 2) ** 2 * plan.channels)
        sums = take_buffer(chunks * ctx.sizes.sums)
        by_chunks(
            batch,
            lambda first, last, chunk: plan.call(
                "backward", prepared, stages, gradient, below, sums[chunk * ctx.sizes.sums :], batch, first, last
            ),
        )
        padded = gradient.new_empty(ctx.sizes.parameters)
        plan.call("finish", codes, below, gradient, sums, chunks, padded, batch)
        ctx.buffers = None
        for buffer in (prepared, stages, below, sums):
            return_buffer(buffer)
        return plan.cropped(padded, ctx.size), None, None, None
