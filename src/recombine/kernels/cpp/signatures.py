"""The C++ functions' arguments, declared once: ctypes refuses what does not fit them."""

from __future__ import annotations

from ctypes import POINTER, c_float, c_long, c_ubyte, c_void_p
from typing import Any

from recombine.kernels.cpp.build import library

FLOATS = c_void_p
"""The address of a tensor's numbers."""
NETWORK: tuple[Any, ...] = (c_long, c_long, c_long, c_long, POINTER(c_ubyte))
"""Code, first size, channels, depth, which blocks double the size."""
PLANES = (c_long,) * 6
"""Channels in and out, rows, columns, first image and the one after the last."""

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "sizes": (*NETWORK, c_long, POINTER(c_long)),
    "prepare": (*NETWORK, FLOATS, FLOATS),
    "forward": (*NETWORK, *(FLOATS,) * 5, c_long, c_long, c_long),
    "backward": (*NETWORK, *(FLOATS,) * 5, c_long, c_long, c_long),
    "finish": (*NETWORK, *(FLOATS,) * 4, c_long, FLOATS, c_long),
    "narrow": (*(FLOATS,) * 4, *PLANES),
    "narrow_back": (*(FLOATS,) * 5, *PLANES),
    "adamw": (*(FLOATS,) * 4, c_long, *(c_float,) * 7),
}
"""By name, without the prefix; none returns anything."""


def call(name: str, *arguments: Any) -> None:
    """Call a kernel by name; tensors are handed over as addresses (`data_ptr()`), or None."""
    function = getattr(library(), f"recombine_{name}")
    if function.argtypes is None:
        function.argtypes, function.restype = SIGNATURES[name], None
    function(*arguments)
