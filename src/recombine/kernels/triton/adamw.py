"""AdamW for many members in one pass over memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _update(
    weights, mean, square, gradient, active, decay, stride, root, size, mean_share, beta2, square_share, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)  # offsets may exceed 32 bits
    if tl.load(active + member):
        column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = column < size
        at = member * size + column
        g = tl.load(gradient + at, mask=inside, other=0.0)
        m = tl.load(mean + at, mask=inside, other=0.0)
        v = tl.load(square + at, mask=inside, other=0.0)
        w = tl.load(weights + at, mask=inside, other=0.0)
        m += (g - m) * mean_share
        v = v * beta2 + g * g * square_share
        change = m / (tl.sqrt(v) / tl.load(root + member) + epsilon) * tl.load(stride + member)
        tl.store(mean + at, m, mask=inside)
        tl.store(square + at, v, mask=inside)
        tl.store(weights + at, w * tl.load(decay + member) - change, mask=inside)


def adamw_update(
    weights: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, active: Tensor, decay: Tensor, stride: Tensor,
    root: Tensor, beta1: float, beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """Update the active members in place; matrices must be contiguous, and vectors have one value per member."""
    members, size = weights.shape
    _update[(triton.cdiv(size, BLOCK), members)](
        weights, mean, square, gradient, active, decay, stride, root, size, 1 - beta1, beta2,
        1 - beta2, epsilon, BLOCK=BLOCK,
    )  # fmt: skip
