"""Named random streams from one seed.

Each use of randomness has its own stream, made afresh from the seed and the stream's name, never from the state of
another one. So a member draws the same numbers alone, in any ensemble and after any interruption, and nothing random
needs to be kept in a checkpoint but the step.
"""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *name: str | int) -> int:
    """The seed of a named stream; different names give unrelated seeds."""
    text = "/".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *name: str | int) -> torch.Generator:
    """A generator for a named stream, at its beginning."""
    return torch.Generator().manual_seed(stream_seed(seed, *name))
