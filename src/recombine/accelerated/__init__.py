"""Triton kernels with the member as a grid axis. Optional: everything runs without them, within rounding."""

from __future__ import annotations

import os
from functools import cache


@cache
def available() -> bool:
    """Whether Triton can be imported. `RECOMBINE_KERNELS=0` says no."""
    if os.environ.get("RECOMBINE_KERNELS") == "0":
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


LARGEST = 64
"""Most channels that one tile holds; with more, libraries' grouped convolutions are faster."""


def fits(channels: int) -> bool:
    """Whether the kernels take this many channels: a power of two that matrix units can tile."""
    return 16 <= channels <= LARGEST and channels & (channels - 1) == 0


__all__ = ["available", "fits"]
