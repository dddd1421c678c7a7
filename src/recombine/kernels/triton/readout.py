"""The last convolution of many members, with kernel 3 and padding 1, to one channel. Arrays are read only once.

Activations `(member, batch, y, x, channel)` have a border of zeros (see `convolution`); images `(member, batch, y, x)`
have none. Weights are `(member, tap, channel)` with nine taps. Output pixel o depends on inputs o + k − 1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from recombine.kernels.triton.convolution import clear_border, edge_of, inner, precision

TILE = 2048
"""Number of pixels times channels in a tile."""
SPLITS = 8
"""Number of partial sums of a weight gradient, which are added in order so that results are reproducible."""


@triton.jit
def _positions(row, height, width):
    """Return the row and column of each pixel, and its index in a bordered image."""
    image, place = row // (height * width), row % (height * width)
    y, x = place // width, place % width
    return y, x, (image * (height + 2) + y + 1) * (width + 2) + x + 1


@triton.jit
def _readout(x, w, bias, y, pixels, height, width, x_member, C: tl.constexpr, ROWS: tl.constexpr):
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < pixels
    _, _, at = _positions(row, height, width)
    channels = tl.arange(0, C)
    source = x + member * x_member + at[:, None] * C + channels[None, :]
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            away = (ky - 1) * (width + 2) + kx - 1
            left = tl.load(source + away * C, mask=inside[:, None], other=0.0).to(tl.float32)
            right = tl.load(w + (member * 9 + ky * 3 + kx) * C + channels).to(tl.float32)
            total += tl.sum(left * right[None, :], axis=1)
    total += tl.load(bias + member).to(tl.float32)
    tl.store(y + member * pixels + row, total, mask=inside)


@triton.jit
def _spread(
    z, w, gate, x, sums, images, height, width, x_member, C: tl.constexpr, ROWS: tl.constexpr, EDGE: tl.constexpr
):  # fmt: skip
    """Compute the gradient before the previous layer's ReLU, and this tile's sums by channel."""
    member, pixels = tl.program_id(1).to(tl.int64), images * height * width
    x += member * x_member
    clear_border(x, tl.program_id(0), tl.num_programs(0), images, height, width, C, EDGE)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < pixels
    iy, ix, at = _positions(row, height, width)
    channels = tl.arange(0, C)
    total = tl.zeros((ROWS, C), dtype=tl.float32)
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            oy, ox = iy + 1 - ky, ix + 1 - kx
            here = inside & (oy >= 0) & (oy < height) & (ox >= 0) & (ox < width)
            left = tl.load(z + member * pixels + row + (1 - ky) * width + 1 - kx, mask=here, other=0.0)
            right = tl.load(w + (member * 9 + ky * 3 + kx) * C + channels).to(tl.float32)
            total += left[:, None] * right[None, :]
    target = at[:, None] * C + channels[None, :]
    open_ = tl.load(gate + member * x_member + target, mask=inside[:, None], other=0.0) > 0
    total = tl.where(open_, total, 0.0)
    tl.store(sums + (member * tl.num_programs(0) + tl.program_id(0)) * C + channels, tl.sum(total, axis=0))
    tl.store(x + target, total.to(x.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _weights(
    x, z, part, pixels, height, width, x_member, chunk,
    C: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute a partial sum over pixels of gradient ⊗ input, for nine taps, padded to sixteen for tensor cores."""
    split, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    taps, channels = tl.arange(0, 16), tl.arange(0, C)
    ky, kx = taps // 3, taps % 3
    total = tl.zeros((16, C), dtype=tl.float32)
    end = tl.minimum((split + 1) * chunk, pixels)
    for start in tl.range(split * chunk, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)
        inside = row < end
        iy, ix, at = _positions(row, height, width)
        oy, ox = iy[None, :] + 1 - ky[:, None], ix[None, :] + 1 - kx[:, None]
        here = inside[None, :] & (oy >= 0) & (oy < height) & (ox >= 0) & (ox < width) & (taps < 9)[:, None]
        there = row[None, :] + (1 - ky[:, None]) * width + 1 - kx[:, None]
        left = tl.load(z + member * pixels + there, mask=here, other=0.0)
        source = x + member * x_member + at[:, None] * C + channels[None, :]
        right = tl.load(source, mask=inside[:, None], other=0.0)
        total = tl.dot(left.to(right.dtype), right, total, input_precision=PRECISION)
    at = ((member * tl.num_programs(0) + split) * 16 + taps)[:, None] * C + channels[None, :]
    tl.store(part + at, total)


def _shape(x: Tensor) -> tuple[int, int, int, int, int, int]:
    members, images, height, width, channels = inner(x).shape
    return members, images, images * height * width, height, width, channels


def _rows(channels: int) -> int:
    """Return the number of pixels in a tile; a matrix product needs at least sixteen."""
    return max(16, TILE // channels)


def forward(x: Tensor, kernel: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return images `(member, batch, 1, y, x)` in float32, and the weights `(member, tap, channel)`.

    The kernel is torch's, `(member, 1, channel, 3, 3)`.
    """
    members, images, pixels, height, width, channels = _shape(x)
    w = kernel.flatten(3).squeeze(1).transpose(1, 2).to(x.dtype).contiguous()
    y, rows = torch.empty(members, images, 1, height, width, dtype=torch.float32, device=x.device), _rows(channels)
    _readout[(triton.cdiv(pixels, rows), members)](
        x, w, bias, y, pixels, height, width, x.stride(0), C=channels, ROWS=rows
    )  # fmt: skip
    return y, w


def backward(z: Tensor, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient before the ReLU of the inputs, its sums by channel, and those of bias and kernel."""
    z = z.contiguous()
    return *_input_gradient(z, w, x), *_weight_gradient(x, z)


def _input_gradient(z: Tensor, w: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    members, images, pixels, height, width, channels = _shape(gate)
    x, rows = torch.empty_like(gate), _rows(channels)
    tiles = triton.cdiv(pixels, rows)
    sums = torch.empty(members, tiles, channels, dtype=torch.float32, device=z.device)
    _spread[(tiles, members)](
        z, w, gate, x, sums, images, height, width, x.stride(0), C=channels, ROWS=rows, EDGE=edge_of(height, width)
    )  # fmt: skip
    return x, sums.sum(dim=1)


def _weight_gradient(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    members, _, pixels, height, width, channels = _shape(x)
    rows = _rows(channels)
    chunk = triton.cdiv(triton.cdiv(pixels, SPLITS), rows) * rows
    part = torch.empty(members, SPLITS, 16, channels, dtype=torch.float32, device=x.device)
    _weights[(SPLITS, members)](
        x, z, part, pixels, height, width, x.stride(0), chunk, C=channels, ROWS=rows, PRECISION=precision(x), STAGES=2
    )  # fmt: skip
    return z.flatten(1).sum(dim=1)[:, None], part.sum(dim=1)[:, :9].transpose(1, 2)
