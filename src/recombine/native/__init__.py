"""C++ kernels for one network on a CPU, compiled on the machine they run on. Optional: torch does without them.

They know the one shape of decoder that is trained most, transposed convolutions from a point to an image, and do a step
of it in fewer passes over memory, with fewer multiplications (Winograd) and without a library's overhead a call; and
convolutions with few channels, for which libraries have no good way.
"""

from __future__ import annotations

from recombine.native.adamw import update as adamw_update
from recombine.native.build import available, why_not
from recombine.native.narrow import NarrowConvolution
from recombine.native.network import BLOCK, Convolutional, Plan

NARROW = 8
"""Most channels of a narrow convolution; with more, libraries are faster."""


def takes(channels: int) -> bool:
    """Whether the kernels take this many channels, on this machine: any, as padding them to whole blocks pays."""
    return channels > 0 and available()


__all__ = [
    "BLOCK",
    "NARROW",
    "Convolutional",
    "NarrowConvolution",
    "Plan",
    "adamw_update",
    "available",
    "takes",
    "why_not",
]
