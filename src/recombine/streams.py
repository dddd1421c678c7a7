"""Named random streams derived from one seed.

An ensemble member therefore draws the same numbers as when it is trained alone or resumed, and a checkpoint needs to
store only the step, not the state of a random generator.
"""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *name: str | int) -> int:
    """Return the seed of a named stream; different names give unrelated seeds."""
    text = "/".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *name: str | int) -> torch.Generator:
    """Return a new generator for a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, *name))
