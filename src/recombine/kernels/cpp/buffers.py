"""Memory that steps before have used: asking the system for it costs more than filling it."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_KEPT = 2**28
"""Numbers that all kept buffers have together, a GiB of them."""
_kept: dict[int, list[Tensor]] = {}
"""Buffers by size."""


def take_buffer(size: int) -> Tensor:
    """A buffer of so many numbers in float32, whatever they are."""
    try:
        return _kept[size].pop()
    except (KeyError, IndexError):
        return torch.empty(size, dtype=torch.float32, device="cpu")


def return_buffer(buffer: Tensor) -> None:
    """Keep a buffer for the next that asks for its size."""
    if sum(size * len(buffers) for size, buffers in list(_kept.items())) + len(buffer) > LARGEST_KEPT:
        _kept.clear()
    if len(buffer) <= LARGEST_KEPT:
        _kept.setdefault(len(buffer), []).append(buffer)
