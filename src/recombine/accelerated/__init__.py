"""Triton kernels with the member as a grid axis. Optional: everything runs without them, within rounding."""

from __future__ import annotations

import os
from functools import cache


def wanted() -> bool:
    """Whether kernels of our own may be used at all: `RECOMBINE_KERNELS=0` says no."""
    return os.environ.get("RECOMBINE_KERNELS", "").lower() not in ("0", "no", "false", "off")


@cache
def available() -> bool:
    """Whether Triton can be imported, and kernels are wanted."""
    if not wanted():
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


LARGEST = 64
"""Most channels that one tile holds; with more, libraries' grouped convolutions are faster."""


def fits(channels: int, pixels: int = 0) -> bool:
    """Whether the kernels take this many channels, a power of two that matrix units can tile; and so many pixels a
    member, borders included, whose places are counted in 32 bits."""
    return 16 <= channels <= LARGEST and channels & (channels - 1) == 0 and channels * pixels < 2**31


__all__ = ["available", "fits", "wanted"]
