"""What runs on a worker of a Dask cluster: an ordinary sweep over the few runs of a task.

The worker opens the store by its path, takes the runs' locks, trains from their checkpoints, saves, and returns what
became of each run in a few words; no array travels through Dask. A run that somebody else trains is left to them. A
worker that is closing (its scheduler is lost, or its time is up) or that is asked to stop writes a checkpoint between
two steps.
"""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from recombine.errors import Interrupted, RecombineError, StoreError, StoreFull, reason_of
from recombine.specs import RunSpec
from recombine.store import Store
from recombine.sweep.group import Group
from recombine.sweep.interrupts import Stopping
from recombine.sweep.local import Sweep
from recombine.training import resolve_device, within
from recombine.version import __version__

RUNNING = ("running", "paused")
"""States of a worker that is not about to end."""
SPOILT = 70
"""Exit code of a worker whose GPU context is lost: only a new process has another."""
_stopped: set[str] = set()
"""Sweeps whose driver has asked to stop."""


@dataclass(frozen=True)
class Task:
    """Runs that a worker is to train."""

    sweep: str
    """Which driver sent it, and the topic of its reports."""
    number: int
    store: str
    token: str
    """Name of a lock in the store that the driver holds: where there is none, this is another store."""
    specs: tuple[RunSpec, ...]
    device: str
    members: int
    checkpoint_seconds: float
    memory: float | None
    report_seconds: float
    version: str = __version__


@dataclass
class Outcome:
    """What became of a task; a run that is not named here is in the store."""

    left: list[str] = field(default_factory=list)
    """Runs that were not trained: somebody else trains them, or the task ended before."""
    failed: list[str] = field(default_factory=list)
    """Runs that raised together."""
    error: str = ""
    trace: str = ""
    trouble: str = ""
    """Why the store could not be used from here."""
    full: bool = False
    """Whether that was for want of space."""
    stopped: bool = False
    """Whether the worker is closing, or was asked to stop."""
    steps: int = 0
    seconds: float = 0.0


class _Requests:
    """Whether the task is to stop."""

    def __init__(self, sweep: str, worker: Any) -> None:
        self.sweep, self.worker = sweep, worker

    @property
    def noted(self) -> bool:
        return self.sweep in _stopped or self.worker.status.name not in RUNNING


class _TaskSweep(Sweep):
    """A sweep that reports to the driver, waits for nobody, and notes which runs raised."""

    task: Task
    worker: Any
    reported: float = -1e9
    failed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Runs that others train."""

    def _wait(self, interruptions: Stopping) -> None:
        """Leave to the driver what others train."""
        self.left = tuple(self.pending)
        self.pending.clear()

    def _train(self, keys: list[str], interruptions: Stopping) -> None:
        self._send(len(keys), 0, float("nan"))
        try:
            super()._train(keys, interruptions)
        except (Interrupted, StoreError):
            raise
        except Exception:
            self.failed = tuple(keys)
            raise

    def report(self, group: Group | None) -> None:
        if group and time.monotonic() - self.reported >= self.task.report_seconds:
            self._send(len(group.keys), group.steps_done, group.error)

    def _send(self, members: int, steps: int, error: float) -> None:
        self.reported = time.monotonic()
        message = {"task": self.task.number, "members": members, "steps": steps, "taken": self.steps_done}
        self.worker.log_event(self.task.sweep, {**message, "error": error})


def request_stop(sweep: str) -> None:
    """Let the tasks of a sweep in this process write checkpoints and end."""
    _stopped.add(sweep)


def by_value(name: str) -> Callable[[Any], Any]:
    """A function of this module as one that Dask sends by value, and that imports this module only when it is called.

    A worker ends when it meets a message that names what it cannot import; an error of a task it survives and reports.
    """

    def call(argument: Any) -> Any:
        from importlib import import_module

        return getattr(import_module("recombine.sweep.cluster_task"), name)(argument)

    return call


def run_packed(content: bytes) -> Outcome:
    """Run a task that was pickled."""
    return run_task(pickle.loads(content))


def run_task(task: Task) -> Outcome:
    """Train the runs of a task that are not in the store, on the worker that this is called on.

    Raises what makes the worker unusable for any task: another version, or a device that it does not have.
    """
    from distributed import get_worker

    worker = get_worker()
    if task.version != __version__:
        raise RecombineError(f"recombine must be {task.version}, as the driver has, got {__version__}")
    device = resolve_device(task.device)
    worker.log_event(task.sweep, {"task": task.number, "torch": str(torch.__version__)})
    began, outcome = time.monotonic(), Outcome()
    keys = [spec.digest for spec in task.specs]
    sweep: _TaskSweep | None = None
    try:
        sweep = _prepared(task, device, worker)
        with within(task.memory, sweep.device):
            sweep.work(_Requests(task.sweep, worker))
        outcome.left = list(sweep.left)
    except Interrupted:
        outcome.stopped = True
    except StoreError as error:
        outcome.trouble, outcome.full = str(error), isinstance(error, StoreFull)
    except Exception as error:
        _leave_if_spoilt(error)
        outcome.error, outcome.trace = reason_of(error), traceback.format_exc()
        outcome.failed = list(sweep.failed if sweep else ()) or keys
    if sweep is not None:
        outcome.steps = sweep.steps_done
        outcome.left = outcome.left or [key for key in sweep.pending if key not in outcome.failed]
    elif not outcome.failed:
        outcome.left = keys
    outcome.seconds = time.monotonic() - began
    return outcome


def _prepared(task: Task, device: torch.device, worker: Any) -> _TaskSweep:
    """The task's sweep; on a CPU it has one thread, so that its bits do not depend on the worker's cores."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    store = Store(task.store, create=False)
    if not os.path.lexists(store.lock(task.token).path):
        allowed = "the directory that the driver has there (this is another one)"
        raise StoreError(f"store must be {allowed}, got {task.store!r}")
    sweep = _TaskSweep(
        list(task.specs), store, device, task.members, task.checkpoint_seconds, None, task.memory
    )  # fmt: skip
    sweep.task, sweep.worker = task, worker
    sweep.prepare()
    return sweep


def _leave_if_spoilt(error: Exception) -> None:
    """End a process whose GPU context is lost, in which every later task would fail; its nanny starts another."""
    lost = getattr(torch, "AcceleratorError", None)
    if lost is not None and isinstance(error, lost) and not isinstance(error, torch.cuda.OutOfMemoryError):
        os._exit(SPOILT)
