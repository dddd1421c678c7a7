"""Numpy arrays as safetensors, never pickles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pack(arrays: Mapping[str, Any]) -> bytes:
    """Numpy arrays as safetensors."""
    import numpy
    from safetensors.numpy import save

    return save({name: numpy.asarray(array, order="C") for name, array in arrays.items()})


def unpack(content: bytes) -> dict[str, Any]:
    """The arrays that `pack` packed."""
    from safetensors.numpy import load

    return load(content)
