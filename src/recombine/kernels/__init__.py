"""Kernels of our own: Triton's for many members on a GPU, C++ for one network on a CPU. Optional: torch does without.

`triton` and `cpp` mirror each other: what both have has the same module, the same name and the same signature, except
that Triton's tensors have a leading member axis. Here, and only here, it is decided which of them are available.
`RECOMBINE_KERNELS=0` in the environment does without all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

BACKENDS = {"cuda": "triton", "cpu": "cpp"}
"""Which kernels a type of device has."""
SHARED = ("network", "narrow", "adamw")
"""Kernels that both backends have, by module: a whole network, convolutions with few channels, the optimiser."""
GPU_ONLY = ("vectors", "distance")
"""Kernels that Triton has alone: a low-rank embedding's vectors, and the loss."""
NARROW = {"cuda": 16, "cpu": 8}
"""Largest number of channels of a narrow convolution by type of device; with more, libraries are faster."""
_switched_off: set[str] = set()


def available(device: torch.device | str, kernel: str | None = None) -> bool:
    """Whether there are kernels for a device, or one by its module; the first call for a CPU compiles them."""
    return why_not(device, kernel) is None


def why_not(device: torch.device | str, kernel: str | None = None) -> str | None:
    """Why there are no kernels for a device, or not this one; None where there are."""
    kind = device.type if isinstance(device, torch.device) else device
    if os.environ.get("RECOMBINE_KERNELS", "").lower() in ("0", "no", "false", "off"):
        return "RECOMBINE_KERNELS says so"
    if kernel in _switched_off:
        return f"{kernel} is switched off"
    if kind not in BACKENDS:
        return f"no kernels for {kind}"
    if kind == "cuda":
        return _triton_missing()
    from recombine.kernels.cpp.build import library_or_reason

    library = library_or_reason()
    return library if isinstance(library, str) else None


def implementation(kernel: str, device: torch.device) -> ModuleType | None:
    """The module of a kernel for a device; None where it is not available."""
    return import_module(f"recombine.kernels.{BACKENDS[device.type]}.{kernel}") if available(device, kernel) else None


@contextmanager
def without(*kernels: str) -> Iterator[None]:
    """Do without some kernels in the block, for measurements and tests; without names, without any."""
    global _switched_off
    before = _switched_off
    _switched_off = before | set(kernels or (*SHARED, *GPU_ONLY))
    try:
        yield
    finally:
        _switched_off = before


@cache
def _triton_missing() -> str | None:
    try:
        import triton
    except ImportError as error:
        return str(error)
    return None
