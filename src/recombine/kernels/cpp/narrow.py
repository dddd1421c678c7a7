"""Convolutions with few channels, using the compiled kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recombine.kernels.cpp.build import call
from recombine.kernels.cpp.chunks import by_chunks, chunks_of


class NarrowConvolution(torch.autograd.Function):
    """Convolve images `(batch, in, y, x)` with weights `(out, in, 3, 3)` and a bias, with padding 1, in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        x, w, bias = (_packed(part) for part in (x, w, bias))
        if w.shape[1:] != (x.shape[1], 3, 3) or bias.shape != w.shape[:1]:
            raise ValueError(f"weights {tuple(w.shape)} and bias {tuple(bias.shape)} do not fit {tuple(x.shape)}")
        y = x.new_empty(len(x), len(w), *x.shape[2:])
        addresses = [part.data_ptr() for part in (x, w, bias, y)]
        by_chunks(len(x), partial(call, "narrow", *addresses, x.shape[1], len(w), *x.shape[2:]))
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        z, below = _packed(gradients[0]), torch.empty_like(x) if ctx.needs_input_grad[0] else None
        sums = x.new_empty(len(chunks_of(len(x))), w.numel() + len(w))
        addresses = [None if part is None else part.data_ptr() for part in (x, w, z, below, sums)]
        by_chunks(len(x), partial(call, "narrow_back", *addresses, x.shape[1], len(w), *x.shape[2:]))
        weight, bias = sums.sum(dim=0).split([w.numel(), len(w)])
        return below, weight.view(w.shape), bias


def _packed(part: Tensor) -> Tensor:
    if part.dtype != torch.float32 or part.device.type != "cpu":
        raise ValueError(f"tensors must be float32 on cpu, got {part.dtype} on {part.device}")
    return part.contiguous()
