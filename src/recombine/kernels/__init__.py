"""Optional fast kernels: Triton for many members on a GPU, C++ for one network on a CPU.

`triton` and `cpp` mirror each other: shared kernels have the same module, name and signature, except that Triton's
tensors have a leading member axis. Only this module decides whether a kernel is available. Setting the environment
variable `RECOMBINE_KERNELS=0` switches all of them off.
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
"""Kernel package for each device type."""
SHARED = ("network", "narrow", "adamw")
"""Modules in both backends: a whole network, convolutions with few channels, and the optimiser."""
GPU_ONLY = ("vectors", "distance", "tokens", "attention")
"""Modules in Triton only: the vectors of a low-rank embedding, the loss, what follows linear layers, and attention."""
NARROW = {"cuda": 16, "cpu": 8}
"""Maximum number of channels of a narrow convolution by device type; above it, libraries are faster."""
_switched_off: set[str] = set()


def available(device: torch.device | str, kernel: str | None = None) -> bool:
    """Return whether a device has kernels (or the given kernel); the first call for a CPU compiles them."""
    return why_not(device, kernel) is None


def why_not(device: torch.device | str, kernel: str | None = None) -> str | None:
    """Return why a device lacks kernels (or the given kernel), or None if they are available."""
    kind = device.type if isinstance(device, torch.device) else device
    if os.environ.get("RECOMBINE_KERNELS", "").lower() in ("0", "no", "false", "off"):
        return "switched off by RECOMBINE_KERNELS"
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
    """Return a kernel's module for a device, or None if it is not available."""
    return import_module(f"recombine.kernels.{BACKENDS[device.type]}.{kernel}") if available(device, kernel) else None


@contextmanager
def without(*kernels: str) -> Iterator[None]:
    """Switch off some kernels (default: all) within a `with` block, for benchmarks and tests."""
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
