"""AdamW of the members in turn."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from torch import Tensor

from recombine.native.build import library


def update(
    matrices: Sequence[Tensor], active: Tensor, decay: Tensor, stride: Tensor, root: Tensor, beta1: float,
    beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """One step of the active members, in place; `matrices` are weights, mean, square and gradient, contiguous.

    `decay`, `stride` and `root` are a number a member.
    """
    size = matrices[0].shape[1]
    decays = (1 - beta1, beta2, 1 - beta2)
    told = zip(active.tolist(), decay.tolist(), stride.tolist(), root.tolist(), strict=True)
    for member, (on, *own) in enumerate(told):
        if on:
            rows = [ctypes.c_void_p(matrix[member].data_ptr()) for matrix in matrices]
            numbers = [ctypes.c_float(number) for number in (*own, *decays, epsilon)]
            library().recombine_adamw(*rows, ctypes.c_long(size), *numbers)
