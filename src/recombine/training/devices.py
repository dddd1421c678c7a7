"""Devices and numerical precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from recombine import kernels
from recombine.errors import DeviceError, InvalidValue, listed

DEVICES: tuple[str, ...] = ("auto", "cpu", "cuda")
DEFAULT_PRECISION = {"cpu": "float32", "cuda": "bf16"}
"""The fastest precision whose scores do not differ measurably from those of float32 (docs/performance.md)."""


def resolve_device(name: str) -> torch.device:
    """Return the device; `auto` prefers a GPU."""
    if name not in DEVICES:
        raise InvalidValue("device", name, listed(DEVICES))
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device must be auto or cpu, got 'cuda' (no CUDA device is present)")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def check_precision(precision: str, device: torch.device) -> None:
    """Raise an error for TF32 (a mode of NVIDIA's tensor cores) on a CPU."""
    if precision == "tf32" and device.type != "cuda":
        raise InvalidValue("precision", precision, "float32 or bf16 on a CPU (tf32 needs a CUDA device)")


def device_name(device: torch.device) -> str:
    """Return the name of the device, for the provenance record."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({torch.get_num_threads()} threads)"


def kernels_name(device: torch.device) -> str:
    """Return which kernels are used, for the provenance record."""
    missing = kernels.why_not(device)
    if device.type == "cuda":
        return "torch" if missing else "triton"
    return f"torch ({missing})" if missing else "compiled"


@contextlib.contextmanager
def arithmetic(precision: str, *, benchmark: bool = False) -> Iterator[None]:
    """Set torch's global TF32 flags in this context.

    With `benchmark`, cuDNN times all its algorithms on every new shape, which pays off over many identical steps.
    """
    tf32 = precision == "tf32"
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark
    matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark = tf32, tf32, benchmark
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark = before
