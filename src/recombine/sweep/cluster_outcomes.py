"""What became of the tasks of a cluster: finished, failed, in trouble with the store, or gone with their worker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch

from recombine.errors import StoreError
from recombine.sweep.cluster_task import Outcome
from recombine.sweep.cluster_workers import Sizes, Worker
from recombine.sweep.local import Sweep
from recombine.sweep.progress import Say
from recombine.sweep.queue import STRIKES, Queue
from recombine.training import program_of

STORE_SECONDS, LONGEST_STORE_SECONDS = 1.0, 16.0
"""Until a worker whose store is full or refused is tried again, twice as long each time."""
STORE_TRIES = 3
"""Tries of every worker before a store that is refused for another reason than space ends the sweep."""
UNSEEN = 12
"""Times that a finished run may be missing in the driver's store, some minutes: a file system may take its time."""
CLOSING_SECONDS = 2.0
"""How long a worker that is closing may take to be gone."""


class Outcomes:
    """The runs of a sweep on a cluster: which are done, which wait, which were put aside."""

    def __init__(self, sweep: Sweep, workers: Mapping[str, Worker], say: Say) -> None:
        self.sweep, self.workers, self.say = sweep, workers, say
        longest_first = sorted(sweep.pending, key=lambda key: -sweep.steps[key])
        self.programs = {key: program_of(sweep.pending[key]) for key in longest_first}
        self.queue = Queue(self.programs, self._checkpoint_stamp)
        self.sizes = Sizes(sweep.members)
        self.unseen: dict[str, int] = {}
        """How often a run that a worker had finished was not in the driver's store."""
        self.said: set[str] = set()
        self.traces: dict[str, str] = {}
        """Where runs raised, by key."""

    def _checkpoint_stamp(self, key: str) -> object:
        """What changes when a run's checkpoint does."""
        with suppress(OSError):
            status = os.stat(self.sweep.store.checkpoints.folder / key)
            return status.st_ino, status.st_mtime_ns
        return None

    @property
    def left(self) -> int:
        """Runs that are neither finished nor put aside."""
        return len(self.sweep.pending) - sum(key in self.sweep.pending for key in self.queue.failed)

    def serve(self, key: str) -> bool:
        """Whether a run is in the store; then it is done with."""
        if key in self.sweep.pending and self.sweep.serve(key):
            self.queue.drop(key)
        return key not in self.sweep.pending

    def unfinished(self, keys: Iterable[str]) -> list[str]:
        """Those of the runs that are not in the store."""
        return [key for key in keys if not self.serve(key)]

    def put_back(self, keys: Iterable[str]) -> None:
        """A task ended through no fault of its runs."""
        self.queue.put_back(self.unfinished(keys))

    def note_unknown(self, keys: Iterable[str]) -> None:
        """Nobody knows how a task ended; perhaps its runs are in the store soon."""
        self.queue.put_off(self.unfinished(keys), time.monotonic())

    def note_unusable(self, worker: Worker, keys: Iterable[str], reason: str) -> None:
        """A worker cannot run tasks at all: something cannot be imported there."""
        worker.unusable = reason
        self.say(f"worker {worker.name}: set aside ({reason})")
        self.put_back(keys)

    def note_versions(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """Say once that workers have another PyTorch: its results may differ in their last bits."""
        here = str(torch.__version__)
        there = message.get("torch", here)
        if there.partition("+")[0] != here.partition("+")[0]:
            self.say_once(
                f"worker {worker.name}: torch {there}, and {here} here; bits of runs may depend on who trains them"
            )

    def note_death(self, worker: Worker, keys: Iterable[str], *, begun: bool) -> None:
        """A worker is gone: of its task, what is not finished is tried again, elsewhere and in smaller parts."""
        left = self.unfinished(keys)
        self.say(f"worker {worker.name}: lost, {len(left)} of its runs are tried again")
        reason = f"killed its worker {STRIKES} times, the last one was {worker.name}"
        self._put_aside(self.queue.blame(left, reason, worker.place, begun=begun))

    def note(self, worker: Worker, keys: list[str], outcome: Outcome, *, gpu: bool) -> None:
        """Take note of what a task says of its runs, and of what the store has of them."""
        now = time.monotonic()
        finished = [key for key in keys if key not in {*outcome.left, *outcome.failed}]
        unseen = self.unfinished(finished)
        self.queue.put_off(unseen, now)
        self._note_unseen(worker, unseen)
        failed, left = self.unfinished(outcome.failed), self.unfinished(outcome.left)
        if failed:
            self.traces |= dict.fromkeys(failed, outcome.trace)
            self._put_aside(self.queue.blame(failed, outcome.error, [worker.address]))
        if outcome.trouble:
            self._note_trouble(worker, outcome, now)
        elif worker.trouble and finished:
            self._note_no_trouble(worker)
        if outcome.stopped:  # it is about to end
            worker.rest(CLOSING_SECONDS, now)
        if outcome.trouble or outcome.stopped or outcome.failed:
            self.queue.put_back(left)
        else:  # somebody else trains them
            self.queue.put_off(left, now)
        if finished and not gpu:
            self.sizes.note(self.programs[finished[0]], len(finished), outcome.seconds)

    def _note_unseen(self, worker: Worker, keys: list[str]) -> None:
        """End with one line where a worker's store is not the driver's."""
        for key in keys:
            self.unseen[key] = self.unseen.get(key, 0) + 1
            if self.unseen[key] >= UNSEEN:
                path = str(self.sweep.store.path)
                raise StoreError(
                    f"store must be a directory that workers share with this process, got {path!r} "
                    f"(worker {worker.name} has finished runs there that are not here)"
                )

    def _note_trouble(self, worker: Worker, outcome: Outcome, now: float) -> None:
        """Wait for space; end with one line where no worker can use the store for another reason."""
        worker.rest(min(STORE_SECONDS * 2**worker.tries, LONGEST_STORE_SECONDS), now)
        worker.trouble, worker.tries = outcome.trouble, worker.tries + 1
        usable = [other for other in self.workers.values() if not other.unusable]
        if not outcome.full and all(other.tries >= STORE_TRIES for other in usable):
            raise StoreError(f"{outcome.trouble} (on all workers, last {worker.name})")
        if outcome.trouble not in self.said:
            self.said.add(outcome.trouble)
            self.say(f"{outcome.trouble} (on worker {worker.name}); waiting, finished runs are safe")

    def _note_no_trouble(self, worker: Worker) -> None:
        """Say, when the last worker can use the store again, that it can."""
        self.said.discard(worker.trouble)
        worker.trouble, worker.tries = "", 0
        if not any(other.trouble for other in self.workers.values()):
            self.say("store: it can be used again, going on")

    def _put_aside(self, keys: list[str]) -> None:
        for key in keys:
            self.sweep.steps_pending -= self.sweep.steps.pop(key, 0)
            self.say(f"run {key}: put aside ({self.queue.failed[key]})")

    def say_once(self, line: str) -> None:
        """Say what lasts, the first time."""
        if line not in self.said:
            self.said.add(line)
            self.say(line)
