"""What the arena's results say about a new task, and what such predictions are worth.

The effect of a remedy is its R² on held-out combinations less that of the plain decoder. It is predicted as the mean
over the arena's tasks, weighted by how alike the measured assumptions are. Leaving out one task at a time shows whether
a remedy for each task loses less, against the best one of the task, than the same remedy for all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field

from recombine.arena.assumptions import ASSUMPTIONS, measured
from recombine.arena.protocol import CEILING, FILE, PLAIN, Protocol
from recombine.arena.result import LOWEST, SCORES, Arena
from recombine.errors import InvalidValue
from recombine.files import read_given
from recombine.records import Frozen
from recombine.remedies import REMEDIES
from recombine.reproduction.intervals import TRIM, Interval, Resampled, TrimmedMean

if TYPE_CHECKING:
    import pandas

EVIDENCE = "evidence.json"
"""The evidence in a results folder, and in this package once the arena's results are committed."""
HOLDS = 0.5
"""An assumption fails if it explains less than this share."""
SIMILAR = 0.25
"""Root mean square difference of assumptions at which a task's weight is 61 % of that of an equal task."""
DRAWS = 2000
PRESCRIBED, BROADCAST, AVERAGE = "prescribe", "broadcast", "best on average"
"""Strategies that are validated: a remedy for each task, and two that have the same for all."""
TRIED, ERRORS = 2, 2.0
"""Remedies that are tried, and standard errors by which one has to be better than the plain decoder."""


class Evidence(Frozen):
    """Results of the arena, by task and remedy.

    Examples
    --------
    >>> from recombine.arena import Evidence
    >>> own = Evidence(assumptions={"t": {"coverage": 1.0}}, held_out={"t": {"none": [0.1, 0.3], "broadcast": [0.8]}})
    >>> round(own.effect("broadcast", {"coverage": 1.0}).value, 3)
    0.6
    """

    assumptions: dict[str, dict[str, float | None]]
    """How well each assumption holds, by task; None if kept images cannot test it."""
    held_out: dict[str, dict[str, list[float]]]
    """R² on held-out combinations, by task, remedy and seed."""
    inner: dict[str, dict[str, list[float]]] = Field(default_factory=dict)
    """R² on the second hold-out in tuning, by seed: what a trial would have shown."""
    images: dict[str, str] = Field(default_factory=dict)
    """Key of each task's images: tasks that differ only in the hold-out share it."""
    seconds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Training time of one network."""

    @classmethod
    def of(cls, arena: Arena, protocol: Protocol) -> Self:
        """Return an arena's results; assumptions are measured on the second hold-outs of its tasks."""
        fields: dict[str, Any] = {"assumptions": {}, "held_out": {}, "inner": {}, "images": {}, "seconds": {}}
        for task, chosen in arena.chosen.items():
            known = measured(protocol.tasks[task].tuning.task)
            fields["assumptions"][task] = {name: own if np.isfinite(own) else None for name, own in known.items()}
            fields["images"][task] = protocol.tasks[task].base.task.rendering_key
            data = {name: arena.scores(task, name) for name in chosen if name != CEILING}
            fields["held_out"][task] = {name: clipped(own["ood_r2"].values).tolist() for name, own in data.items()}
            fields["seconds"][task] = {name: float(own["seconds"].mean()) for name, own in data.items()}
            if arena.log is not None:
                log = arena.log[arena.log["task"] == task].groupby(["remedy", "configuration"])["inner"]
                own = {name: clipped(values).tolist() for (name, k), values in log if chosen.get(name) == k}
                fields["inner"][task] = own
        return cls(**fields)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the evidence in a folder written by `recombine arena`, or in one that has only the evidence."""
        if (Path(folder) / SCORES).is_dir():
            protocol = Protocol.from_json(read_given(Path(folder) / FILE, "arena").decode())
            return cls.of(Arena.open(Path(folder), protocol.tasks), protocol)
        if not (file := Path(folder) / EVIDENCE).exists():
            raise InvalidValue("arena", str(folder), "a folder written by 'recombine arena'")
        return cls.from_json(read_given(file, "arena").decode())

    @classmethod
    def packaged(cls) -> Self | None:
        """Return the evidence of this package's arena, if there is any."""
        file = files("recombine.arena") / EVIDENCE
        return cls.from_json(file.read_text()) if file.is_file() else None

    def part(self, tasks: Collection[str], remedies: Collection[str]) -> Evidence:
        """Return the scores of some tasks and remedies."""
        scores = {task: self.held_out[task].items() for task in tasks}
        return self.replace(held_out={task: {k: v for k, v in own if k in remedies} for task, own in scores.items()})

    def means(self, task: str) -> dict[str, float]:
        """Return R² on held-out combinations by remedy: trimmed means over seeds."""
        return {name: TrimmedMean.of(own).value for name, own in self.held_out[task].items()}

    def effect(self, remedy: str, assumptions: Mapping[str, float | None]) -> Interval | None:
        """Return the predicted effect of a remedy, or None if no task has it.

        The interval is a bootstrap over tasks, by their weights, and seeds: of as many tasks as the weights are worth.
        """
        found = [task for task, own in self.held_out.items() if {remedy, PLAIN} <= set(own)]
        if not found:
            return None
        weights = np.array([self._weight(assumptions, self.assumptions[task]) for task in found])
        weights, random = weights / weights.sum(), np.random.default_rng(0)
        effects, drawn = list[float](), np.empty((len(found), DRAWS))
        for number, task in enumerate(found):
            own, plain = (np.array(self.held_out[task][name]) for name in (remedy, PLAIN))
            effects.append(TrimmedMean.of(own).value - TrimmedMean.of(plain).value)
            drawn[number] = _resampled(own, random) - _resampled(plain, random)
        chosen = random.choice(len(found), (DRAWS, round(1 / float(weights @ weights))), p=weights)
        means = drawn[chosen, random.integers(DRAWS, size=chosen.shape)].mean(axis=1)
        return Resampled(float(weights @ effects), tuple(means), len(found)).interval()

    @staticmethod
    def _weight(*assumptions: Mapping[str, float | None]) -> float:
        """Return how much alike two tasks are, by the assumptions that could be measured on both."""
        values = np.array([[own.get(name) for name in ASSUMPTIONS] for own in assumptions], dtype=float)
        apart = np.square(np.diff(np.clip(values, 0, 1), axis=0))
        return float(np.exp(-(np.nanmean(apart) if np.isfinite(apart).any() else 1.0) / (2 * SIMILAR**2)))

    def best_on_average(self) -> str:
        """Return the remedy with the highest mean R² over tasks, of those that every task has."""
        means = [self.means(task) for task in self.held_out]
        return max(set.intersection(*map(set, means)), key=lambda name: (np.mean([own[name] for own in means]), name))

    def prescribed(self, task: str, *, trial: bool = True) -> str:
        """Return the remedy that would be prescribed for a task from the results on tasks with other images.

        With a trial, the best two compete with the plain decoder on the second hold-out, if tuning has a log.
        """
        known, inner = self.assumptions[task], self.inner.get(task, {})
        left = [name for name in self.held_out[task] if not failing(assumed(name), known)]
        others = self.others(task)
        effects = {name: own.value for name in left if (own := others.effect(name, known)) is not None}
        best = sorted(effects, key=lambda name: -effects[name])
        tried = [name for name in best if name != PLAIN][:TRIED]
        if trial and {*tried, PLAIN} <= {*inner}:
            return best_tried({name: inner[name] for name in (*tried, PLAIN)})
        return best[0] if best else PLAIN

    def others(self, task: str) -> Evidence:
        """Return the results on tasks with other images, of the remedies that were tried on this one."""
        twins = {name for name in self.held_out if name == task or self.images.get(name, name) == self.images.get(task)}
        return self.part({*self.held_out} - twins, self.held_out[task])

    def validation(self, *, trial: bool = True) -> pandas.DataFrame | None:
        """Return what each strategy loses against the best remedy of a task, chosen from the results on the others.

        Columns are the best remedy (`oracle`), the prescribed one, that which is best on average over the other tasks,
        and the regret of each strategy: R² of the best remedy less its own. None if all tasks have the same images.
        """
        import pandas

        rows = {}
        for task in self.held_out:
            if not (others := self.others(task)).held_out:
                continue
            reached, average = self.means(task), others.best_on_average()
            chosen = {PRESCRIBED: self.prescribed(task, trial=trial), BROADCAST: BROADCAST, AVERAGE: average}
            oracle = max(reached, key=lambda name: reached[name])
            regrets = {f"regret, {name}": reached[oracle] - reached.get(own, np.nan) for name, own in chosen.items()}
            rows[task] = {"oracle": oracle, PRESCRIBED: chosen[PRESCRIBED], AVERAGE: average, **regrets}
        return pandas.DataFrame.from_dict(rows, orient="index") if rows else None


def best_tried(trial: Mapping[str, Sequence[float]]) -> str:
    """Return the best of the remedies that gain more than seeds vary in a trial, or the plain decoder if none does."""
    gains = {name: np.subtract(own, trial[PLAIN]) for name, own in trial.items() if name != PLAIN}
    doubts = {name: ERRORS * own.std(ddof=1) / len(own) ** 0.5 if len(own) > 1 else 0.0 for name, own in gains.items()}
    better = [name for name, own in gains.items() if own.mean() > doubts[name]]
    return max(better, key=lambda name: gains[name].mean(), default=PLAIN)


def _resampled(scores: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return trimmed means of seeds drawn with replacement."""
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(random.choice(scores, (DRAWS, len(scores))), TRIM, axis=1))


def regrets(validation: pandas.DataFrame) -> dict[str, float]:
    """Return the mean regret over tasks of each strategy that is known on all of them."""
    means = {name: float(validation[f"regret, {name}"].mean(skipna=False)) for name in (PRESCRIBED, AVERAGE, BROADCAST)}
    return {name: value for name, value in means.items() if np.isfinite(value)}


def clipped(scores: Any) -> np.ndarray:
    """Return scores as in the arena's table; those of networks that diverged are the lowest."""
    return np.clip(np.nan_to_num(np.asarray(scores, dtype=float), nan=LOWEST, neginf=LOWEST), LOWEST, 1)


def assumed(remedy: str) -> tuple[str, ...]:
    """Return what a remedy assumes, given by name, with or without settings."""
    name = remedy.partition(":")[0]
    return REMEDIES[name].assumes if name in REMEDIES else ()


def failing(assumes: Collection[str], assumptions: Mapping[str, float | None]) -> list[str]:
    """Return what fails of the assumptions, rounded as they are shown; what cannot be tested does not."""
    return [name for name in assumes if (value := assumptions.get(name)) is not None and round(value, 2) < HOLDS]
