"""A sweep in this process; the store's locks divide the work among all processes that share it."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, Self

import torch

from recombine import kernels
from recombine.errors import Interrupted
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.unfinished import Lock
from recombine.sweep.group import Group
from recombine.sweep.progress import Progress, Watch
from recombine.training import fitting_members, program_of

POLL_SECONDS = 0.2
Check = Literal["bytes", "names"]
STOPPED = "interrupted; run the same command to continue"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ShouldStop = Callable[[], bool]
"""Function that returns whether to stop; it is called every few steps."""


class Interruptions:
    """A context that records the first interruption (SIGINT or SIGTERM) instead of raising; a second one raises.

    Interrupting a step would leave an inconsistent state, so a sweep checks between steps, writes a checkpoint and
    stops. Outside the main thread, which receives all signals, the context does nothing.
    """

    def __init__(self) -> None:
        self.noted = False
        self._before: dict[int, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Sweep:
    """The state of one call of `train`."""

    def __init__(
        self,
        specs: list[RunSpec],
        store: Store,
        device: torch.device,
        members: int,
        checkpoint_seconds: float,
        watch: Watch | None,
        memory: float | None = None,
        check: Check = "bytes",
    ) -> None:
        self.memory, self.check = memory, check
        self.fitting: dict[tuple[object, ...], int] = {}
        """Number of members that fit into memory, by program (the settings shared by runs that train together)."""
        self.store, self.device, self.members = store, device, members
        self.checkpoint_seconds = checkpoint_seconds
        self.watch = watch or (lambda progress: None)
        self.finished: dict[str, Run] = {}
        self.pending = {spec.digest: spec for spec in specs}
        self.runs = len(self.pending)
        self.steps_done = 0
        self.steps: dict[str, int] = {}
        self.steps_pending = 0
        """Total number of steps of all pending runs."""

    def run(self) -> None:
        """Train pending runs, stopping between steps when interrupted."""
        self.prepare()
        with Interruptions() as interruptions:
            self.work(lambda: interruptions.noted)

    def prepare(self, *, clean: bool = True) -> None:
        """Find completed runs in the store, and count the steps of the others; clean up after killed processes."""
        if clean:
            self.store.clean()
        self.serve_finished()
        self.steps = {key: spec.total_steps for key, spec in self.pending.items()}
        self.steps_pending = sum(self.steps.values())
        if self.pending and self.device.type == "cpu":
            kernels.available("cpu")  # compile once, before worker processes start and runs are timed
        if self.device.type != "cpu":  # group runs of similar length, since members step together
            self.pending = dict(sorted(self.pending.items(), key=lambda item: -self.steps[item[0]]))

    def work(self, should_stop: ShouldStop, *, wait: bool = True) -> None:
        """Train all pending runs; wait for those that other processes are training, or skip them (`wait=False`)."""
        while self.pending:
            taken: dict[str, Lock] = {}
            try:
                self._take(taken)
                if taken:
                    self._train(list(taken), should_stop)
                elif not wait:
                    return
                else:  # other processes are training all remaining runs
                    self.report()
                    time.sleep(POLL_SECONDS)
                    if should_stop():
                        raise Interrupted(STOPPED)
                    self.serve_finished()
            finally:
                for lock in taken.values():
                    lock.release()

    def serve_finished(self) -> None:
        """Find pending runs in the store."""
        for key in self.pending.keys() & self.store.keys():
            if self.check == "names":
                self._settle(key, self.store.run(key))
            else:
                self.serve(key)

    def serve(self, key: str, *, locked: bool = False) -> bool:
        """Count a pending run as finished if it is in the store and undamaged; return whether it is."""
        run = self.store.find(key, locked=locked)
        if run is not None:
            self._settle(key, run)
        return run is not None

    def _settle(self, key: str, run: Run) -> None:
        self.finished[key] = run
        del self.pending[key]
        self.steps_pending -= self.steps.get(key, 0)

    def _take(self, taken: dict[str, Lock]) -> None:
        """Lock pending runs that can train together and that no other process is training."""
        program, limit = None, self.members
        for key, spec in list(self.pending.items()):
            if len(taken) >= limit:
                break
            if program is not None and program_of(spec) != program:
                continue
            lock = self.store.lock(key)
            if not lock.acquire(wait=False):
                continue
            taken[key] = lock
            if self.serve(key, locked=True):  # finished by another process in the meantime
                taken.pop(key).release()
                continue
            if program is None:
                program = program_of(spec)
                if program not in self.fitting:
                    alike = [other for other in self.pending.values() if program_of(other) == program]
                    self.fitting[program] = fitting_members(alike[: self.members], self.device, self.memory)
                limit = min(self.members, self.fitting[program])

    def _train(self, keys: list[str], should_stop: ShouldStop) -> None:
        """Train some runs together and save them; if memory runs out, only halve the number for the next attempt."""
        try:
            group = self._trained(keys, should_stop)
        except torch.cuda.OutOfMemoryError:
            if len(keys) == 1:
                raise
            group = None
        if group is None:  # outside the handler, whose traceback keeps the memory allocated
            self.fitting[program_of(self.pending[keys[0]])] = len(keys) // 2
            gc.collect()
            torch.cuda.empty_cache()
            return
        try:
            for key, run in zip(keys, group.save_all(), strict=True):
                self._settle(key, run)
        except BaseException:
            group.checkpoint()
            raise

    def _trained(self, keys: list[str], should_stop: ShouldStop) -> Group:
        group = Group(self.store, {key: self.pending[key] for key in keys}, self.device)
        done, saved = group.steps_done, time.perf_counter()
        for _ in group.fit():
            self.steps_done += group.steps_done - done
            done = group.steps_done
            self.report(members=len(keys), steps_left=self.steps_pending - done, error=group.error)
            if should_stop():
                group.checkpoint()
                raise Interrupted(STOPPED)
            if time.perf_counter() - saved >= self.checkpoint_seconds:
                group.checkpoint()
                saved = time.perf_counter()
        return group

    def report(self, **training: Any) -> None:
        """Report progress, including the given values for the members in training."""
        idle = {"members": 0, "steps_done": self.steps_done, "steps_left": self.steps_pending}
        state: dict[str, Any] = {**idle, "error": math.nan, **training}
        self.watch(Progress(runs=self.runs, finished=len(self.finished), **state))
