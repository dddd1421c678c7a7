"""Numbers of a page, one after another in one run of bytes; what is the same is there once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from recombine.page.program import Program
from recombine.reproduction.explorer import STEPS

ALIGNED = 4
"""Bytes that every run of numbers begins at a multiple of."""

SMALL = 64
"""Numbers that are not worth a scale of their own."""


class Blobs:
    """Bytes that grow, and where in them things are."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._known: dict[bytes, dict[str, int]] = {}

    def add(self, content: bytes) -> dict[str, int]:
        """Where some bytes are: `start` and `length`."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._known:
            self.content += b"\0" * (-len(self.content) % ALIGNED)
            self._known[digest] = {"start": len(self.content), "length": len(content)}
            self.content += content
        return self._known[digest]

    def program(self, program: Program, half: frozenset[int] = frozenset()) -> dict[str, Any]:
        """A program as JSON has it, its constants added; those in `half` as float16."""
        constants = []
        for number, tensor in program.constants.items():
            array = tensor.numpy()
            kind = "int32" if array.dtype == np.int32 else "float16" if number in half else "float32"
            if kind == "float32" and (counted := in_steps(array)) is not None:
                constants.append({"value": number, "type": "int16", "scale": counted[1]} | self.add(counted[0]))
                continue
            constants.append({"value": number, "type": kind} | self.add(array.astype(f"<{_CODES[kind]}").tobytes()))
        return program.header() | {"constants": constants}

    def images(self, rows: Tensor, limit: int) -> dict[str, Any] | None:
        """Arrays of numbers, a row per grid point: as float16 if they fit the limit, else in 256 steps; else none."""
        if rows.numel() > limit:
            return None
        low, high = float(rows.min()), float(rows.max())
        if 2 * rows.numel() <= limit and max(-low, high) < float(np.finfo(np.float16).max):
            return {"type": "float16", "low": low, "high": high} | self.add(rows.numpy().astype("<f2").tobytes())
        steps = ((rows.double() - low) * (255 / (high - low or 1.0))).round().numpy().astype(np.uint8)
        return {"type": "uint8", "low": low, "high": high} | self.add(steps.tobytes())


def in_steps(array: np.ndarray) -> tuple[bytes, float] | None:
    """Numbers as int16 and what these count, if that is exact, as it is for decoders that were kept so; else none."""
    scale = np.float32(np.abs(array).max(initial=0) / STEPS)
    if array.size < SMALL or scale == 0:
        return None
    steps = np.rint(array.astype(np.float64) / scale).astype(np.int16)
    return (steps.astype("<i2").tobytes(), float(scale)) if (steps * scale == array).all() else None


_CODES = {"int32": "i4", "float32": "f4", "float16": "f2"}
