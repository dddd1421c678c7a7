"""What follows the matrix products of many members' layers, with one pass over memory forward and one backward.

Values are `(member, row, width)`: a row is an example or a pixel of one. Parameters are `(member, width)`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Number of elements that a Triton program holds at a time."""
PROGRAMS = 1024
"""Number of Triton programs that add up gradients of parameters, over all members."""
EPSILON = tl.constexpr(1e-5)
"""Added to variances, as in `torch.nn.LayerNorm`."""


@triton.jit
def _tile(number, member, rows, width, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Return the offsets of a tile's elements and a mask of those that exist."""
    row, column = number * TALL + tl.arange(0, TALL), tl.arange(0, WIDE)
    here = (row < rows)[:, None] & (column < width)[None, :]
    return (member * rows + row)[:, None] * width + column[None, :], here


@triton.jit
def _line(parameters, member, width, WIDE: tl.constexpr):
    """Return a member's parameters, one for each column."""
    column = tl.arange(0, WIDE)
    return tl.load(parameters + member * width + column, mask=column < width, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _store_sums(part, sums, width, WIDE: tl.constexpr):
    """Store a program's sums over its rows."""
    program, column = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0), tl.arange(0, WIDE)
    tl.store(part + program * width + column, sums, mask=column < width)


@triton.jit
def _activated(
    z, bias, slope, h, rows, width, PRELU: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute the ReLU or PReLU of products plus a bias; NaN stays NaN."""
    member = tl.program_id(1).to(tl.int64)
    at, here = _tile(tl.program_id(0), member, rows, width, TALL, WIDE)
    value = tl.load(z + at, mask=here, other=0.0).to(tl.float32) + _line(bias, member, width, WIDE)
    below = value * tl.load(slope + member).to(tl.float32) if PRELU else tl.zeros_like(value)
    tl.store(h + at, tl.where(value <= 0, below, value).to(h.dtype.element_ty), mask=here)


@triton.jit
def _activated_back(
    z, bias, slope, up, below, part, slope_part, rows, width,
    PRELU: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of products, and a program's sums for those of the bias and of the slope.

    A ReLU's own values say where it is open, so that these are given instead of products.
    """
    member = tl.program_id(1).to(tl.int64)
    added, factor = _line(bias, member, width, WIDE) if PRELU else 0.0, 0.0
    if PRELU:
        factor = tl.load(slope + member).to(tl.float32)
    sums, slopes = tl.zeros((WIDE,), dtype=tl.float32), tl.zeros((WIDE,), dtype=tl.float32)
    for number in range(tl.program_id(0), tl.cdiv(rows, TALL), tl.num_programs(0)):
        at, here = _tile(number, member, rows, width, TALL, WIDE)
        value = tl.load(z + at, mask=here, other=0.0).to(tl.float32) + added
        gradient = tl.load(up + at, mask=here, other=0.0).to(tl.float32)
        if PRELU:
            slopes += tl.sum(tl.where(value <= 0, gradient * value, 0.0), axis=0)
        gradient = tl.where(value <= 0, gradient * factor, gradient)
        sums += tl.sum(gradient, axis=0)
        tl.store(below + at, gradient.to(below.dtype.element_ty), mask=here)
    _store_sums(part, sums, width, WIDE)
    if PRELU:
        tl.store(slope_part + member * tl.num_programs(0) + tl.program_id(0), tl.sum(slopes, axis=0))


@triton.jit
def _normed(
    x, z, bias, gain, shift, total, y, rows, width, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute the sum of values, products and a bias, and its layer norm."""
    member = tl.program_id(1).to(tl.int64)
    at, here = _tile(tl.program_id(0), member, rows, width, TALL, WIDE)
    value = tl.load(x + at, mask=here, other=0.0).to(tl.float32) + tl.load(z + at, mask=here, other=0.0).to(tl.float32)
    rounded = (value + _line(bias, member, width, WIDE)).to(total.dtype.element_ty)
    tl.store(total + at, rounded, mask=here)
    value = tl.where(here, rounded.to(tl.float32), 0.0)
    away = tl.where(here, value - (tl.sum(value, axis=1) / width)[:, None], 0.0)
    unit = away * tl.rsqrt(tl.sum(away * away, axis=1) / width + EPSILON)[:, None]
    normed = unit * _line(gain, member, width, WIDE) + _line(shift, member, width, WIDE)
    tl.store(y + at, normed.to(y.dtype.element_ty), mask=here)


@triton.jit
def _normed_back(
    total, gain, up, below, part, gain_part, shift_part, rows, width, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the sum, and a program's sums for those of bias, gain and shift."""
    member = tl.program_id(1).to(tl.int64)
    factor, sums = _line(gain, member, width, WIDE), tl.zeros((WIDE,), dtype=tl.float32)
    gains, shifts = tl.zeros((WIDE,), dtype=tl.float32), tl.zeros((WIDE,), dtype=tl.float32)
    for number in range(tl.program_id(0), tl.cdiv(rows, TALL), tl.num_programs(0)):
        at, here = _tile(number, member, rows, width, TALL, WIDE)
        value = tl.load(total + at, mask=here, other=0.0).to(tl.float32)
        away = tl.where(here, value - (tl.sum(value, axis=1) / width)[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(away * away, axis=1) / width + EPSILON)[:, None]
        unit, gradient = away * scale, tl.load(up + at, mask=here, other=0.0).to(tl.float32)
        gains += tl.sum(gradient * unit, axis=0)
        shifts += tl.sum(gradient, axis=0)
        gradient *= factor
        mean, along = tl.sum(gradient, axis=1) / width, tl.sum(gradient * unit, axis=1) / width
        gradient = tl.where(here, (gradient - mean[:, None] - unit * along[:, None]) * scale, 0.0)
        sums += tl.sum(gradient, axis=0)
        tl.store(below + at, gradient.to(below.dtype.element_ty), mask=here)
    _store_sums(part, sums, width, WIDE)
    _store_sums(gain_part, gains, width, WIDE)
    _store_sums(shift_part, shifts, width, WIDE)


class Activated(torch.autograd.Function):
    """Map products and a bias to ReLUs or, with slopes `(member, 1)`, to PReLUs."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor, slope: Tensor | None) -> Tensor:
        z, bias, slope = z.contiguous(), bias.contiguous(), None if slope is None else slope.contiguous()
        h, (tiles, _, shape) = torch.empty_like(z), _plan(z)
        _activated[(tiles, len(z))](z, bias, bias if slope is None else slope, h, PRELU=slope is not None, **shape)
        ctx.save_for_backward(h if slope is None else z, bias, slope)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, bias, slope = ctx.saved_tensors
        below, (_, programs, shape) = torch.empty_like(z), _plan(z)
        part, slope_part = _parts(z, programs, z.shape[2]), _parts(z, programs, 1)
        _activated_back[(programs, len(z))](
            z, bias, bias if slope is None else slope, gradients[0].contiguous(), below, part, slope_part,
            PRELU=slope is not None, **shape,
        )  # fmt: skip
        slopes = None if slope is None else slope_part.sum(dim=1).to(slope.dtype)
        return below, part.sum(dim=1).to(bias.dtype), slopes


class Normed(torch.autograd.Function):
    """Map values, products and a bias to the layer norm of their sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, bias: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        x, z = x.contiguous(), z.contiguous()
        bias, gain, shift = bias.contiguous(), gain.contiguous(), shift.contiguous()
        total, y, (tiles, _, shape) = torch.empty_like(x), torch.empty_like(x), _plan(x)
        _normed[(tiles, len(x))](x, z, bias, gain, shift, total, y, **shape)
        ctx.save_for_backward(total, gain)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        total, gain = ctx.saved_tensors
        below, (_, programs, shape) = torch.empty_like(total), _plan(total)
        parts = [_parts(total, programs, total.shape[2]) for _ in range(3)]
        _normed_back[(programs, len(total))](total, gain, gradients[0].contiguous(), below, *parts, **shape)
        return below, below, *(part.sum(dim=1).to(gain.dtype) for part in parts)


def _plan(values: Tensor) -> tuple[int, int, dict[str, int]]:
    """Return the number of tiles of a member, of programs that add up its gradients, and the kernels' shapes."""
    members, rows, width = values.shape
    wide = triton.next_power_of_2(width)
    tall = max(1, TILE // wide)
    tiles = triton.cdiv(rows, tall)
    programs = min(tiles, triton.cdiv(PROGRAMS, members))
    return tiles, programs, {"rows": rows, "width": width, "TALL": tall, "WIDE": wide}


def _parts(values: Tensor, programs: int, width: int) -> Tensor:
    """Return memory for the programs' sums, which are added in order so that results are reproducible."""
    return torch.empty(len(values), programs, width, dtype=torch.float32, device=values.device)
