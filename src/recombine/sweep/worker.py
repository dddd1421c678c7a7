"""One of the processes that share a sweep: trains what nobody else is training, and reports to its parent."""

from __future__ import annotations

import math
import pickle
import signal
import threading
import traceback
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import torch

from recombine.errors import RecombineError, reason_of
from recombine.store import Store
from recombine.sweep.group import Group
from recombine.sweep.interrupts import SIGNALS, Interruptions
from recombine.sweep.local import Sweep

IMPORTABLE = (
    "classes that a new process can import: at the top of a module on the path, or of the script outside "
    '`if __name__ == "__main__":`'
)


def not_importable(error: Exception) -> RecombineError:
    """The error for specs whose classes a new process cannot import."""
    return RecombineError(f"specs: a new process cannot import them ({reason_of(error)}); allowed: {IMPORTABLE}")


class Report(NamedTuple):
    """What a worker is doing; the first one, empty, says that it is ready for work."""

    keys: tuple[str, ...] = ()
    """The runs that it trains now."""
    steps: int = 0
    """Steps that these have taken."""
    steps_done: int = 0
    """Steps that the worker has taken, for any run."""
    error: float = math.nan
    finished: tuple[str, ...] = ()
    """Runs that are in the store since the report before, whoever trained them."""


class _WorkerSweep(Sweep):
    """A sweep that reports to the parent process."""

    parent: Connection
    reported: int = 0
    """How many finished runs were reported."""

    def report(self, group: Group | None) -> None:
        finished = tuple(islice(self.finished, self.reported, None))
        self.reported += len(finished)
        report = Report(steps_done=self.steps_done, finished=finished)
        if group:
            report = Report(tuple(group.keys), group.steps_done, self.steps_done, group.error, finished)
        with suppress(OSError):  # the parent is gone; reading from it will end, too
            self.parent.send(report)


def run_worker(parent: Connection, store: Store, members: int, checkpoint_seconds: float) -> None:
    """Train in this process what the parent sends, until it is done or the parent says to stop.

    Sends `Report`s, and at the end the error, if one was raised, in parts.
    """
    torch.set_num_threads(1)
    interruptions = Interruptions()

    def stop(*_: object) -> None:  # however often: to stop at once is the parent's decision
        interruptions.noted = True

    try:
        parent.send(Report())
        specs = parent.recv()
    except (EOFError, OSError):
        return
    except Exception as error:  # whatever the import of a user's module raises
        _send(parent, not_importable(error))
        return
    sweep = _WorkerSweep(specs, store, torch.device("cpu"), members, checkpoint_seconds, None)
    sweep.parent = parent
    for number in SIGNALS:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=lambda: stop(wait([parent])), daemon=True).start()
    try:
        sweep.begin()
        sweep.work(interruptions)
        sweep.report(None)  # of the last runs
    except Exception as error:
        if not isinstance(error, RecombineError):
            error.add_note(traceback.format_exc())
        _send(parent, error)


def _send(parent: Connection, error: Exception) -> None:
    """Send an error in parts, since not every one can be made again from its message alone."""
    with suppress(OSError):
        try:
            parent.send((type(error), error.args, vars(error)))
        except (pickle.PicklingError, TypeError, AttributeError):  # one that holds what cannot be sent
            parent.send((RecombineError, (f"processes: {type(error).__name__} in a worker ({reason_of(error)})",), {}))
