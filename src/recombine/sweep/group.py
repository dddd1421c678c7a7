"""Members that train together: from their checkpoints, or the start, to finished runs that say where they came from."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

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
"""Copies of the weights that must fit the disk: a checkpoint (weights and two moments), its successor, the weights."""
SAVED_AT_ONCE = 8
EVALUATED_AT_ONCE = 512
"""Grid points that a GPU evaluates at a time, if it trained on as many together; a CPU takes a batch."""


class Group:
    """One ensemble on its way into the store; the caller holds the runs' locks."""

    def __init__(self, store: Store, specs: Mapping[str, RunSpec], device: torch.device) -> None:
        self.store, self.keys, self.device = store, list(specs), device
        self.ensemble = Ensemble(list(specs.values()), device)
        store.require_room(STATE_COPIES * FLOAT_BYTES * self.ensemble.layout.size * len(self.keys))
        now = time.time()
        members = []
        self.started, self.spent = [now] * len(self.keys), [0.0] * len(self.keys)
        for index, key in enumerate(self.keys):
            arrays = store.checkpoints.read(key)
            if arrays is None:
                members.append(self.ensemble.fresh(index))
            else:
                self.started[index], self.spent[index] = arrays.pop("clock").tolist()
                state = {name: torch.from_numpy(array) for name, array in arrays.items()}
                members.append({"buffers": torch.empty(0), **state})  # checkpoints of 0.1 before there were buffers
        self.state = State.stack(members, device)
        self._mark = time.perf_counter()

    def fit(self) -> Iterator[None]:
        """Train to the end, yielding between spans of steps; only then may the caller stop or checkpoint."""
        self._mark = time.perf_counter()
        yield from fit(self.ensemble, self.state)
        self._take_time()

    def _take_time(self) -> None:
        """Add the time since the last call to that of every member."""
        now = time.perf_counter()
        self.spent = [seconds + now - self._mark for seconds in self.spent]
        self._mark = now

    @property
    def steps_done(self) -> int:
        """Steps of all members together."""
        return int(self.state.step.sum())

    @property
    def error(self) -> float:
        """Mean over members of their newest training error."""
        newest = [errors[-1].item() for errors in self.state.errors if len(errors)]
        return torch.tensor(newest).nanmean().item()

    def checkpoint(self) -> None:
        """Keep every member's state."""
        self._take_time()
        for index, key in enumerate(self.keys):
            arrays = {name: part.numpy() for name, part in self.state.member(index).items()}
            clock = torch.tensor([self.started[index], self.spent[index]], dtype=torch.float64)
            self.store.checkpoints.write(key, {**arrays, "clock": clock.numpy()})

    def save_all(self) -> list[Run]:
        """Evaluate all members and put them into the store, several at a time: a disk takes its time to flush."""
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
        """What `Store.save` takes of a member: key, spec, result, weights, arrays."""
        ensemble, state = self.ensemble, self.state
        spec = ensemble.specs[index]
        evaluation = evaluator.of(lambda inputs: ensemble.outputs(state, index, inputs), spec.task.held_out)
        result = {
            "status": "done" if bool(self.state.alive[index]) else "diverged",
            "scores": _without_nan(scores(evaluation)),
            **_sampling(evaluation),
            "steps": int(self.state.step[index]),
            "provenance": {
                **provenance(self.device, spec.recipe.precision),
                "started": self.started[index],
                "finished": time.time(),
                "seconds": self.spent[index],
                "members_together": len(self.keys),
            },
        }
        history = _epoch_means(self.state.errors[index], ensemble.schedules[index].steps_per_epoch)
        return (
            self.keys[index],
            spec.to_json(),
            result,
            {name: part.cpu().numpy() for name, part in ensemble.named_weights(state, index).items()},
            {**{name: part.numpy() for name, part in evaluation.items()}, "history": history.numpy()},
        )


def _alike_in_sample(specs: Sequence[RunSpec], members: list[int]) -> list[list[int]]:
    """Members of tasks that render alike, apart by hold-out where that decides which points are drawn."""
    if not samples(specs[members[0]].task):
        return [members]
    groups: dict[str, list[int]] = {}
    for index in members:
        groups.setdefault(specs[index].task.holdout.model_dump_json(), []).append(index)
    return list(groups.values())


def _sampling(evaluation: dict[str, torch.Tensor]) -> dict[str, Any]:
    """How many points the scores are of, and how far off they may be, where points were drawn."""
    if "point" not in evaluation or bool((evaluation["weight"] == 1).all()):
        return {}
    return {"points": len(evaluation["point"]), "standard_errors": _without_nan(standard_errors(evaluation))}


def _without_nan(numbers: dict[str, float]) -> dict[str, float | None]:
    """Numbers as JSON has them."""
    return {name: value if value == value else None for name, value in numbers.items()}


def _epoch_means(errors: torch.Tensor, steps_per_epoch: int) -> torch.Tensor:
    """Mean training error of each epoch; the last one may be a part."""
    if not len(errors):
        return torch.empty(0)
    return torch.stack([part.mean() for part in errors.split(steps_per_epoch)])


@cache
def git_commit() -> str | None:
    """The commit of the source tree this package is imported from, `+changes` if files differ; none elsewhere.

    `RECOMBINE_COMMIT` names it where the tree is a copy without its history.
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
    """Versions, device and arithmetic, as one record."""
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
