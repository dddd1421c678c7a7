"""A group of runs that train together, from the start or from checkpoints until they are saved in the store."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recombine.own_parts import own_parts
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.training import (
    Ensemble,
    Evaluator,
    State,
    device_name,
    fit,
    group_by_rendering,
    kernels_name,
    samples,
    scores,
    standard_errors,
)
from recombine.version import __version__

FLOAT_BYTES = 4
STATE_COPIES = 7
"""Copies of the weights that must fit on disk: two checkpoints (weights and two moments each) and the final weights."""
SAVED_AT_ONCE = 8
NO_PARTS = np.empty(0, np.uint8)
EVALUATED_AT_ONCE = 512
"""Maximum number of grid points that a GPU evaluates at once; a CPU uses the batch size."""


class Group:
    """An ensemble in training; the caller holds the locks of its runs."""

    def __init__(self, store: Store, specs: Mapping[str, RunSpec], device: torch.device) -> None:
        self.store, self.keys, self.device = store, list(specs), device
        self.ensemble = Ensemble(list(specs.values()), device)
        store.require_room(STATE_COPIES * FLOAT_BYTES * self.ensemble.layout.size * len(self.keys))
        now = time.time()
        members = []
        self.started, self.spent = [now] * len(self.keys), [0.0] * len(self.keys)
        for index, key in enumerate(self.keys):
            arrays = store.checkpoints.read(key)
            if arrays is None or arrays.pop("own_parts", NO_PARTS).tobytes() != _parts_text(specs[key]):
                # without a checkpoint, or with one that other code wrote
                members.append(self.ensemble.fresh(index))
            else:
                self.started[index], self.spent[index] = arrays.pop("clock").tolist()
                state = {name: torch.from_numpy(array) for name, array in arrays.items()}
                members.append({"buffers": torch.empty(0), **state})  # checkpoints of 0.1 before there were buffers
        self.state = State.stack(members, device)
        self._mark = time.perf_counter()

    def fit(self) -> Iterator[None]:
        """Train to the end, yielding every few steps so that the caller can stop or write a checkpoint."""
        self._mark = time.perf_counter()
        yield from fit(self.ensemble, self.state)
        self._take_time()

    def _take_time(self) -> None:
        """Add the time since the last call to every member's training time."""
        now = time.perf_counter()
        self.spent = [seconds + now - self._mark for seconds in self.spent]
        self._mark = now

    @property
    def steps_done(self) -> int:
        """Total number of steps taken by all members."""
        return int(self.state.step.sum())

    @property
    def error(self) -> float:
        """Mean of the members' latest training errors."""
        newest = [errors[-1].item() for errors in self.state.errors if len(errors)]
        return torch.tensor(newest).nanmean().item()

    def checkpoint(self) -> None:
        """Write a checkpoint of every member."""
        self._take_time()
        for index, key in enumerate(self.keys):
            arrays = {name: part.numpy() for name, part in self.state.member(index).items()}
            clock = torch.tensor([self.started[index], self.spent[index]], dtype=torch.float64)
            parts = np.frombuffer(_parts_text(self.ensemble.specs[index]), np.uint8)
            self.store.checkpoints.write(key, {**arrays, "clock": clock.numpy(), "own_parts": parts})

    def save_all(self) -> list[Run]:
        """Evaluate all members and save them to the store, several at a time, since flushing files is slow."""
        specs, saving, batch = self.ensemble.specs, {}, self.ensemble.recipe.batch
        chunk = batch if self.device.type == "cpu" else min(batch * len(self.keys), EVALUATED_AT_ONCE)
        with ThreadPoolExecutor(min(len(self.keys), SAVED_AT_ONCE)) as pool:
            for alike in group_by_rendering(specs):
                for same in _alike_in_sample(specs, alike):
                    evaluator = Evaluator(specs[same[0]].task, self.device, chunk)
                    for index in same:
                        saving[index] = pool.submit(self.store.save, *self._finished(index, evaluator))
            return [saving[index].result() for index in range(len(self.keys))]

    def _finished(
        self, index: int, evaluator: Evaluator
    ) -> tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the arguments of `Store.save` for a member: key, spec, result, weights and arrays."""
        ensemble, state = self.ensemble, self.state
        spec = ensemble.specs[index]
        evaluation = evaluator.of(lambda inputs: ensemble.outputs(state, index, inputs), spec.task.held_out)
        sampling: dict[str, Any] = {}
        if "point" in evaluation and not bool((evaluation["weight"] == 1).all()):
            errors = _without_nan(standard_errors(evaluation))
            sampling = {"points": len(evaluation["point"]), "standard_errors": errors}
        result = {
            "status": "done" if bool(self.state.alive[index]) else "diverged",
            "scores": _without_nan(scores(evaluation)),
            **sampling,
            "steps": int(self.state.step[index]),
            "provenance": {
                **provenance(self.device, spec.recipe.precision),
                "started": self.started[index],
                "finished": time.time(),
                "seconds": self.spent[index],
                "members_together": len(self.keys),
                **({"own_parts": parts} if (parts := own_parts(spec)) else {}),
            },
        }
        epochs = self.state.errors[index].split(ensemble.schedules[index].steps_per_epoch)
        history = torch.stack([epoch.mean() for epoch in epochs]) if len(self.state.errors[index]) else torch.empty(0)
        return (
            self.keys[index],
            spec.to_json(),
            result,
            {name: part.cpu().numpy() for name, part in ensemble.named_weights(state, index).items()},
            {**{name: part.numpy() for name, part in evaluation.items()}, "history": history.numpy()},
        )


def _parts_text(spec: RunSpec) -> bytes:
    """Return the source digests of a spec's parts from outside the package, for a checkpoint."""
    parts = own_parts(spec)
    return json.dumps(parts, sort_keys=True).encode() if parts else b""


def _alike_in_sample(specs: Sequence[RunSpec], members: list[int]) -> list[list[int]]:
    """Split members with the same images into groups with the same hold-out, if evaluation points depend on it."""
    if not samples(specs[members[0]].task):
        return [members]
    groups: dict[str, list[int]] = {}
    for index in members:
        groups.setdefault(specs[index].task.holdout.model_dump_json(), []).append(index)
    return list(groups.values())


def _without_nan(numbers: dict[str, float]) -> dict[str, float | None]:
    """Replace NaN by None, since JSON has no NaN."""
    return {name: value if value == value else None for name, value in numbers.items()}


@cache
def git_commit() -> str | None:
    """Return the commit of the source tree, with `+changes` if it was modified; None outside a git repository.

    `RECOMBINE_COMMIT` overrides it for a copy without git history.
    """
    if named := os.environ.get("RECOMBINE_COMMIT"):
        return named
    here = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", __file__) is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+changes" if commit and git("status", "--porcelain", "--untracked-files=no", ".") else commit


def provenance(device: torch.device, precision: str) -> dict[str, Any]:
    """Return versions, device and precision."""
    return {
        "recombine": __version__,
        "commit": git_commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device_name(device),
        "precision": precision,
        "kernels": kernels_name(device),
    }
