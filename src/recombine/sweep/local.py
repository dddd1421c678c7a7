"""Train what is not trained yet, in this process.

>>> runs = train(RunSpec(decoder="cnn:width=16").seeds(range(4)), store="runs")

Finished runs are served from the store. Unfinished ones go on from their checkpoints to the same bits. Several
processes may work on one store: a run that another one is training is waited for, never trained twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recombine.errors import InvalidValue, RecombineError
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.locks import Lock
from recombine.sweep.provenance import provenance
from recombine.training import (
    Ensemble,
    State,
    check_precision,
    evaluate,
    fit,
    program_of,
    resolve_device,
    scores,
)

MEMBERS_AT_ONCE = {"cpu": 1, "cuda": 64}
"""Members of one program. On a CPU members train in turn anyway, and one at a time finishes the first one soonest."""
CHECKPOINT_SECONDS = 30.0
POLL_SECONDS = 0.2
FLOAT_BYTES = 4
STATE_COPIES = 7
"""Room asked for before training: a checkpoint (weights and two moments), its successor, and the weights."""


class Interrupted(RecombineError):
    """Stopped by the user; what was done is in the store."""


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
    specs: Sequence[RunSpec],
    store: Store | str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    members: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Callable[[Progress], None] | None = None,
) -> list[Run]:
    """The finished runs of all specs, in their order; what is missing is trained."""
    place = resolve_device(device)
    for spec in specs:
        check_precision(spec.recipe.precision, place)
    if members is not None and members < 1:
        raise InvalidValue("members", members, "at least 1")
    if not checkpoint_seconds >= 0:
        raise InvalidValue("checkpoint_seconds", checkpoint_seconds, "at least 0")
    store = store if isinstance(store, Store) else Store(store)
    sweep = _Sweep(list(specs), store, place, members or MEMBERS_AT_ONCE[place.type], checkpoint_seconds, watch)
    sweep.run()
    return [sweep.found[spec.digest] for spec in specs]


class _Sweep:
    """One call of `train`."""

    def __init__(
        self,
        specs: list[RunSpec],
        store: Store,
        device: torch.device,
        members: int,
        checkpoint_seconds: float,
        watch: Callable[[Progress], None] | None,
    ) -> None:
        self.store, self.device, self.members, self.every = store, device, members, checkpoint_seconds
        self.watch = watch or (lambda progress: None)
        self.found: dict[str, Run] = {}
        self.pending = {spec.digest: spec for spec in specs}
        self.runs = len(self.pending)
        self.steps_done = 0
        self.steps: dict[str, int] = {}

    def run(self) -> None:
        for key in list(self.pending):
            self._serve(key)
        self.steps = {key: _steps(spec) for key, spec in self.pending.items()}
        while self.pending:
            taken = self._take()
            try:
                if taken:
                    self._train([key for key, _ in taken])
                else:
                    self._wait()
            except torch.cuda.OutOfMemoryError:
                if self.members == 1 or len(taken) == 1:
                    raise
                self.members = max(1, len(taken) // 2)
                torch.cuda.empty_cache()
            finally:
                for _, lock in taken:
                    lock.release()

    def _serve(self, key: str) -> bool:
        """Whether the run is in the store, whole."""
        run = self.store.find(key)
        if run is not None:
            self.found[key] = run
            del self.pending[key]
        return run is not None

    def _take(self) -> list[tuple[str, Lock]]:
        """Locks on pending runs of one program that nobody else is training."""
        taken: list[tuple[str, Lock]] = []
        program = None
        for key, spec in list(self.pending.items()):
            if len(taken) == self.members:
                break
            if program is not None and program_of(spec) != program:
                continue
            lock = self.store.lock(key)
            if not lock.acquire(wait=False):
                continue
            if self._serve(key):  # finished by another process before we had the lock
                lock.release()
                continue
            program = program_of(spec)
            taken.append((key, lock))
        return taken

    def _wait(self) -> None:
        """Others are training all that is left."""
        self._report(0, 0, 0, float("nan"))
        time.sleep(POLL_SECONDS)
        for key in list(self.pending):
            self._serve(key)

    def _train(self, keys: list[str]) -> None:
        ensemble = Ensemble([self.pending[key] for key in keys], self.device)
        state = self._restored(ensemble, keys)
        started, began = time.time(), time.perf_counter()
        done = sum(state.step.tolist())
        saved = time.perf_counter()
        try:
            for _ in fit(ensemble, state):
                now = sum(state.step.tolist())
                self.steps_done += now - done
                done = now
                recent = torch.tensor([errors[-1] for errors in state.errors if len(errors)])
                self._report(len(keys), done, sum(ensemble.totals), recent.nanmean().item())
                if time.perf_counter() - saved >= self.every:
                    self._checkpoint(state, keys)
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            self._checkpoint(state, keys)
            raise Interrupted("interrupted; the same command goes on from here") from None
        record = {
            **provenance(self.device, ensemble.recipe.precision),
            "started": started,
            "finished": time.time(),
            "seconds": time.perf_counter() - began,
            "members_together": len(keys),
        }
        for index, key in enumerate(keys):
            self._finish(ensemble, state, index, key, record)

    def _restored(self, ensemble: Ensemble, keys: list[str]) -> State:
        """Each member where its checkpoint left it, or at the start."""
        self.store.require_room(STATE_COPIES * FLOAT_BYTES * ensemble.layout.size * len(keys))
        members = []
        for index, key in enumerate(keys):
            kept = self.store.read_checkpoint(key)
            members.append(
                ensemble.fresh(index)
                if kept is None
                else {name: torch.from_numpy(array) for name, array in kept.items()}
            )
        return State.stack(members, self.device)

    def _checkpoint(self, state: State, keys: list[str]) -> None:
        for index, key in enumerate(keys):
            self.store.write_checkpoint(key, {name: part.numpy() for name, part in state.member(index).items()})

    def _finish(self, ensemble: Ensemble, state: State, index: int, key: str, record: dict[str, Any]) -> None:
        spec, weights = ensemble.specs[index], state.weights[index]
        evaluation = evaluate(spec.task, lambda inputs: ensemble.outputs(weights, inputs), self.device)
        alive = bool(state.alive[index])
        result = {
            "status": "done" if alive else "diverged",
            "scores": {name: value if value == value else None for name, value in scores(evaluation).items()},
            "steps": int(state.step[index]),
            "provenance": record,
        }
        history = _epoch_means(state.errors[index], ensemble.schedules[index].steps_per_epoch)
        self.found[key] = self.store.save(
            key,
            spec.to_json(),
            result,
            {name: part.cpu().numpy() for name, part in ensemble.named_weights(weights).items()},
            {**{name: part.numpy() for name, part in evaluation.items()}, "history": history.numpy()},
        )
        del self.pending[key]

    def _report(self, members: int, done: int, total: int, error: float) -> None:
        waiting = sum(self.steps[key] for key in self.pending) - total
        self.watch(
            Progress(
                runs=self.runs,
                finished=len(self.found),
                members=members,
                steps_done=self.steps_done,
                steps_left=total - done + max(waiting, 0),
                error=error,
            )
        )


def _steps(spec: RunSpec) -> int:
    """Optimiser steps that a spec asks for."""
    if spec.recipe.steps is not None:
        return spec.recipe.steps
    rows = len(spec.task.training_values(spec.seed))
    return -(-rows // spec.recipe.batch) * (spec.recipe.epochs or 0)


def _epoch_means(errors: torch.Tensor, steps_per_epoch: int) -> torch.Tensor:
    """Mean training error of each epoch; the last one may be a part."""
    if not len(errors):
        return torch.empty(0)
    return torch.stack([part.mean() for part in errors.split(steps_per_epoch)])
