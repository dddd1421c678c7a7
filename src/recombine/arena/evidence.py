"""What the arena's results say about a new task, and what such predictions are worth.

The effect of a remedy is its R² on held-out combinations less that of the plain decoder. It is predicted as the mean
over the arena's tasks, weighted by how alike the measured assumptions are. Leaving out one task at a time shows whether
a remedy for each task loses less, against the best one of the task, than the same remedy for all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field

from recombine.arena.assumptions import ASSUMPTIONS, measured
from recombine.arena.protocol import CEILING, FILE, PLAIN, Protocol
from recombine.arena.result import LOWEST, Arena
from recombine.errors import InvalidValue
from recombine.files import read_given
from recombine.records import Frozen
from recombine.remedies import REMEDIES
from recombine.reproduction.intervals import Interval, Resampled, TrimmedMean

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
TRIED = 2
"""Remedies that are tried."""


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
    inner: dict[str, dict[str, float]] = Field(default_factory=dict)
    """R² on the second hold-out in tuning, mean over seeds: what a trial would have shown."""
    seconds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Training time of one network."""

    @classmethod
    def of(cls, arena: Arena, protocol: Protocol) -> Self:
        """Return an arena's results; assumptions are measured on the second hold-outs of its tasks."""
        fields: dict[str, Any] = {"assumptions": {}, "held_out": {}, "inner": {}, "seconds": {}}
        for task, chosen in arena.chosen.items():
            known = measured(protocol.tasks[task].tuning.task)
            fields["assumptions"][task] = {name: own if np.isfinite(own) else None for name, own in known.items()}
            data = {name: arena.data.sel(task=task, remedy=name) for name in chosen if name != CEILING}
            fields["held_out"][task] = {name: clipped(own["ood_r2"].values).tolist() for name, own in data.items()}
            fields["seconds"][task] = {name: float(own["seconds"].mean()) for name, own in data.items()}
            if arena.log is not None:
                log = arena.log[arena.log["task"] == task].groupby(["remedy", "configuration"])["inner"]
                means = log.apply(lambda own: float(clipped(own).mean()))
                fields["inner"][task] = {name: means[own] for name, k in chosen.items() if (own := (name, k)) in means}
        return cls(**fields)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the evidence in a folder written by `recombine arena`."""
        if (file := Path(folder) / EVIDENCE).exists():
            return cls.from_json(read_given(file, "arena").decode())
        if not (Path(folder) / FILE).exists():
            raise InvalidValue("arena", str(folder), "a folder written by 'recombine arena'")
        protocol = Protocol.from_json(read_given(Path(folder) / FILE, "arena").decode())
        return cls.of(Arena.open(Path(folder), protocol.tasks), protocol)

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
        found = {task: np.array(own[remedy]) for task, own in self.held_out.items() if {remedy, PLAIN} <= set(own)}
        effects = [own - TrimmedMean.of(self.held_out[task][PLAIN]).value for task, own in found.items()]
        if not effects:
            return None
        weights = np.array([self._weight(assumptions, self.assumptions[task]) for task in found])
        weights, random = weights / weights.sum(), np.random.default_rng(0)
        drawn = np.empty((DRAWS, round(1 / float(weights @ weights))))
        chosen = random.choice(len(effects), drawn.shape, p=weights)
        for number, own in enumerate(effects):
            drawn[chosen == number] = random.choice(own, int((chosen == number).sum()))
        value = float(weights @ [TrimmedMean.of(own).value for own in effects])
        return Resampled(value, tuple(drawn.mean(axis=1)), len(effects)).interval()

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

    def prescribed(self, task: str) -> str:
        """Return the remedy that would be prescribed for a task from the results on the others.

        If tuning has a log, the best two are tried with the plain decoder: the highest R² on the second hold-out wins.
        """
        known, others = self.assumptions[task], self.part({*self.held_out} - {task}, self.held_out[task])
        left = [name for name in self.held_out[task] if not failing(assumed(name), known)]
        effects = {name: own.value for name in left if (own := others.effect(name, known)) is not None}
        best, inner = sorted(effects, key=lambda name: -effects[name]), self.inner.get(task, {})
        tried = [*[name for name in best if name != PLAIN][:TRIED], PLAIN]
        return max(tried, key=lambda name: inner[name]) if {*tried} <= {*inner} else best[0]

    def validation(self) -> pandas.DataFrame | None:
        """Return what each strategy loses against the best remedy of a task, chosen from the results on the others.

        Columns are the best remedy (`oracle`), the prescribed one, that which is best on average over the other tasks,
        and the regret of each strategy: R² of the best remedy less its own. None if there are fewer than two tasks.
        """
        import pandas

        rows = {}
        for task in self.held_out if len(self.held_out) > 1 else ():
            reached = self.means(task)
            average = self.part({*self.held_out} - {task}, reached).best_on_average()
            chosen = {PRESCRIBED: self.prescribed(task), BROADCAST: BROADCAST, AVERAGE: average}
            oracle = max(reached, key=lambda name: reached[name])
            regrets = {f"regret, {name}": reached[oracle] - reached.get(own, np.nan) for name, own in chosen.items()}
            rows[task] = {"oracle": oracle, PRESCRIBED: chosen[PRESCRIBED], AVERAGE: average, **regrets}
        return pandas.DataFrame.from_dict(rows, orient="index") if rows else None


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
