"""Convolutions of many members at once, as matrix products whose rows are gathered on the fly.

Activations are `(member, batch, y, x, channel)` with a border of zeros one pixel wide around every image (`bordered`),
so that a tap is a constant offset in memory and no bounds checks are needed. Weights are `(member, tap, in, out)`, one
matrix per tap of the kernel. There are two geometries: `same` (kernel 3, stride 1, padding 1) and `up` (kernel 4,
stride 2, padding 1, twice the size). A tap connects an output pixel to an input pixel:

- same:  input = output + 1 − k, k = 0 … 2
- up:    output = 2 · input + k − 1, k = 0 … 3; for a given output row, only every second k has an input

The forward pass adds the bias and applies the ReLU as it writes. The backward pass takes the gradient before the ReLU
and returns the gradient before the previous layer's ReLU (whose outputs are `gate`) and its sums, which are that
layer's bias gradient. Products are pipelined over taps: the next rows are loaded while the current ones are multiplied.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

ROWS = 128
"""Pixels per tile."""
DEEP = 64
"""Maximum number of input channels per product."""
STAGES = 3
"""Number of products in the pipeline at once."""
WARPS = 4
WIDE = 64
"""Minimum number of output channels for which pixels are the columns of a product."""
SPLITS = 4
"""Number of partial sums of a weight gradient, which are added in order so that results are reproducible."""
SUMMED = {False: (64, 3), True: (32, 4)}
"""Pixels per product of a weight gradient, and number of products in the pipeline, for `same` and `up`."""


def bordered(image: Tensor) -> Tensor:
    """Add a border of zeros to images `(…, y, x, channel)`."""
    return functional.pad(image, (0, 0, 1, 1, 1, 1))


def inner(image: Tensor) -> Tensor:
    """Return a view without the border."""
    return image[..., 1:-1, 1:-1, :]


@triton.jit
def clear_border(y, first, step, images, height, width, C: tl.constexpr, EDGE: tl.constexpr):
    """Clear the borders of images first, first + step, … of one member; `EDGE` is at least their length."""
    k, channels = tl.arange(0, EDGE), tl.arange(0, C)
    wide = width + 2
    sides = k - 2 * wide
    row = tl.where(k < wide, 0, tl.where(k < 2 * wide, height + 1, 1 + sides // 2))
    column = tl.where(k < wide, k, tl.where(k < 2 * wide, k - wide, (sides % 2) * (width + 1)))
    here = k < 2 * wide + 2 * height
    nothing = tl.zeros((EDGE, C), dtype=y.dtype.element_ty)
    for image in range(first, images, step):
        at = (image * (height + 2) + row) * wide + column
        tl.store(y + at[:, None] * C + channels[None, :], nothing, mask=here[:, None])


def edge_of(height: int, width: int) -> int:
    """Return a power of two that is at least the length of an image's border."""
    return triton.next_power_of_2(2 * (width + 2) + 2 * height)


@triton.jit
def _gathered_product(
    x, w, bias, gate, y, sums, images, height, width, in_width, out_height, out_width, x_member, y_member, bias_member,
    CI: tl.constexpr, CO: tl.constexpr, ROWS: tl.constexpr, DEEP: tl.constexpr, EDGE: tl.constexpr,
    UP: tl.constexpr, BACK: tl.constexpr, RELU: tl.constexpr, MAP: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute all output channels for a tile of pixels, in the forward (BACK = 0) or input-gradient (BACK = 1) pass.

    If WIDE, pixels are the columns of the product, since tensor cores read less data per operation for a wide product.
    If MAP, every pixel has biases of its own.
    """
    member, parity = tl.program_id(2).to(tl.int64), tl.program_id(1)  # offsets of members may exceed 32 bits
    x += member * x_member
    y += member * y_member
    if parity == 0:
        clear_border(y, tl.program_id(0), tl.num_programs(0), images, out_height, out_width, CO, EDGE)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < images * height * width
    image, place = row // (height * width), row % (height * width)
    oy, ox = place // width, place % width
    py, px = parity // 2, parity % 2
    channels, out = tl.arange(0, DEEP), tl.arange(0, CO)
    if UP and BACK:
        source = (image * (2 * height + 2) + 2 * oy) * (in_width + 2) + 2 * ox
    else:
        source = (image * (height + 2) + oy + 1) * (in_width + 2) + ox + 1
    left_at = x + source[:, None] * CI + channels[None, :]
    SIDE: tl.constexpr = (4 if BACK else 2) if UP else 3
    TAPS: tl.constexpr = 16 if UP else 9
    right_at = w + member * TAPS * CI * CO + channels[:, None] * CO + out[None, :]
    PARTS: tl.constexpr = CI // DEEP
    total = tl.zeros((CO, ROWS) if WIDE else (ROWS, CO), dtype=tl.float32)
    for turn in tl.range(0, SIDE * SIDE * PARTS, num_stages=STAGES):
        start = (turn % PARTS) * DEEP
        ty, tx = turn // PARTS // SIDE, turn // PARTS % SIDE
        if UP:
            if BACK:
                away, tap = ty * (in_width + 2) + tx, turn // PARTS
            else:
                away, tap = (py - ty) * (in_width + 2) + px - tx, (1 - py + 2 * ty) * 4 + 1 - px + 2 * tx
        else:
            if BACK:
                away, tap = (ty - 1) * (in_width + 2) + tx - 1, turn // PARTS
            else:
                away, tap = (1 - ty) * (in_width + 2) + 1 - tx, turn // PARTS
        left = tl.load(left_at + away * CI + start, mask=inside[:, None], other=0.0)
        right = tl.load(right_at + (tap * CI + start) * CO)
        if WIDE:
            total = tl.dot(tl.trans(right), tl.trans(left), total, input_precision=PRECISION)
        else:
            total = tl.dot(left, right, total, input_precision=PRECISION)
    if WIDE:
        total = tl.trans(total)
    if UP and not BACK:
        oy, ox = 2 * oy + py, 2 * ox + px
    target = (image * (out_height + 2) + oy + 1) * (out_width + 2) + ox + 1
    target = target[:, None] * CO + out[None, :]
    if BACK:
        open_ = tl.load(gate + member * y_member + target, mask=inside[:, None], other=0.0) > 0
        total = tl.where(open_, total, 0.0)
        at = (member * tl.num_programs(0) + tl.program_id(0)) * CO
        tl.store(sums + at + out, tl.sum(total, axis=0))
    else:
        if MAP:
            spot = (oy * out_width + ox)[:, None] * CO + out[None, :]
            total += tl.load(bias + member * bias_member + spot, mask=inside[:, None], other=0.0).to(tl.float32)
        else:
            total += tl.load(bias + member * bias_member + out)[None, :].to(tl.float32)
        if RELU:
            total = tl.where(total <= 0, 0.0, total)  # NaN stays NaN
    tl.store(y + target, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _weight_product(
    x, z, part, images, height, width, x_member, z_member, chunk,
    CI: tl.constexpr, CO: tl.constexpr, ROWS: tl.constexpr, UP: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Compute part of the weight gradient for one row of taps: Σ over some pixels of input ⊗ gradient.

    One of the two factors is the same for all taps in the row and is read only once.
    """
    ky, split, member = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    SIDE: tl.constexpr = 4 if UP else 3
    channels, out = tl.arange(0, CI), tl.arange(0, CO)
    pixels = images * height * width
    x += member * x_member
    z += member * z_member
    total_0 = tl.zeros((CI, CO), dtype=tl.float32)
    total_1 = tl.zeros((CI, CO), dtype=tl.float32)
    total_2 = tl.zeros((CI, CO), dtype=tl.float32)
    total_3 = tl.zeros((CI, CO), dtype=tl.float32)
    end = tl.minimum((split + 1) * chunk, pixels)
    for start in tl.range(split * chunk, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)
        inside = (row < end)[:, None]
        image, place = row // (height * width), row % (height * width)
        oy, ox = place // width, place % width
        here = (image * (height + 2) + oy + 1) * (width + 2) + ox + 1
        if UP:
            there = (image * (2 * height + 2) + 2 * oy + ky) * (2 * width + 2) + 2 * ox
            left = tl.trans(tl.load(x + here[:, None] * CI + channels[None, :], mask=inside, other=0.0))
            right = z + there[:, None] * CO + out[None, :]
            total_0 = tl.dot(left, tl.load(right, mask=inside, other=0.0), total_0, input_precision=PRECISION)
            total_1 = tl.dot(left, tl.load(right + CO, mask=inside, other=0.0), total_1, input_precision=PRECISION)
            total_2 = tl.dot(left, tl.load(right + 2 * CO, mask=inside, other=0.0), total_2, input_precision=PRECISION)
            total_3 = tl.dot(left, tl.load(right + 3 * CO, mask=inside, other=0.0), total_3, input_precision=PRECISION)
        else:
            right = tl.load(z + here[:, None] * CO + out[None, :], mask=inside, other=0.0)
            shifted = x + (here + (1 - ky) * (width + 2) + 1)[:, None] * CI + channels[None, :]
            left_0 = tl.trans(tl.load(shifted, mask=inside, other=0.0))
            total_0 = tl.dot(left_0, right, total_0, input_precision=PRECISION)
            left_1 = tl.trans(tl.load(shifted - CI, mask=inside, other=0.0))
            total_1 = tl.dot(left_1, right, total_1, input_precision=PRECISION)
            left_2 = tl.trans(tl.load(shifted - 2 * CI, mask=inside, other=0.0))
            total_2 = tl.dot(left_2, right, total_2, input_precision=PRECISION)
    at = part + ((member * tl.num_programs(1) + split) * SIDE + ky) * SIDE * CI * CO
    at += channels[:, None] * CO + out[None, :]
    tl.store(at, total_0)
    tl.store(at + CI * CO, total_1)
    tl.store(at + 2 * CI * CO, total_2)
    if UP:
        tl.store(at + 3 * CI * CO, total_3)


@triton.jit
def _collect(part, gradient, SPLITS: tl.constexpr, TAPS: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr):
    """Add the partial sums for one input channel and write the result in torch's layout `(in, out, tap)`."""
    channel, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tap, out = tl.arange(0, 16), tl.arange(0, CO)
    here = (tap < TAPS)[:, None] & (out < CO)[None, :]
    total = tl.zeros((16, CO), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        at = (((member * SPLITS + split) * TAPS + tap) * CI + channel) * CO
        total += tl.load(part + at[:, None] + out[None, :], mask=here, other=0.0)
    target = ((member * CI + channel) * CO + out)[None, :] * TAPS + tap[:, None]
    tl.store(gradient + target, total, mask=here)


@triton.jit
def _lay_out(
    kernel, along, back, kernel_member, TAPS: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Copy weights `(in, out, tap)` of some input channels, rounded, to `(tap, in, out)` and `(tap, out, in)`."""
    member = tl.program_id(1).to(tl.int64)
    channel, out = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CO)
    for tap in tl.static_range(TAPS):
        source = (channel[:, None] * CO + out[None, :]) * TAPS + tap
        values = tl.load(kernel + member * kernel_member + source)
        base = (member * TAPS + tap) * CI * CO
        tl.store(along + base + channel[:, None] * CO + out[None, :], values.to(along.dtype.element_ty))
        tl.store(back + base + out[None, :] * CI + channel[:, None], values.to(back.dtype.element_ty))


def laid_out(kernel: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Convert weights `(member, in, out, y, x)` to a dtype, in the layouts for the forward and backward passes."""
    members, channels, out = kernel.shape[:3]
    taps = kernel.shape[3] * kernel.shape[4]
    along = torch.empty(members, taps, channels, out, dtype=dtype, device=kernel.device)
    back = torch.empty(members, taps, out, channels, dtype=dtype, device=kernel.device)
    _lay_out[(channels // 16, members)](
        kernel, along, back, kernel.stride(0), TAPS=taps, CI=channels, CO=out, BLOCK=16
    )  # fmt: skip
    return along, back


def precision(tensor: Tensor) -> str:
    """Return the precision of float32 products, which is full unless TF32 is allowed; other types ignore it."""
    return "ieee" if tensor.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32 else "tf32"


def forward(x: Tensor, w: Tensor, bias: Tensor, up: bool, *, relu: bool = True) -> Tensor:
    """Return a transposed convolution, with a ReLU or without, bordered like its input.

    Biases are `(member, out)` or, with different ones at every pixel, `(member, y, x, out)`.
    """
    members, images, height, width, channels = inner(x).shape
    scale, out = 2 if up else 1, w.shape[3]
    y = x.new_empty(members, images, scale * height + 2, scale * width + 2, out)
    _gathered_product[(triton.cdiv(images * height * width, ROWS), 4 if up else 1, members)](
        x, w, bias, x, y, x, images, height, width, width, scale * height, scale * width, x.stride(0), y.stride(0),
        bias.stride(0), CI=channels, CO=out, ROWS=ROWS, DEEP=min(channels, DEEP),
        EDGE=edge_of(scale * height, scale * width), UP=up, BACK=False, RELU=relu, MAP=bias.ndim > 2, WIDE=out >= WIDE,
        PRECISION=precision(x), STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return y


def input_gradient(z: Tensor, w: Tensor, gate: Tensor, up: bool) -> tuple[Tensor, Tensor]:
    """Return the gradient before the previous layer's ReLU, and its sums by channel.

    Weights are `(member, tap, out, in)` here, so that both passes read rows.
    """
    members, images, height, width, channels = inner(gate).shape
    x = torch.empty_like(gate)
    tiles = triton.cdiv(images * height * width, ROWS)
    sums = torch.empty(members, tiles, channels, dtype=torch.float32, device=z.device)
    _gathered_product[(tiles, 1, members)](
        z, w, z, gate, x, sums, images, height, width, inner(z).shape[3], height, width, z.stride(0), x.stride(0),
        0, CI=w.shape[2], CO=channels, ROWS=ROWS, DEEP=min(w.shape[2], DEEP), EDGE=edge_of(height, width), UP=up,
        BACK=True, RELU=False, MAP=False, WIDE=channels >= WIDE, PRECISION=precision(z), STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return x, sums.sum(dim=1)


def weight_gradient(x: Tensor, z: Tensor, up: bool) -> Tensor:
    """Return the gradient of the weights `(member, in, out, tap)` in float32."""
    members, images, height, width, channels = inner(x).shape
    out, side, pixels = z.shape[-1], 4 if up else 3, images * height * width
    rows, stages = SUMMED[up]
    chunk = triton.cdiv(triton.cdiv(pixels, SPLITS), rows) * rows
    part = torch.empty(members, SPLITS, side * side, channels, out, dtype=torch.float32, device=x.device)
    _weight_product[(side, SPLITS, members)](
        x, z, part, images, height, width, x.stride(0), z.stride(0), chunk,
        CI=channels, CO=out, ROWS=rows, UP=up, PRECISION=precision(x), STAGES=stages, num_warps=4,
    )  # fmt: skip
    gradient = part.new_empty(members, channels, out, side * side)
    _collect[(channels, members)](part, gradient, SPLITS=SPLITS, TAPS=side * side, CI=channels, CO=out)
    return gradient
