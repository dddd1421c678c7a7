"""Which runs go to a worker next, and who is to blame when one dies.

Runs of one program wait together, the longest first. A task is a few of them. What its worker's end says depends on how
many there were: of a single run it is a strike against that run; of several it only says that one of them may be the
cause, so they are tried again in halves. A run with `STRIKES` strikes and no checkpoint between them is put aside with
its error, and everything else goes on. A run is tried elsewhere first, if there is an elsewhere.

Nothing here knows Dask, and time is whatever the caller's monotonic clock says.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

STRIKES = 3
"""Deaths of its worker, or errors, without progress between them, after which a run is put aside."""
NOT_BEGUN = 0.25
"""Strike for a task that was not known to have begun: perhaps its neighbour in the worker's queue was the cause."""
FIRST_DELAY, LONGEST_DELAY = 0.25, 8.0
"""Seconds until a run that somebody else trains is looked at again; twice as long each time."""


@dataclass
class Record:
    """What is known of a run that is not finished."""

    program: object
    together: float = math.inf
    """Most runs of its next task."""
    strikes: float = 0.0
    progress: object = None
    """Its checkpoint at the last strike."""
    avoided: set[str] = field(default_factory=set)
    """Workers, or their hosts, where it failed."""
    delay: float = FIRST_DELAY


class Queue:
    """The runs of a sweep that are not finished, except those that a worker has.

    Parameters
    ----------
    programs
        By key, what members of one ensemble have in common; in the order in which runs are to be trained.
    progress
        What changes when a run's checkpoint does.
    """

    def __init__(self, programs: Mapping[str, object], progress: Callable[[str], object]) -> None:
        self.records = {key: Record(program) for key, program in programs.items()}
        self.progress = progress
        self.ready: dict[object, dict[str, None]] = {}
        self.delayed: set[str] = set()
        self._alarms: list[tuple[float, str]] = []
        self.failed: dict[str, str] = {}
        """Runs that were put aside, with the reason."""
        for key in self.records:
            self._append(key)

    def __len__(self) -> int:
        """Runs that wait for a worker."""
        return len(self.delayed) + sum(len(keys) for keys in self.ready.values())

    def take(
        self,
        sizes: Callable[[object, int], int],
        place: Collection[str] = (),
        elsewhere: Callable[[Collection[str]], bool] = lambda avoided: False,
        fits: Callable[[object], bool] = lambda program: True,
    ) -> list[str]:
        """The runs of the next task for a worker, out of the queue; none if nothing is to do for it.

        Parameters
        ----------
        sizes
            How many runs of a program a task takes, given how many wait.
        place
            Names of the worker: its address and its host.
        elsewhere
            Whether there is a worker with none of these names.
        fits
            Whether the worker can train a program.
        """
        for program, waiting in self.ready.items():
            if not fits(program):
                continue
            keys = self._first(waiting, lambda count, program=program: sizes(program, count), place, elsewhere)  # type: ignore[misc]
            for key in keys:
                del waiting[key]
            if not waiting:
                del self.ready[program]
            if keys:
                return keys
        return []

    def _first(
        self,
        waiting: Mapping[str, None],
        size: Callable[[int], int],
        place: Collection[str],
        elsewhere: Callable[[Collection[str]], bool],
    ) -> list[str]:
        """The first runs of a program that may go to a worker together."""
        keys: list[str] = []
        most = math.inf
        for key in waiting:
            if len(keys) >= most:
                break
            record = self.records[key]
            if record.together <= len(keys):
                continue
            if not record.avoided.isdisjoint(place) and elsewhere(record.avoided):
                continue
            keys.append(key)
            most = min(most, record.together, size(len(waiting)) if len(keys) == 1 else math.inf)
        return keys

    def wake(self, now: float) -> list[str]:
        """Runs whose delay is over, back in the queue."""
        keys = []
        while self._alarms and self._alarms[0][0] <= now:
            key = heapq.heappop(self._alarms)[1]
            if key in self.delayed:
                self.delayed.remove(key)
                self._append(key)
                keys.append(key)
        return keys

    def put_back(self, keys: Iterable[str]) -> None:
        """Runs whose task ended through no fault of theirs, to be tried before the others."""
        first: dict[object, dict[str, None]] = {}
        for key in keys:
            first.setdefault(self.records[key].program, {})[key] = None
        for program, group in first.items():
            self.ready[program] = {**group, **self.ready.get(program, {})}

    def put_off(self, keys: Iterable[str], now: float) -> None:
        """Runs that somebody else trains, to be looked at again in a while."""
        for key in keys:
            record = self.records[key]
            self.delayed.add(key)
            heapq.heappush(self._alarms, (now + record.delay, key))
            record.delay = min(2 * record.delay, LONGEST_DELAY)

    def drop(self, key: str) -> None:
        """Forget a run that is finished."""
        self.delayed.discard(key)
        record = self.records.pop(key, None)
        if record is not None and key in self.ready.get(record.program, {}):
            del self.ready[record.program][key]
            if not self.ready[record.program]:
                del self.ready[record.program]

    def blame(self, keys: Collection[str], reason: str, place: Collection[str], *, begun: bool = True) -> list[str]:
        """Take note of the runs of a task that failed, or whose worker died; those that are put aside for it."""
        aside = []
        for key in keys:
            record = self.records[key]
            record.avoided |= set(place)
            progress = self.progress(key)
            if progress != record.progress:
                record.strikes, record.progress = 0.0, progress
            record.strikes += 1 if begun else NOT_BEGUN
            if len(keys) > 1 and record.strikes >= 1:
                record.together, record.strikes = max(1, len(keys) // 2), 0.0
            if record.strikes >= STRIKES:
                aside.append(key)
                self.failed[key] = reason
                del self.records[key]
        for key in keys:  # suspects wait behind the others, which may finish meanwhile
            if key in self.records:
                self._append(key)
        return aside

    def _append(self, key: str) -> None:
        self.ready.setdefault(self.records[key].program, {})[key] = None
