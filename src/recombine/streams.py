"""Named random streams from one seed.

Each use of randomness has its own stream, derived from the seed and the stream's name rather than from the state of
another stream. So a member draws the same numbers alone, in any ensemble and after any interruption, and a checkpoint
needs no random state but the step.
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
