"""The last convolution of many members: kernel 3, padding 1, to one channel; memory-bound, so every array is read once.

Activations `(member, batch, y, x, channel)`, images `(member, batch, y, x)`, weights `(member, place, channel)`, nine
places. Image place o sees input o + k − 1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
SPLITS = 8
PLACES = 9


@triton.jit
def _drawn(x, w, bias, y, pixels, height, width, C: tl.constexpr, ROWS: tl.constexpr):
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < pixels
    place = row % (height * width)
    oy, ox = place // width, place % width
    channels = tl.arange(0, C)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            iy, ix = oy + ky - 1, ox + kx - 1
            here = inside & (iy >= 0) & (iy < height) & (ix >= 0) & (ix < width)
            source = member * pixels + row + (ky - 1) * width + kx - 1
            left = tl.load(x + source[:, None] * C + channels[None, :], mask=here[:, None], other=0.0).to(tl.float32)
            right = tl.load(w + (member * 9 + ky * 3 + kx) * C + channels).to(tl.float32)
            total += tl.sum(left * right[None, :], axis=1)
    total += tl.load(bias + member).to(tl.float32)
    tl.store(y + member * pixels + row, total, mask=inside)


@triton.jit
def _spread(z, w, gate, x, pixels, height, width, C: tl.constexpr, ROWS: tl.constexpr):
    """Gradient before the ReLU of the layer below."""
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < pixels
    place = row % (height * width)
    iy, ix = place // width, place % width
    channels = tl.arange(0, C)
    total = tl.zeros((ROWS, C), dtype=tl.float32)
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            oy, ox = iy + 1 - ky, ix + 1 - kx
            here = inside & (oy >= 0) & (oy < height) & (ox >= 0) & (ox < width)
            left = tl.load(z + member * pixels + row + (1 - ky) * width + 1 - kx, mask=here, other=0.0)
            right = tl.load(w + (member * 9 + ky * 3 + kx) * C + channels).to(tl.float32)
            total += left[:, None] * right[None, :]
    at = (member * pixels + row)[:, None] * C + channels[None, :]
    total = tl.where(tl.load(gate + at, mask=inside[:, None], other=0.0) > 0, total, 0.0)
    tl.store(x + at, total.to(x.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _weights(
    x, z, part, pixels, height, width, chunk, C: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """A part of Σ over pixels of gradient at each of nine (padded to sixteen) places ⊗ input."""
    split, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    places, channels = tl.arange(0, 16), tl.arange(0, C)
    ky, kx = places // 3, places % 3
    total = tl.zeros((16, C), dtype=tl.float32)
    for start in range(split * chunk, tl.minimum((split + 1) * chunk, pixels), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < tl.minimum((split + 1) * chunk, pixels)
        place = row % (height * width)
        iy, ix = place // width, place % width
        oy, ox = iy[None, :] + 1 - ky[:, None], ix[None, :] + 1 - kx[:, None]
        here = inside[None, :] & (oy >= 0) & (oy < height) & (ox >= 0) & (ox < width) & (places < 9)[:, None]
        at = row[None, :] + (1 - ky[:, None]) * width + 1 - kx[:, None]
        left = tl.load(z + member * pixels + at, mask=here, other=0.0)
        source = (member * pixels + row)[:, None] * C + channels[None, :]
        right = tl.load(x + source, mask=inside[:, None], other=0.0)
        total = tl.dot(left.to(right.dtype), right, total, input_precision=PRECISION)
    at = ((member * tl.num_programs(0) + split) * 16 + places)[:, None] * C + channels[None, :]
    tl.store(part + at, total)


def _shape(x: Tensor) -> tuple[int, int, int, int, int]:
    members, batch, height, width, channels = x.shape
    return members, batch * height * width, height, width, channels


def forward(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """Images in float32."""
    members, pixels, height, width, channels = _shape(x)
    y = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    _drawn[(triton.cdiv(pixels, ROWS), members)](x, w, bias, y, pixels, height, width, C=channels, ROWS=ROWS)
    return y


def input_gradient(z: Tensor, w: Tensor, gate: Tensor) -> Tensor:
    """Gradient before the ReLU of the layer below; `z` is the images' gradient in float32."""
    members, pixels, height, width, channels = _shape(gate)
    x = torch.empty_like(gate)
    _spread[(triton.cdiv(pixels, ROWS), members)](z, w, gate, x, pixels, height, width, C=channels, ROWS=ROWS)
    return x


def weight_gradient(x: Tensor, z: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Gradients of weight `(member, place, channel)` and bias, in float32."""
    members, pixels, height, width, channels = _shape(x)
    chunk = triton.cdiv(triton.cdiv(pixels, SPLITS), ROWS) * ROWS
    part = torch.empty(members, SPLITS, 16, channels, dtype=torch.float32, device=x.device)
    _weights[(SPLITS, members)](
        x, z, part, pixels, height, width, chunk, C=channels, ROWS=ROWS, PRECISION=precision
    )  # fmt: skip
    return part.sum(dim=1)[:, :PLACES], z.flatten(1).sum(dim=1)
