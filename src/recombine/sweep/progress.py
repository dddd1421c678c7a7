"""Where a sweep stands, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands."""

    runs: int
    """Runs that the sweep was called for."""
    finished: int
    """Runs in the store."""
    members: int
    """Members training now."""
    steps_done: int
    steps_left: int
    """Steps of all members together, without those of runs that were in the store already."""
    error: float
    """Mean training error of the members training now."""


Watch = Callable[[Progress], None]
"""A function that is called with every new progress."""
