"""Convolutions with few channels on the compiled kernels."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recombine.native.build import library
from recombine.native.chunks import by_chunks, chunks_of


class NarrowConvolution(torch.autograd.Function):
    """Images `(batch, in, y, x)`, weights `(out, in, 3, 3)` and biases to images of the same size, in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        x, w, bias = (_packed(part) for part in (x, w, bias))
        if w.shape[1:] != (x.shape[1], 3, 3) or bias.shape != w.shape[:1]:
            raise ValueError(f"weights of {tuple(w.shape)} and {tuple(bias.shape)} for {tuple(x.shape)}")
        y = x.new_empty(len(x), len(w), *x.shape[2:])
        by_chunks(len(x), lambda first, last, _: _call("narrow", x, w, bias, y, *_sizes(x, w), first, last))
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        z = _packed(gradients[0])
        below = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        sums = x.new_empty(len(chunks_of(len(x))), w.numel() + len(w))
        by_chunks(
            len(x),
            lambda first, last, chunk: _call(
                "narrow_back", x, w, z, below, sums[chunk], *_sizes(x, w), first, last
            ),
        )  # fmt: skip
        weight, bias = sums.sum(dim=0).split([w.numel(), len(w)])
        return below, weight.view(w.shape), bias


def _packed(part: Tensor) -> Tensor:
    if part.dtype != torch.float32 or part.device.type != "cpu":
        raise ValueError(f"{part.dtype} on {part.device}; wanted: float32 on cpu")
    return part.contiguous()


def _sizes(x: Tensor, w: Tensor) -> tuple[int, int, int, int]:
    return x.shape[1], len(w), x.shape[2], x.shape[3]


def _call(name: str, *arguments: Tensor | int | None) -> None:
    values = [
        ctypes.c_long(given) if isinstance(given, int) else ctypes.c_void_p(None if given is None else given.data_ptr())
        for given in arguments
    ]
    getattr(library(), f"recombine_{name}")(*values)
