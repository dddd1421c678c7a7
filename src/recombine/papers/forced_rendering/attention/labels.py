"""Names of the decoders and of what is varied in the attention study's Dataset."""

from __future__ import annotations

COORDINATE, TRANSFORMER, PLAIN = "coordinate MLP", "transformer", "CNN"
ARCHITECTURES = (COORDINATE, TRANSFORMER)
"""Decoders that render each pixel from code and coordinate."""
BASE = "the paper's task"
"""Bump code, box held out, usual depth and width."""
RATE, ONE_HOT = "rate code in [−1, 1]", "one-hot code"
CORNER, CROSS = "corner held out", "cross held out"
SAME_PARAMETERS, SAME_OPERATIONS = "the CNN's parameters", "the CNN's operations"


def of_depth(depth: int) -> str:
    """A variant that differs in depth."""
    return f"depth {depth}"
