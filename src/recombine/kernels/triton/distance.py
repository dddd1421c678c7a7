"""Mean squared and absolute errors of many members, with one pass over memory forward and one backward."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _means(x, goal, square, absolute, pixels, BLOCK: tl.constexpr):
    """Compute the mean squared and mean absolute error of one example."""
    row = tl.program_id(0).to(tl.int64)
    squares, sizes = tl.zeros((BLOCK,), dtype=tl.float32), tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pixels, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside, at = column < pixels, row * pixels + column
        away = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - tl.load(goal + at, mask=inside, other=0.0)
        squares += away * away
        sizes += tl.abs(away)
    tl.store(square + row, tl.sum(squares, axis=0) / pixels)
    tl.store(absolute + row, tl.sum(sizes, axis=0) / pixels)


@triton.jit
def _means_back(x, goal, square, absolute, slopes, pixels, BLOCK: tl.constexpr):
    """Compute the gradient for a block of one example's pixels from the gradients of the two means."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = column < pixels, row * pixels + column
    away = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - tl.load(goal + at, mask=inside, other=0.0)
    sign = tl.where(away > 0, 1.0, tl.where(away < 0, -1.0, 0.0))
    slope = (2 * away * tl.load(square + row) + sign * tl.load(absolute + row)) / pixels
    tl.store(slopes + at, slope.to(slopes.dtype.element_ty), mask=inside)


class PixelMeans(torch.autograd.Function):
    """Map outputs and targets `(member, batch, …)` to mean squared and mean absolute errors `(member, batch)`."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x, goal = outputs.contiguous(), targets.contiguous()
        square, absolute = torch.empty(2, *x.shape[:2], dtype=torch.float32, device=x.device).unbind()
        _means[(square.numel(),)](x, goal, square, absolute, x[0, 0].numel(), BLOCK=BLOCK)
        ctx.save_for_backward(x, goal)
        return square, absolute

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, goal = ctx.saved_tensors
        square, absolute = (gradient.contiguous() for gradient in gradients)
        slopes, pixels = torch.empty_like(x), x[0, 0].numel()
        grid = square.numel(), triton.cdiv(pixels, BLOCK)
        _means_back[grid](x, goal, square, absolute, slopes, pixels, BLOCK=BLOCK)
        return slopes, None
