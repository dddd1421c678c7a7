"""Vectors and strengths of a low-rank embedding for many members, with one pass over memory forward and one backward.

Vectors `(member, …, pixel)` are slices of the members' parameters, contiguous except along the member axis.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 1024
"""Number of elements per Triton program."""
EPSILON = tl.constexpr(1e-12)
"""Lower bound on norms in denominators, as in `torch.nn.functional.normalize`."""
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


@triton.jit
def _positions(count, length, VECTORS: tl.constexpr, WIDE: tl.constexpr):
    """Return a tile's vector indices, the offsets of their components, and a mask of those that exist."""
    row, column = tl.program_id(0).to(tl.int64) * VECTORS + tl.arange(0, VECTORS), tl.arange(0, WIDE)
    return row, row[:, None] * length + column[None, :], (row < count)[:, None] & (column < length)[None, :]


@triton.jit
def _scaled(
    v, s, y, spread, count, length, v_member, s_member,
    SCALED: tl.constexpr, UNIT: tl.constexpr, VECTORS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute unit-norm vectors (times their strengths if SCALED), and the tile's sum of variances over pixels of the
    unit vectors (if UNIT) or the raw ones."""
    member = tl.program_id(1).to(tl.int64)
    row, place, here = _positions(count, length, VECTORS, WIDE)
    value = tl.load(v + member * v_member + place, mask=here, other=0.0)
    norm = tl.maximum(tl.sqrt(tl.sum(value * value, axis=1)), EPSILON)
    unit = value / norm[:, None]
    chosen = unit if UNIT else value
    away = tl.where(here, chosen - (tl.sum(chosen, axis=1) / length)[:, None], 0.0)
    tile = member * tl.num_programs(0) + tl.program_id(0)
    tl.store(spread + tile, tl.sum(tl.sum(away * away, axis=1), axis=0) / length)
    if SCALED:
        unit *= tl.load(s + member * s_member + row, mask=row < count, other=0.0)[:, None]
    tl.store(y + member * count * length + place, unit, mask=here)


@triton.jit
def _scaled_back(
    v, s, z, pull, slopes, strengths, count, length, v_member, s_member,
    SCALED: tl.constexpr, UNIT: tl.constexpr, VECTORS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute gradients of vectors and strengths from those of the outputs (`z`) and the sum of variances (`pull`)."""
    member = tl.program_id(1).to(tl.int64)
    row, place, here = _positions(count, length, VECTORS, WIDE)
    value = tl.load(v + member * v_member + place, mask=here, other=0.0)
    slope = tl.load(z + member * count * length + place, mask=here, other=0.0)
    size = tl.sqrt(tl.sum(value * value, axis=1))
    norm = tl.maximum(size, EPSILON)
    unit = value / norm[:, None]
    if SCALED:
        tl.store(strengths + member * count + row, tl.sum(slope * unit, axis=1), mask=row < count)
        slope *= tl.load(s + member * s_member + row, mask=row < count, other=0.0)[:, None]
    chosen = unit if UNIT else value
    away = tl.where(here, chosen - (tl.sum(chosen, axis=1) / length)[:, None], 0.0)
    spreading = away * (tl.load(pull + member) * 2 / length)
    if UNIT:
        slope += spreading
    along = tl.where(size < EPSILON, 0.0, tl.sum(slope * unit, axis=1))  # the norm is constant below its bound
    gradient = (slope - unit * along[:, None]) / norm[:, None]
    if not UNIT:
        gradient += spreading
    tl.store(slopes + member * count * length + place, gradient, mask=here)


@triton.jit
def _entropy(s, sums, count, length, s_member, VECTORS: tl.constexpr, WIDE: tl.constexpr):
    """Compute the tile's sum of −Σ p ln p, where p are a value's squared strengths, normalised to sum to 1."""
    member = tl.program_id(1).to(tl.int64)
    _, place, here = _positions(count, length, VECTORS, WIDE)
    value = tl.load(s + member * s_member + place, mask=here, other=0.0)
    square = value * value
    share = square / tl.maximum(tl.sum(square, axis=1), EPSILON)[:, None]
    lost = share * tl.log(tl.maximum(share, TINY))  # 0 ln 0 = 0
    tile = member * tl.num_programs(0) + tl.program_id(0)
    tl.store(sums + tile, -tl.sum(tl.sum(lost, axis=1), axis=0))


@triton.jit
def _entropy_back(s, pull, slopes, count, length, s_member, VECTORS: tl.constexpr, WIDE: tl.constexpr):
    """Compute the gradient of the strengths from that of a member's sum (`pull`)."""
    member = tl.program_id(1).to(tl.int64)
    _, place, here = _positions(count, length, VECTORS, WIDE)
    value = tl.load(s + member * s_member + place, mask=here, other=0.0)
    square = value * value
    total = tl.sum(square, axis=1)
    norm = tl.maximum(total, EPSILON)
    share = square / norm[:, None]
    slope = -(tl.log(tl.maximum(share, TINY)) + tl.where(share < TINY, 0.0, 1.0))
    along = tl.where(total < EPSILON, 0.0, tl.sum(slope * share, axis=1))
    gradient = 2 * value * (slope - along[:, None]) / norm[:, None]
    tl.store(slopes + member * count * length + place, gradient * tl.load(pull + member), mask=here)


def _tiles(vectors: Tensor) -> tuple[tuple[int, int], tuple[int, int], dict[str, int]]:
    """Return a kernel's launch grid over vectors, their count and length, and the shape of a tile."""
    length = vectors.shape[-1]
    count, wide = vectors[0].numel() // length, triton.next_power_of_2(length)
    tall = max(1, TILE // wide)
    return (triton.cdiv(count, tall), len(vectors)), (count, length), {"VECTORS": tall, "WIDE": wide}


def _packed(parameters: Tensor) -> Tensor:
    """Make every member's slice contiguous."""
    return parameters if parameters[0].is_contiguous() else parameters.contiguous()


class ScaledUnits(torch.autograd.Function):
    """Scale vectors to unit norm, then by their strengths (unless None); also return each member's sum of variances
    over pixels of the unit vectors or the raw ones."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, strengths: Tensor | None, unit: bool) -> tuple[Tensor, Tensor]:
        v, s = _packed(vectors), None if strengths is None else _packed(strengths)
        grid, sizes, tile = _tiles(v)
        y = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        spread = torch.empty(grid[::-1], dtype=torch.float32, device=v.device)
        scale = v if s is None else s
        _scaled[grid](
            v, scale, y, spread, *sizes, v.stride(0), scale.stride(0), SCALED=s is not None, UNIT=unit, **tile
        )
        ctx.save_for_backward(v, s)
        ctx.unit = unit
        return y, spread.sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        v, s = ctx.saved_tensors
        z, pull = (gradient.contiguous() for gradient in gradients)
        grid, sizes, tile = _tiles(v)
        slopes = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        strengths = None if s is None else torch.empty(s.shape, dtype=s.dtype, device=s.device)
        scale, scales = (v, slopes) if s is None else (s, strengths)
        _scaled_back[grid](
            v, scale, z, pull, slopes, scales, *sizes, v.stride(0), scale.stride(0),
            SCALED=s is not None, UNIT=ctx.unit, **tile,
        )  # fmt: skip
        return slopes, strengths, None


class Entropies(torch.autograd.Function):
    """Map strengths `(member, value, rank)` to each member's sum of entropies over values."""

    @staticmethod
    def forward(ctx: Any, strengths: Tensor) -> Tensor:
        s = _packed(strengths)
        grid, sizes, tile = _tiles(s)
        sums = torch.empty(grid[::-1], dtype=torch.float32, device=s.device)
        _entropy[grid](s, sums, *sizes, s.stride(0), **tile)
        ctx.save_for_backward(s)
        return sums.sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        grid, sizes, tile = _tiles(s)
        slopes = torch.empty(s.shape, dtype=s.dtype, device=s.device)
        _entropy_back[grid](s, gradients[0].contiguous(), slopes, *sizes, s.stride(0), **tile)
        return slopes
