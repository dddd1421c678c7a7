"""Convolutions of many members at once, as matrix products whose rows are gathered where they are needed.

Activations are `(member, batch, y, x, channel)`; weights `(member, tap, in, out)`, a matrix a place of the kernel. Two
geometries: `same` (kernel 3, stride 1, padding 1) and `up` (kernel 4, stride 2, padding 1, twice the size). A tap
connects an output place to an input place:

- same:  input = output + 1 − k, k = 0 … 2
- up:    output = 2 · input + k − 1, k = 0 … 3; of an output row only every second k has an input

The forward pass adds the bias and applies ReLU as it writes. The backward pass is handed the gradient before the ReLU
and gives back the gradient before the ReLU of the layer below (`gate`: that layer's answers).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 128
"""Pixels of one tile."""
SPLITS = 4
"""Parts over which a weight gradient's sum is divided; summed in order, so that results repeat."""


@triton.jit
def _gathered_product(
    x, w, bias, gate, y, pixels, height, width, in_height, in_width, out_height, out_width,
    w_member, w_tap, w_in, w_out,
    CI: tl.constexpr, CO: tl.constexpr, ROWS: tl.constexpr, DEEP: tl.constexpr,
    UP: tl.constexpr, BACK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of rows (pixels) of a forward (BACK = 0) or input-gradient (BACK = 1) pass, all output channels."""
    member, parity = tl.program_id(2).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < pixels
    batch, place = row // (height * width), row % (height * width)
    oy, ox = place // width, place % width
    py, px = parity // 2, parity % 2
    channels, out = tl.arange(0, DEEP), tl.arange(0, CO)
    x += member * (pixels // (height * width)) * in_height * in_width * CI
    w += member * w_member
    total = tl.zeros((ROWS, CO), dtype=tl.float32)
    SIDE: tl.constexpr = (4 if BACK else 2) if UP else 3
    for ty in tl.static_range(SIDE):
        for tx in tl.static_range(SIDE):
            if UP:
                if BACK:
                    iy, ix, ky, kx = 2 * oy + ty - 1, 2 * ox + tx - 1, ty, tx
                else:
                    iy, ix, ky, kx = oy + py - ty, ox + px - tx, 1 - py + 2 * ty, 1 - px + 2 * tx
                tap = ky * 4 + kx
            else:
                if BACK:
                    iy, ix = oy + ty - 1, ox + tx - 1
                else:
                    iy, ix = oy + 1 - ty, ox + 1 - tx
                tap = ty * 3 + tx
            here = inside & (iy >= 0) & (iy < in_height) & (ix >= 0) & (ix < in_width)
            source = ((batch * in_height + iy) * in_width + ix) * CI
            for start in tl.static_range(0, CI, DEEP):
                left = tl.load(x + source[:, None] + (start + channels)[None, :], mask=here[:, None], other=0.0)
                right = tl.load(w + tap * w_tap + (start + channels)[:, None] * w_in + out[None, :] * w_out)
                total = tl.dot(left, right, total, input_precision=PRECISION)
    if UP and not BACK:
        oy, ox = 2 * oy + py, 2 * ox + px
    target = ((member * (pixels // (height * width)) + batch) * out_height + oy) * out_width + ox
    target = target[:, None] * CO + out[None, :]
    if BACK:
        total = tl.where(tl.load(gate + target, mask=inside[:, None], other=0.0) > 0, total, 0.0)
    else:
        total = tl.maximum(total + tl.load(bias + member * CO + out)[None, :].to(tl.float32), 0.0)
    tl.store(y + target, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _weight_product(
    x, z, part, pixels, height, width, in_height, in_width, out_height, out_width, chunk,
    CI: tl.constexpr, CO: tl.constexpr, ROWS: tl.constexpr, UP: tl.constexpr, TAPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A part of one tap's weight gradient: Σ over some pixels of input ⊗ gradient."""
    tap, split, member = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    SIDE: tl.constexpr = 4 if UP else 3
    ky, kx = tap // SIDE, tap % SIDE
    channels, out = tl.arange(0, CI), tl.arange(0, CO)
    examples = pixels // (height * width)
    x += member * examples * in_height * in_width * CI
    z += member * examples * out_height * out_width * CO
    total = tl.zeros((CI, CO), dtype=tl.float32)
    for start in range(split * chunk, tl.minimum((split + 1) * chunk, pixels), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < tl.minimum((split + 1) * chunk, pixels)
        batch, place = row // (height * width), row % (height * width)
        oy, ox = place // width, place % width
        if UP:
            iy, ix, zy, zx = oy, ox, 2 * oy + ky - 1, 2 * ox + kx - 1
        else:
            iy, ix, zy, zx = oy + 1 - ky, ox + 1 - kx, oy, ox
        here = inside & (iy >= 0) & (iy < in_height) & (ix >= 0) & (ix < in_width)
        there = inside & (zy >= 0) & (zy < out_height) & (zx >= 0) & (zx < out_width)
        source = ((batch * in_height + iy) * in_width + ix) * CI
        target = ((batch * out_height + zy) * out_width + zx) * CO
        left = tl.load(x + source[:, None] + channels[None, :], mask=here[:, None], other=0.0)
        right = tl.load(z + target[:, None] + out[None, :], mask=there[:, None], other=0.0)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
    at = ((member * tl.num_programs(1) + split) * TAPS + tap) * CI * CO
    tl.store(part + at + channels[:, None] * CO + out[None, :], total)


def precision(tensor: Tensor) -> str:
    """How float32 is multiplied: strictly, unless TF32 was allowed; other types as they are."""
    return "ieee" if tensor.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32 else "tf32"


def _deep(channels: int) -> int:
    return min(channels, 64)


def forward(x: Tensor, w: Tensor, bias: Tensor, up: bool) -> Tensor:
    """ReLU of a transposed convolution: `(member, batch, y, x, channel)` to the same, or twice the size."""
    members, batch, height, width, channels = x.shape
    scale, out = 2 if up else 1, w.shape[3]
    y = x.new_empty(members, batch, scale * height, scale * width, out)
    pixels = batch * height * width
    _gathered_product[(triton.cdiv(pixels, ROWS), 4 if up else 1, members)](
        x, w, bias, x, y, pixels, height, width, height, width, scale * height, scale * width,
        *w.stride(),
        CI=channels, CO=out, ROWS=ROWS, DEEP=_deep(channels), UP=up, BACK=False, PRECISION=precision(x),
        num_warps=8 if out > 64 else 4, num_stages=3,
    )  # fmt: skip
    return y


def input_gradient(z: Tensor, w: Tensor, gate: Tensor, up: bool) -> Tensor:
    """Gradient before the ReLU of the layer below, from the gradient before this layer's."""
    members, batch, height, width, channels = gate.shape
    x = torch.empty_like(gate)
    pixels = batch * height * width
    _gathered_product[(triton.cdiv(pixels, ROWS), 1, members)](
        z, w, z, gate, x, pixels, height, width, z.shape[2], z.shape[3], height, width,
        w.stride(0), w.stride(1), w.stride(3), w.stride(2),
        CI=w.shape[3], CO=channels, ROWS=ROWS, DEEP=_deep(w.shape[3]), UP=up, BACK=True, PRECISION=precision(z),
        num_warps=8 if channels > 64 else 4, num_stages=3,
    )  # fmt: skip
    return x


def weight_gradient(x: Tensor, z: Tensor, up: bool) -> tuple[Tensor, Tensor]:
    """Gradients of weight `(member, tap, in, out)` and bias, in float32."""
    members, batch, height, width, channels = x.shape
    out, taps, pixels = z.shape[-1], 16 if up else 9, batch * height * width
    chunk = triton.cdiv(triton.cdiv(pixels, SPLITS), ROWS) * ROWS
    part = torch.empty(members, SPLITS, taps, channels, out, dtype=torch.float32, device=x.device)
    _weight_product[(taps, SPLITS, members)](
        x, z, part, pixels, height, width, height, width, z.shape[2], z.shape[3], chunk,
        CI=channels, CO=out, ROWS=64, UP=up, TAPS=taps, PRECISION=precision(x),
        num_warps=8 if channels > 64 else 4, num_stages=3,
    )  # fmt: skip
    return part.sum(dim=1), z.flatten(1, 3).sum(dim=1, dtype=torch.float32)
