"""Train what is not trained yet, in this process, or in several (see `processes`).

>>> runs = train(RunSpec(decoder="cnn:width=16").seeds(range(4)), store="runs")

Finished runs are served from the store. Unfinished ones go on from their checkpoints to the same bits. Several
processes may work on one store: a run that another one is training is waited for, never trained twice.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from recombine import kernels
from recombine.checks import items, number, whole_number
from recombine.errors import Interrupted, InvalidValue
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.locks import Lock
from recombine.sweep.group import Group
from recombine.sweep.interrupts import Interruptions
from recombine.training import check_precision, fitting_members, program_of, resolve_device, within

MEMBERS_AT_ONCE = {"cpu": 1, "cuda": 128}
"""Members of one program. On a CPU members train in turn anyway, and one at a time finishes the first one soonest; on a
GPU more than this are hardly faster."""
CHECKPOINT_SECONDS = 30.0
POLL_SECONDS = 0.2
FEW = 64
"""Pending runs that are looked for one by one."""
STOPPED = "interrupted; the same command goes on from here"


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands."""

    runs: int
    """Runs asked for."""
    finished: int
    """Runs in the store."""
    members: int
    """Members training now."""
    steps_done: int
    steps_left: int
    """Steps of all members together, without those of runs that were in the store already."""
    error: float
    """Mean training error of the members training now."""


def train(
    specs: Iterable[RunSpec] | RunSpec,
    store: Store | str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    members: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Callable[[Progress], None] | None = None,
    processes: int | None = None,
    memory: float | None = None,
) -> list[Run]:
    """The finished runs of all specs (or of one), in their order; what is missing is trained.

    On a GPU, `members` is the most that train together, and `memory` the most GiB that they may take, by default what
    is free; members that do not fit are trained after the others.

    On a CPU, `processes` trains with that many processes of one thread each, to the same bits for any number of
    them; a script that asks for several keeps its own work under `if __name__ == "__main__":`.
    """
    specs = items("specs", specs, RunSpec, example="specs, as RunSpec(…) or RunSpec(…).seeds(range(4))")
    place = resolve_device(device)
    for spec in specs:
        check_precision(spec.recipe.precision, place)
    if members is not None:
        members = whole_number("members", members)
    checkpoint_seconds = number("checkpoint_seconds", checkpoint_seconds, at_least=0, or_infinity=True)
    if watch is not None and not callable(watch):
        raise InvalidValue("watch", watch, "a function that is told the Progress")
    if memory is not None and number("memory", memory, above=0) and place.type != "cuda":
        raise InvalidValue("memory", memory, f"device cuda (on {place.type} members train in turn)")
    if processes is not None and whole_number("processes", processes) and place.type != "cpu":
        raise InvalidValue("processes", processes, f"device cpu (on {place.type} one program trains all members)")
    store = store if isinstance(store, Store) else Store(store)
    sweep = Sweep(specs, store, place, members or MEMBERS_AT_ONCE[place.type], checkpoint_seconds, watch, memory)
    if processes is None:
        with within(memory, place):
            sweep.run()
    else:
        from recombine.sweep.processes import train_in_processes  # it is made of sweeps, so it imports this module

        train_in_processes(sweep, processes)
    return [sweep.found[spec.digest] for spec in specs]


class Sweep:
    """One call of `train`."""

    def __init__(
        self,
        specs: list[RunSpec],
        store: Store,
        device: torch.device,
        members: int,
        checkpoint_seconds: float,
        watch: Callable[[Progress], None] | None,
        memory: float | None = None,
    ) -> None:
        self.memory = memory
        self.fitting: dict[tuple[object, ...], int] = {}
        """Members of a program that fit the device."""
        self.store, self.device, self.members, self.every = store, device, members, checkpoint_seconds
        self.watch = watch or (lambda progress: None)
        self.found: dict[str, Run] = {}
        self.pending = {spec.digest: spec for spec in specs}
        self.runs = len(self.pending)
        self.steps_done = 0
        self.steps: dict[str, int] = {}
        self.steps_pending = 0
        """Steps of all pending runs, from their start."""

    def run(self) -> None:
        """Train what is missing, stopping between steps when interrupted."""
        self.begin()
        with Interruptions() as interruptions:
            self.work(interruptions)

    def begin(self) -> None:
        """Serve what is in the store already, and count the steps of the rest."""
        self.store.clean()
        self.serve_finished()
        self.steps = {key: _steps(spec) for key, spec in self.pending.items()}
        self.steps_pending = sum(self.steps.values())
        if self.pending and self.device.type == "cpu":
            kernels.available("cpu")  # compiled once, before several processes want them and runs are timed
        if self.device.type != "cpu":  # members of one program step together: those of like length belong together
            self.pending = dict(sorted(self.pending.items(), key=lambda item: -self.steps[item[0]]))

    def work(self, interruptions: Interruptions) -> None:
        """Train, or wait for others who do, until nothing is pending."""
        while self.pending:
            taken: dict[str, Lock] = {}
            try:
                self._take(taken)
                if taken:
                    self._train(list(taken), interruptions)
                else:
                    self._wait(interruptions)
            finally:
                for lock in taken.values():
                    lock.release()

    def serve_finished(self) -> None:
        """Serve what is in the store by now: a look at each of a few pending runs, or at the names of all runs."""
        pending = list(self.pending)
        for key in pending if len(pending) <= FEW else set(pending).intersection(self.store.keys()):
            self.serve(key)

    def serve(self, key: str, *, locked: bool = False) -> bool:
        """Whether the run is in the store, whole."""
        run = self.store.find(key, locked=locked)
        if run is not None:
            self._settle(key, run)
        return run is not None

    def _settle(self, key: str, run: Run) -> None:
        """Count a run as done."""
        self.found[key] = run
        del self.pending[key]
        self.steps_pending -= self.steps.get(key, 0)

    def _take(self, taken: dict[str, Lock]) -> None:
        """Lock pending runs of one program that nobody else is training."""
        program, most = None, self.members
        for key, spec in list(self.pending.items()):
            if len(taken) >= most:
                break
            if program is not None and program_of(spec) != program:
                continue
            lock = self.store.lock(key)
            if not lock.acquire(wait=False):
                continue
            taken[key] = lock
            if self.serve(key, locked=True):  # finished by another process before we had the lock
                taken.pop(key).release()
                continue
            if program is None:
                program = program_of(spec)
                most = min(self.members, self._fit(program))

    def _fit(self, program: tuple[object, ...]) -> int:
        """How many members of a program fit the device."""
        if program not in self.fitting:
            alike = [spec for spec in self.pending.values() if program_of(spec) == program][: self.members]
            self.fitting[program] = fitting_members(alike, self.device, self.memory)
        return self.fitting[program]

    def _wait(self, interruptions: Interruptions) -> None:
        """Others are training all that is left."""
        self._report(None)
        time.sleep(POLL_SECONDS)
        if interruptions.asked:
            raise Interrupted(STOPPED)
        self.serve_finished()

    def _train(self, keys: list[str], interruptions: Interruptions) -> None:
        try:
            group = self._trained(keys, interruptions)
        except torch.cuda.OutOfMemoryError:
            if len(keys) == 1:
                raise
            group = None
        if group is None:  # outside the handler, whose traceback holds on to the memory
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

    def _trained(self, keys: list[str], interruptions: Interruptions) -> Group:
        """Train these together to the end."""
        group = Group(self.store, {key: self.pending[key] for key in keys}, self.device)
        done, saved = group.steps_done, time.perf_counter()
        for _ in group.fit():
            self.steps_done += group.steps_done - done
            done = group.steps_done
            self._report(group)
            if interruptions.asked:
                group.checkpoint()
                raise Interrupted(STOPPED)
            if time.perf_counter() - saved >= self.every:
                group.checkpoint()
                saved = time.perf_counter()
        return group

    def _report(self, group: Group | None) -> None:
        self.watch(
            Progress(
                runs=self.runs,
                finished=len(self.found),
                members=len(group.keys) if group else 0,
                steps_done=self.steps_done,
                steps_left=self.steps_pending - (group.steps_done if group else 0),
                error=group.error if group else float("nan"),
            )
        )


def _steps(spec: RunSpec) -> int:
    """Optimiser steps that a spec asks for."""
    if spec.recipe.steps is not None:
        return spec.recipe.steps
    rows = len(spec.task.training_values(spec.seed))
    return -(-rows // spec.recipe.batch) * (spec.recipe.epochs or 0)
