"""AdamW with the compiled kernels, one member after another."""

from __future__ import annotations

from torch import Tensor

from recombine.kernels.cpp.build import call


def adamw_update(
    weights: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, active: Tensor, decay: Tensor, stride: Tensor,
    root: Tensor, beta1: float, beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """Update the active members in place; matrices must be contiguous, and vectors have one value per member."""
    size = weights.shape[1]
    shares = (1 - beta1, beta2, 1 - beta2)
    per_member = zip(active.tolist(), decay.tolist(), stride.tolist(), root.tolist(), strict=True)
    for member, (is_active, *own) in enumerate(per_member):
        if is_active:
            rows = [matrix[member].data_ptr() for matrix in (weights, mean, square, gradient)]
            call("adamw", *rows, size, *own, *shares, epsilon)
