"""Where a sweep stands, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WorkerProgress:
    """What one worker of a cluster is doing."""

    name: str
    members: int
    """Members that it trains now."""
    steps_done: int
    steps: int
    """Steps of its present runs: taken, and of all of them from their start."""


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands.

    Parameters
    ----------
    runs
        Runs that the sweep was called for.
    finished
        Runs in the store.
    members
        Members training now.
    steps_done
        Steps of all members together, without those of runs that were in the store already.
    steps_left
        Steps that are still to be taken.
    error
        Mean training error of the members training now.
    failed
        Runs that were put aside with an error.
    workers
        Each worker of a cluster, where there is one.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> seen = []
    >>> with TemporaryDirectory() as store:
    ...     runs = rc.train(spec, store, watch=seen.append)
    >>> seen[0].runs, seen[0].members, seen[0].failed
    (1, 1, 0)
    """

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
    failed: int = 0
    """Runs that were put aside with an error."""
    workers: tuple[WorkerProgress, ...] | None = None
    """Each worker of a cluster, where there is one."""


Say = Callable[[str], None]
"""A function that is called with a line about what was lost, found or put aside."""
Watch = Callable[[Progress], None]
"""A function that is called with every new progress."""
Shown = bool | Literal["auto"]
"""Whether a bar is shown; `auto`: where somebody sees it."""
