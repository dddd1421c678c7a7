"""The workers of a Dask cluster as the driver sees them: who is there, what each does, how much it takes at once."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from recombine.sweep.progress import WorkerProgress

TASK_SECONDS = 2.0
"""Short runs are sent several at a time, so that a task takes about this long and sending it costs little."""
MOST_RUNS = 32
"""Runs of a task on a CPU."""
TURNS = 4
"""Tasks that are to be left for each worker, so that all of them end at about the same time."""


@dataclass
class Flight:
    """A task that a worker has."""

    number: int
    keys: list[str]
    steps: int
    """Steps of its runs, from their start."""
    future: Any = None
    begun: bool = False
    members: int = 0
    steps_done: int = 0
    taken: int = 0
    """Steps that the worker has taken for it."""
    error: float = math.nan
    heard: float = field(default_factory=time.monotonic)
    """When something last came from it, or was looked for in the store instead."""

    def note(self, message: Mapping[str, Any]) -> None:
        """Take note of a report."""
        self.begun, self.heard = True, time.monotonic()
        self.members = message.get("members", self.members)
        self.steps_done = message.get("steps", self.steps_done)
        self.taken = message.get("taken", self.taken)
        self.error = message.get("error", self.error)


@dataclass
class Worker:
    """A worker process of the cluster."""

    address: str
    name: str
    host: str
    process: str
    """A folder of its own: another process at the same address has another one."""
    status: str
    gpus: float
    flight: Flight | None = None
    rests_until: float = 0.0
    trouble: str = ""
    """Why the store could not be used from there at the last try."""
    tries: int = 0
    """Tries in a row that met this trouble."""
    unusable: str = ""
    """Why nothing can run there."""

    @property
    def place(self) -> tuple[str, str]:
        """Its address and its host."""
        return self.address, self.host

    @property
    def progress(self) -> WorkerProgress:
        """What it is doing, for whoever watches."""
        flight = self.flight or Flight(0, [], 0)
        return WorkerProgress(self.name, flight.members, flight.steps_done, flight.steps)

    def takes_ensembles(self, device: str) -> bool:
        """Whether it trains on a GPU, where the sweep was asked for such a device."""
        return device == "cuda" or (device == "auto" and self.gpus > 0)

    def is_free(self, now: float) -> bool:
        """Whether it can take a task."""
        return self.flight is None and not self.unusable and self.status == "running" and now >= self.rests_until

    def rest(self, seconds: float, now: float) -> None:
        """Give it nothing for a while."""
        self.rests_until = now + seconds


def listed_workers(identity: Mapping[str, Any]) -> dict[str, Worker]:
    """The workers that a scheduler's identity names, by address."""
    workers = {}
    for address, entry in identity["workers"].items():
        name = str(entry.get("name") or address)
        workers[address] = Worker(
            address, name, str(entry.get("host", "")), str(entry.get("local_directory", "")),
            str(entry.get("status", "running")), float(entry.get("resources", {}).get("GPU", 0)),
        )  # fmt: skip
    return workers


class Sizes:
    """How many runs a task takes: an ensemble on a GPU; on a CPU as many as take a few seconds one after the other."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.seconds: dict[object, float] = {}
        """Seconds of a run of a program on a CPU."""

    def note(self, program: object, runs: int, seconds: float) -> None:
        """Take note of how long so many runs took."""
        self.seconds[program] = seconds / runs

    def of(self, program: object, waiting: int, *, gpu: bool, workers: int) -> int:
        """For one of so many workers, when so many runs wait."""
        if gpu:
            return min(self.members, math.ceil(waiting / workers))
        wanted = TASK_SECONDS / max(self.seconds.get(program, math.inf), 1e-3)
        return max(1, min(int(wanted), MOST_RUNS, waiting // (TURNS * workers)))


def is_elsewhere(workers: Collection[Worker], avoided: Collection[str]) -> bool:
    """Whether there is a usable worker that is not, and whose host is not, among those avoided."""
    return any(not worker.unusable and set(worker.place).isdisjoint(avoided) for worker in workers)
