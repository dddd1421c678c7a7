"""A sweep on a Dask cluster.

Each Dask task is an ordinary sweep over a few specs (`train_on_worker`): it locks the runs, checks the store, trains
from checkpoints and saves. Tasks can be repeated, lost or cancelled without harm, since the driver (the process that
started the sweep) compares its specs with the store and submits missing runs again.

The driver holds a separate lock in the store while it runs. If a task does not find the lock file at the start, its
store is not the driver's; if the file disappears later, the task writes a checkpoint and ends.
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

QUIET_SECONDS = 10.0
"""Time between checks of the store for runs whose tasks have not reported."""
CONNECT_SECONDS, RECONNECT_SECONDS = 10.0, 2.0
"""Timeouts for connecting to the scheduler: at the start, and for each later attempt."""
LEAVE_SECONDS = 60.0
"""Time allowed for tasks to write checkpoints when the driver is interrupted."""


def train_on_cluster(sweep: Sweep, scheduler: Any, device: str, say: Say) -> None:
    """Finish a sweep on a cluster; raise for failed runs after all others have finished."""
    sweep.prepare()
    if not sweep.pending:
        return
    with _quiet_dask(), Interruptions() as interruptions:
        driver = _Driver(sweep, scheduler, device, say)
        try:
            driver.run(interruptions)
        finally:
            driver.close()
    sweep.serve_finished()  # another driver may have finished them
    if failed := {key: error for key, error in driver.failed.items() if key in sweep.pending}:
        reasons = {key: reason_of(error) for key, error in failed.items()}
        raise RunsFailed(reasons, sweep.runs) from next(iter(failed.values()))


class _Driver:
    """The state of one call of `train_on_cluster`."""

    def __init__(self, sweep: Sweep, scheduler: Any, device: str, say: Say) -> None:
        self.sweep, self.scheduler, self.device, self.say = sweep, scheduler, device, say
        self.client = connected(scheduler, CONNECT_SECONDS)
        self.token = secrets.token_hex(DIGEST_LENGTH // 2)
        self.lock = sweep.store.lock(self.token)
        self.futures: dict[Any, list[str]] = {}
        """Runs of each unfinished task."""
        self.alone: set[str] = set()
        """Runs of failed tasks, which are submitted one by one to find the one that fails."""
        self.checkpoints: dict[str, int | None] = {}
        """Time stamp of a run's checkpoint at its last failure."""
        self.failed: dict[str, BaseException] = {}
        self.submitted, self.searched = -math.inf, time.monotonic()
        self.steps = sweep.steps_pending
        self.is_waiting = False
        """Whether the user has been told that there are no workers."""

    def run(self, interruptions: Interruptions) -> None:
        """Submit tasks and check the store until no run is missing."""
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
        """Leave the cluster; tasks still running write checkpoints and end."""
        self.lock.release()
        close(self.client)

    def _submit(self) -> None:
        """Submit all missing runs that are not part of a task."""
        now, sweep = time.monotonic(), self.sweep
        if now - self.submitted < 1:  # do not keep submitting runs that another driver is training
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
            # On a CPU, members train in turn anyway; with one run per task, Dask distributes them evenly.
            size = min(sweep.members, math.ceil(len(missing) / (gpus or len(workers)))) if on_gpu else 1
            for keys in self._groups(missing, size):
                specs = [sweep.pending[key] for key in keys]
                task = (
                    str(sweep.store.path.absolute()), self.token, __version__, specs, "cuda" if on_gpu else "cpu",
                    sweep.checkpoint_seconds, sweep.memory,
                )  # fmt: skip
                resources = {"GPU": 1} if on_gpu and gpus else None
                packed = _packed(train_on_worker, *task)
                self.futures[self.client.submit(packed, pure=False, retries=2, resources=resources)] = keys
        except Exception:
            if self.client.status == "running":
                raise  # otherwise the connection to the scheduler was just lost

    def _groups(self, keys: list[str], size: int) -> Iterator[list[str]]:
        """Yield the runs of each task, which can train together and have similar lengths, longest first."""
        alike: dict[object, list[str]] = {}
        for key in sorted(keys, key=lambda key: -self.sweep.steps[key]):
            alike.setdefault(key if key in self.alone else program_of(self.sweep.pending[key]), []).append(key)
        for group in alike.values():
            for first in range(0, len(group), size):
                yield group[first : first + size]

    def _collect(self) -> None:
        """Look up the runs of finished tasks in the store and, from time to time, all other runs."""
        for future in [future for future in self.futures if future.done()]:
            missing = self._missing(self.futures.pop(future))
            if missing and future.status == "error":
                self._blame(missing, future.exception().with_traceback(future.traceback()))
        # If a worker's clock is set back, Dask delays its messages by that amount; only the store is up to date.
        if time.monotonic() - self.searched >= QUIET_SECONDS:
            self.sweep.serve_finished()
            for future, keys in list(self.futures.items()):
                if not self._missing(keys):
                    del self.futures[future]
                    future.cancel()
            self.searched = time.monotonic()

    def _missing(self, keys: list[str]) -> list[str]:
        return [key for key in keys if key in self.sweep.pending and not self.sweep.serve(key)]

    def _blame(self, keys: list[str], error: BaseException) -> None:
        """Record the failure of a task that raised repeatedly or whose workers died.

        Runs are not to blame if they have written a checkpoint since their last failure, or had not started when the
        worker died (a killed process leaves its lock file behind).
        """
        if isinstance(error, RecombineError):  # caused by the worker, its device or the store, not by a run
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
            self.say(f"run {key}: failed ({reason_of(error)})")

    def _reconnect(self, interruptions: Interruptions) -> None:
        """Wait until the scheduler can be reached again, possibly at another address, then resubmit all tasks."""
        self.say(f"scheduler: connection lost, waiting ({len(self.sweep.pending)} runs left)")
        close(self.client)
        self.futures.clear()
        while self.client.status != "running":
            if interruptions.noted:
                raise Interrupted(STOPPED)
            with suppress(InvalidValue):  # not back yet, or its file is being written
                self.client = connected(self.scheduler, RECONNECT_SECONDS)
            self._report()
            time.sleep(POLL_SECONDS)
        self.say("scheduler: connected again")

    def _stop(self) -> NoReturn:
        """Wait for the tasks to write checkpoints, then stop."""
        store, deadline = self.sweep.store, time.monotonic() + LEAVE_SECONDS
        self.lock.release()
        self.client.cancel(list(self.futures))
        while any(store.is_busy(key) for key in self._locked()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        raise Interrupted(STOPPED)

    def _locked(self) -> set[str]:
        """Return the missing runs that are being trained."""
        return self.sweep.pending.keys() & os.listdir(self.lock.path.parent)

    def _report(self) -> None:
        done = self.steps - self.sweep.steps_pending
        self.sweep.report(members=len(self._locked()), steps_done=done, failed=len(self.failed))


def train_on_worker(
    path: str, token: str, version: str, specs: list[RunSpec], device: str, checkpoint_seconds: float,
    memory: float | None,
) -> None:  # fmt: skip
    """Train specs on the current Dask worker, except runs that other processes are training."""
    from distributed import get_worker

    worker, hardware = get_worker(), resolve_device(device)
    if version != __version__:
        raise RecombineError(f"worker {worker.name}: recombine is {__version__}, the driver has {version}")
    if hardware.type == "cpu":
        torch.set_num_threads(1)  # so that results do not depend on the number of cores
    store = Store(path, create=False)
    driver = store.lock(token).path
    if not os.path.lexists(driver):
        raise StoreError(f"worker {worker.name}: the store at {path} is not the driver's")
    looked = time.monotonic()

    def should_stop() -> bool:
        nonlocal looked
        if time.monotonic() - looked >= 1:
            looked = time.monotonic()
            if not os.path.lexists(driver):
                return True
        return worker.status.name not in ("running", "paused")

    sweep = Sweep(specs, store, hardware, len(specs), checkpoint_seconds, None, memory)
    sweep.prepare(clean=False)
    try:
        with within(memory, hardware), suppress(Interrupted):
            sweep.work(should_stop, wait=False)
    except getattr(torch, "AcceleratorError", ()) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        os._exit(os.EX_SOFTWARE)  # without its CUDA context, later tasks would fail; Dask's nanny restarts the worker


def _packed(function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    """Return a function without arguments that unpickles a call on the worker and executes it."""
    from distributed.protocol.pickle import dumps

    # Dask's scheduler unpickles whatever is submitted, but may not have this package or the user's classes.
    content = dumps((function, arguments))

    def call() -> None:
        unpacked, given = pickle.loads(content)
        unpacked(*given)

    return call


def connected(scheduler: Any, seconds: float) -> Any:
    """Return a new client for a scheduler, given by its address, its file or an existing client."""
    try:
        from distributed import Client
    except ImportError:
        raise RecombineError("Dask is not installed: 'pip install distributed', here and on the workers") from None
    security = None  # use Dask's configuration
    if isinstance(scheduler, Client):
        security, scheduler = scheduler.security, scheduler.scheduler_file or scheduler.scheduler.address
    address = str(scheduler)
    try:
        if "://" not in address:
            address = str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
        return Client(address, timeout=seconds, security=security, set_as_default=False)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        allowed = "the address (tcp://HOST:PORT) of a running Dask scheduler, or its scheduler file"
        raise InvalidValue("scheduler", str(scheduler), f"{allowed} ({reason_of(error)})") from None


def close(client: Any) -> None:
    """Close a client, even if its scheduler does not respond."""
    with suppress(Exception):
        client.close(timeout=1)


@contextmanager
def _quiet_dask() -> Iterator[None]:
    """Silence Dask's tracebacks about lost connections, which the driver reports itself."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("client", "core", "comm", "batched")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
