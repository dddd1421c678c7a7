"""Devices and arithmetic: which one, and what it can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from recombine import kernels
from recombine.errors import DeviceError, InvalidValue, listed

DEVICES: tuple[str, ...] = ("auto", "cpu", "cuda")
DEFAULT_PRECISION = {"cpu": "float32", "cuda": "bf16"}
"""The fastest whose errors cannot be told from float32's: `benchmarks.performance`, docs/performance.md."""


def resolve_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one; asking for an absent one is an error."""
    if name not in DEVICES:
        raise InvalidValue("device", name, listed(DEVICES))
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device must be auto or cpu, got 'cuda' (no CUDA device is present)")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def check_precision(precision: str, device: torch.device) -> None:
    """TF32 is a mode of NVIDIA's matrix units only."""
    if precision == "tf32" and device.type != "cuda":
        raise InvalidValue("precision", precision, "float32 or bf16 on a CPU (tf32 needs a CUDA device)")


def device_name(device: torch.device) -> str:
    """The device in words, for provenance."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({torch.get_num_threads()} threads)"


def kernels_name(device: torch.device) -> str:
    """Whose kernels networks train on where those take them, for provenance."""
    missing = kernels.why_not(device)
    if device.type == "cuda":
        return "torch" if missing else "triton"
    return f"torch ({missing})" if missing else "compiled"


@contextlib.contextmanager
def arithmetic(precision: str, *, benchmark: bool = False) -> Iterator[None]:
    """Allow TF32 in the block exactly when asked, and leave torch's global switches as they were.

    With `benchmark`, cuDNN times all its algorithms on every new shape: that pays for thousands of equal steps only.
    """
    tf32 = precision == "tf32"
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark
    matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark = tf32, tf32, benchmark
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark = before
