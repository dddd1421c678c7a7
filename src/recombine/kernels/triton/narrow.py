"""Convolutions with few channels for many members (kernel 3, padding 1), each with one pass over memory.

Images are `(member, batch, channel, y, x)`, weights `(member, out, in, 3, 3)`. Tensor cores do not help here, and
libraries' grouped convolutions with two channels are a hundred times slower than reading the arrays.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512
SUMS = 256
"""Number of sums of a weight gradient that a Triton program holds for each tap."""
SPLITS = 16
"""Number of partial sums of a weight gradient, which are added in order so that results are reproducible."""


@triton.jit
def _convolved(
    x, w, bias, y, images, height, width, w_member, w_out, w_in,
    CI: tl.constexpr, CO: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Compute all output channels (padded to WIDE) for a block of pixels, or, with BACK, their input gradient."""
    member, size = tl.program_id(1).to(tl.int64), height * width
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < images * size
    image, place = row // size, row % size
    oy, ox = place // width, place % width
    out = tl.arange(0, WIDE)
    total = tl.zeros((WIDE, BLOCK), dtype=tl.float32)
    for channel in tl.static_range(CI):
        for ky in tl.static_range(3):
            for kx in tl.static_range(3):
                iy, ix = oy + ky - 1, ox + kx - 1
                here = inside & (iy >= 0) & (iy < height) & (ix >= 0) & (ix < width)
                at = ((member * images + image) * CI + channel) * size + place + (ky - 1) * width + kx - 1
                left = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
                tap = (2 - ky) * 3 + 2 - kx if BACK else ky * 3 + kx
                column = w + member * w_member + out * w_out + channel * w_in + tap
                total += tl.load(column, mask=out < CO, other=0.0).to(tl.float32)[:, None] * left[None, :]
    if not BACK:
        total += tl.load(bias + member * CO + out, mask=out < CO, other=0.0).to(tl.float32)[:, None]
    target = ((member * images + image)[None, :] * CO + out[:, None]) * size + place[None, :]
    tl.store(y + target, total.to(y.dtype.element_ty), mask=inside[None, :] & (out < CO)[:, None])


@triton.jit
def _weights(
    x, z, part, images, height, width,
    CI: tl.constexpr, CO: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a partial sum over pixels of gradient · input, for an input channel and all nine taps. A tenth tap, whose
    input is 1, sums the gradient itself, which gives the bias gradient."""
    channel, split, member, size = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64), height * width
    out, tap = tl.arange(0, WIDE), tl.arange(0, 16)
    ky, kx = (tap // 3 - 1)[:, None], (tap % 3 - 1)[:, None]
    total = tl.zeros((WIDE, 16, BLOCK), dtype=tl.float32)
    for start in range(split * BLOCK, images * size, tl.num_programs(1) * BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = row < images * size
        image, place = row // size, row % size
        iy, ix = (place // width)[None, :] + ky, (place % width)[None, :] + kx
        here = inside[None, :] & (tap < 9)[:, None] & (iy >= 0) & (iy < height) & (ix >= 0) & (ix < width)
        at = (((member * images + image) * CI + channel) * size + place)[None, :] + ky * width + kx
        left = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
        left = tl.where((tap == 9)[:, None], 1.0, left)
        target = ((member * images + image)[None, :] * CO + out[:, None]) * size + place[None, :]
        right = tl.load(z + target, mask=inside[None, :] & (out < CO)[:, None], other=0.0).to(tl.float32)
        total += right[:, None, :] * left[None, :, :]
    at = (((member * tl.num_programs(1) + split) * CO + out) * CI + channel)[:, None] * 10 + tap[None, :]
    tl.store(part + at, tl.sum(total, axis=2), mask=(out < CO)[:, None] & (tap < 10)[None, :])


class NarrowConvolution(torch.autograd.Function):
    """Convolve images with weights and a bias `(member, out)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        ctx.save_for_backward(x, w)
        return _launch(x, w, bias.contiguous(), w.shape[1], back=False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        z = gradients[0].contiguous()
        members, out, channels = w.shape[:3]
        part = torch.empty(members, SPLITS, out, channels, 10, dtype=torch.float32, device=w.device)
        images, (height, width) = x.shape[1], x.shape[-2:]
        wide = triton.next_power_of_2(out)
        _weights[(channels, SPLITS, members)](
            x, z, part, images, height, width, CI=channels, CO=out, WIDE=wide, BLOCK=max(SUMS // wide, 16)
        )  # fmt: skip
        sums = part.sum(dim=1).to(w.dtype)
        weight, bias = sums[..., :9].unflatten(-1, (3, 3)), sums[:, :, 0, 9]
        below = _launch(z, w, bias, channels, back=True) if ctx.needs_input_grad[0] else None
        return below, weight, bias


def _launch(x: Tensor, w: Tensor, bias: Tensor, out: int, *, back: bool) -> Tensor:
    members, images, channels, height, width = x.shape
    y = x.new_empty(members, images, out, height, width)
    along = (w.stride(2), w.stride(1)) if back else (w.stride(1), w.stride(2))
    _convolved[(triton.cdiv(images * height * width, BLOCK), members)](
        x, w, bias, y, images, height, width, w.stride(0), *along,
        CI=channels, CO=out, WIDE=triton.next_power_of_2(out), BLOCK=BLOCK, BACK=back,
    )  # fmt: skip
    return y
