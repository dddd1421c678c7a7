"""Train what is missing in the store on the workers of a Dask cluster.

Dask schedules. A task is the ordinary sweep over a few specs (`train_on_worker`): it takes the runs' locks, looks into
the store, trains from checkpoints and saves. So a task may be repeated, lost or cancelled without harm, and the driver
only compares what it asked for with the store: whatever is missing when a task is gone is submitted again.

The driver holds a lock of its own in the store while it runs. A task that does not find the lock's file when it begins
sees another folder at the store's path; one that finds it removed later writes a checkpoint and ends.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from recombine.errors import Interrupted, InvalidValue, RecombineError, RunsFailed, StoreError, reason_of
from recombine.keys import DIGEST_LENGTH
from recombine.specs import RunSpec
from recombine.store import Store
from recombine.sweep.local import POLL_SECONDS, STOPPED, Interruptions, Sweep
from recombine.sweep.progress import Say
from recombine.training import program_of, resolve_device, within
from recombine.version import __version__

RETRIES = 2
"""How often Dask repeats a task that raised."""
SUBMIT_SECONDS = 1.0
"""Time between submissions, so that a run that another driver trains is not asked for all the time."""
QUIET_SECONDS = 10.0
"""Time between two searches of the store for runs whose tasks have not reported."""
LOOK_SECONDS = 1.0
"""How often a task looks whether its driver is still there."""
CONNECT_SECONDS, RECONNECT_SECONDS = 10.0, 2.0
"""How long a connection to the scheduler may take: the first one, and each attempt after it was lost."""
LEAVE_SECONDS = 60.0
"""How long tasks may take to write their checkpoints when the driver is interrupted."""
CONTEXT_LOST = 70
"""Exit code of a worker whose CUDA context is lost."""


def train_on_cluster(sweep: Sweep, scheduler: Any, device: str, say: Say) -> None:
    """Finish a sweep on a cluster; runs that fail are put aside, and raised once everything else is in the store."""
    sweep.begin()
    if not sweep.pending:
        return
    with _quiet_dask(), Interruptions() as interruptions:
        driver = _Driver(sweep, scheduler, device, say)
        try:
            driver.run(interruptions)
        finally:
            driver.close()
    sweep.serve_finished()  # another driver may have had more luck
    if failed := {key: error for key, error in driver.failed.items() if key in sweep.pending}:
        reasons = {key: reason_of(error) for key, error in failed.items()}
        raise RunsFailed(reasons, sweep.runs) from next(iter(failed.values()))


class _Driver:
    """One call of `train_on_cluster`."""

    def __init__(self, sweep: Sweep, scheduler: Any, device: str, say: Say) -> None:
        self.sweep, self.scheduler, self.device, self.say = sweep, scheduler, device, say
        self.client = connected(scheduler, CONNECT_SECONDS)
        self.token = secrets.token_hex(DIGEST_LENGTH // 2)
        self.lock = sweep.store.lock(self.token)
        self.futures: dict[Any, list[str]] = {}
        """The runs of each task that is not over."""
        self.alone: set[str] = set()
        """Runs of tasks that failed: each is then a task of its own, until one run is to blame."""
        self.checkpoints: dict[str, int | None] = {}
        """When a run's checkpoint was written, at its last failure."""
        self.failed: dict[str, BaseException] = {}
        """Why runs were put aside."""
        self.submitted, self.searched = -math.inf, time.monotonic()
        self.steps = sweep.steps_pending
        self.is_waiting = False
        """Whether it was said that there are no workers."""

    def run(self, interruptions: Interruptions) -> None:
        """Submit tasks and compare with the store until nothing is missing."""
        self.lock.acquire()
        while any(key not in self.failed for key in self.sweep.pending):
            if interruptions.noted:
                self._stop()
            if self.client.status == "running":
                self._submit()
                self._collect()
            else:
                self._reconnect(interruptions)
            self._report()
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Leave the cluster; tasks that still run write checkpoints and end."""
        self.lock.release()
        _close(self.client)

    def _submit(self) -> None:
        """Submit every missing run that no task has."""
        now, sweep = time.monotonic(), self.sweep
        if now - self.submitted < SUBMIT_SECONDS:
            return
        self.submitted = now
        in_flight = {key for keys in self.futures.values() for key in keys}
        missing = [key for key in sweep.pending if key not in in_flight and key not in self.failed]
        try:
            workers = self.client.sync(self.client.scheduler.identity)["workers"].values() if missing else ()
            if missing and not workers and not self.is_waiting:
                self.is_waiting = True
                self.say("scheduler: waiting for workers")
            if not workers:
                return
            gpus = sum(worker["resources"].get("GPU", 0) > 0 for worker in workers)
            on_gpu = self.device == "cuda" or (self.device == "auto" and gpus > 0)
            # On a CPU members train in turn anyway: one run per task, so that Dask spreads them evenly.
            size = min(sweep.members, math.ceil(len(missing) / (gpus or len(workers)))) if on_gpu else 1
            for keys in self._groups(missing, size):
                specs = [sweep.pending[key] for key in keys]
                task = (
                    str(sweep.store.path.absolute()), self.token, __version__, specs, "cuda" if on_gpu else "cpu",
                    sweep.checkpoint_seconds, sweep.memory,
                )  # fmt: skip
                resources = {"GPU": 1} if on_gpu and gpus else None
                packed = _packed(train_on_worker, *task)
                self.futures[self.client.submit(packed, pure=False, retries=RETRIES, resources=resources)] = keys
        except Exception:
            if self.client.status == "running":
                raise  # else the scheduler was lost just now

    def _groups(self, keys: list[str], size: int) -> Iterator[list[str]]:
        """The runs of each task: of one program, those of like length together, the longest first."""
        alike: dict[object, list[str]] = {}
        for key in sorted(keys, key=lambda key: -self.sweep.steps[key]):
            alike.setdefault(key if key in self.alone else program_of(self.sweep.pending[key]), []).append(key)
        for group in alike.values():
            for first in range(0, len(group), size):
                yield group[first : first + size]

    def _collect(self) -> None:
        """Look up the runs of tasks that are over; and all others in the store, now and then.

        Where a worker's clock is set back, Dask holds its messages for as long, and only the store knows.
        """
        for future in [future for future in self.futures if future.done()]:
            missing = self._missing(self.futures.pop(future))
            if missing and future.status == "error":
                self._blame(missing, future.exception().with_traceback(future.traceback()))
        if time.monotonic() - self.searched >= QUIET_SECONDS:
            self.sweep.serve_finished()
            for future, keys in list(self.futures.items()):
                if not self._missing(keys):
                    del self.futures[future]
                    future.cancel()
            self.searched = time.monotonic()

    def _missing(self, keys: list[str]) -> list[str]:
        """Those of the runs that are not in the store."""
        return [key for key in keys if key in self.sweep.pending and not self.sweep.serve(key)]

    def _blame(self, keys: list[str], error: BaseException) -> None:
        """Take note of a task that raised again and again, or whose workers died.

        A run that has a new checkpoint since its last failure is not to blame; nor is one that was not begun when a
        worker died (a killed process leaves the file of its lock), but waited there behind another.
        """
        if isinstance(error, RecombineError):  # of the worker, its device or the store: the same for every run
            raise error
        if type(error).__name__ == "KilledWorker":
            keys = [key for key in keys if os.path.lexists(self.sweep.store.lock(key).path)]
        before = [self.checkpoints.get(key) for key in keys]
        paths = {key: self.sweep.store.checkpoints.folder / key for key in keys}
        self.checkpoints |= {key: path.stat().st_mtime_ns if path.exists() else None for key, path in paths.items()}
        if before != [self.checkpoints[key] for key in keys]:
            return
        if len(keys) > 1:
            self.alone.update(keys)
            return
        for key in keys:
            self.failed[key] = error
            self.sweep.steps_pending -= self.sweep.steps.pop(key)
            self.say(f"run {key}: put aside ({reason_of(error)})")

    def _reconnect(self, interruptions: Interruptions) -> None:
        """Wait for a scheduler that was lost, perhaps at another address; the runs of all tasks are missing again."""
        self.say(f"scheduler: lost; waiting for it, {len(self.sweep.pending)} runs are left")
        _close(self.client)
        self.futures.clear()
        while self.client.status != "running":
            if interruptions.noted:
                raise Interrupted(STOPPED)
            with suppress(InvalidValue):  # it is not back yet, or its file is just being written
                self.client = connected(self.scheduler, RECONNECT_SECONDS)
            self._report()
            time.sleep(POLL_SECONDS)
        self.say("scheduler: back")

    def _stop(self) -> NoReturn:
        """Let tasks write checkpoints, then stop."""
        store, deadline = self.sweep.store, time.monotonic() + LEAVE_SECONDS
        self.lock.release()
        self.client.cancel(list(self.futures))
        while any(store.is_busy(key) for key in self._locked()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        raise Interrupted(STOPPED)

    def _locked(self) -> set[str]:
        """Missing runs that have a lock: those that are trained now."""
        return self.sweep.pending.keys() & os.listdir(self.lock.path.parent)

    def _report(self) -> None:
        done = self.steps - self.sweep.steps_pending
        self.sweep.report(members=len(self._locked()), steps_done=done, failed=len(self.failed))


def train_on_worker(
    path: str,
    token: str,
    version: str,
    specs: list[RunSpec],
    device: str,
    checkpoint_seconds: float,
    memory: float | None,
) -> None:
    """Train specs into a store, on the Dask worker that this is called on; what others train is left to them."""
    from distributed import get_worker

    worker, hardware = get_worker(), resolve_device(device)
    if version != __version__:
        raise RecombineError(f"worker {worker.name}: recombine is {__version__}, the driver has {version}")
    if hardware.type == "cpu":
        torch.set_num_threads(1)  # so that bits do not depend on the worker's cores
    store = Store(path, create=False)
    driver = store.lock(token).path
    if not os.path.lexists(driver):
        raise StoreError(f"worker {worker.name}: the store at {path} is not the one that the driver sees")
    looked = time.monotonic()

    def should_stop() -> bool:
        """Whether the driver has gone, or the worker is closing: it was told to, or its scheduler was lost."""
        nonlocal looked
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            if not os.path.lexists(driver):
                return True
        return worker.status.name not in ("running", "paused")

    sweep = Sweep(specs, store, hardware, len(specs), checkpoint_seconds, None, memory)
    sweep.prepare()
    try:
        with within(memory, hardware), suppress(Interrupted):
            sweep.work(should_stop, wait=False)
    except getattr(torch, "AcceleratorError", ()) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        os._exit(CONTEXT_LOST)  # every later task of this process would fail; its nanny starts another


def _packed(function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    """A call as a function that is sent by value and unpacks itself on the worker.

    Dask's scheduler unpickles what is submitted; like this it needs neither this package nor classes of the user's.
    """
    from distributed.protocol.pickle import dumps

    content = dumps((function, arguments))

    def call() -> None:
        unpacked, given = pickle.loads(content)
        unpacked(*given)

    return call


def connected(scheduler: Any, seconds: float) -> Any:
    """A client of our own for a scheduler: an address, the path of a scheduler file, or a client of the user's."""
    try:
        from distributed import Client
    except ImportError:
        raise RecombineError("Dask is not installed: 'pip install distributed', here and on the workers") from None
    security = None  # Dask's own configuration then says how to encrypt
    if isinstance(scheduler, Client):
        security, scheduler = scheduler.security, scheduler.scheduler_file or scheduler.scheduler.address
    address = str(scheduler)
    try:
        if "://" not in address:
            address = str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
        return Client(address, timeout=seconds, security=security, set_as_default=False)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        allowed = "the address (tcp://HOST:PORT) of a running Dask scheduler, or the file that it wrote"
        raise InvalidValue("scheduler", str(scheduler), f"{allowed} ({reason_of(error)})") from None


def _close(client: Any) -> None:
    """Close a client, whether its scheduler answers or not."""
    with suppress(Exception):
        client.close(timeout=1)


@contextmanager
def _quiet_dask() -> Iterator[None]:
    """Leave out Dask's tracebacks on lost connections: what they mean for the sweep is said by the driver."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("client", "core", "comm", "batched")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
