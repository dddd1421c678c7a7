"""What the arena's results say about a new task, and what such predictions are worth.

The effect of a remedy is its R² on held-out combinations less that of the plain decoder. It is predicted as the mean
over the arena's tasks, weighted by how similar the measured assumptions are. Leaving out one task at a time shows
whether a remedy for each task loses less, against the best one of the task, than the same remedy for all.
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
from recombine.arena.protocol import PLAIN, Protocol, Rule
from recombine.arena.result import Arena, clipped
from recombine.errors import InvalidValue
from recombine.files import read_given
from recombine.records import Frozen
from recombine.reproduction.intervals import CONFIDENCE, Interval, TrimmedMean

if TYPE_CHECKING:
    import pandas

EVIDENCE = "evidence.json"
"""The evidence in a results folder, and in this package once the arena's results are committed."""
RANGE = 2.0
"""The largest effect, since scores lie between −1 and 1."""
PRESCRIBED, BROADCAST, AVERAGE = "prescribe", "broadcast", "best on average"
"""Strategies that are validated: a remedy for each task, and two that have the same for all."""


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
    """R² on the second hold-out in tuning, by seed, of the chosen configurations that learnt: what a trial shows."""
    images: dict[str, str] = Field(default_factory=dict)
    """Key of each task's images: tasks that differ only in the hold-out share it."""
    seconds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Training time of one network."""
    rule: Rule = Rule()
    """How a remedy is prescribed."""

    @classmethod
    def of(cls, arena: Arena, protocol: Protocol) -> Self:
        """Return an arena's results; assumptions are measured on the second hold-outs, on which remedies are tried."""
        rule = protocol.prescription
        fields: dict[str, Any] = {"assumptions": {}, "held_out": {}, "inner": {}, "images": {}, "seconds": {}}
        for task, chosen in arena.chosen.items():
            own = protocol.tasks[task]
            known = measured(own.tuning.task, rule.rank)
            fields["assumptions"][task] = {name: one if np.isfinite(one) else None for name, one in known.items()}
            fields["images"][task] = own.base.task.rendering_key
            data = {name: arena.scores(task, name) for name in chosen}
            fields["held_out"][task] = {name: clipped(one["ood_r2"]).tolist() for name, one in data.items()}
            fields["seconds"][task] = {name: float(one["seconds"].mean()) for name, one in data.items()}
            if arena.log is not None:
                groups = arena.log[arena.log["task"] == task].groupby(["remedy", "configuration"])
                logs = {name: log for (name, number), log in groups if chosen.get(name) == number}
                if PLAIN in logs:
                    able = {
                        name: clipped(log["inner"]).tolist() for name, log in logs.items() if learnt(log["id"], rule)
                    }
                    fields["inner"][task] = able
        return cls(**fields, rule=rule)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the evidence in a folder written by `recombine arena`."""
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

        Tasks on which its assumptions fail do not count, unless they fail on all. The interval is one for a new task:
        its width is that of the effects over tasks, and as many tasks count as the weights are worth.
        """
        from scipy.special import stdtrit

        known = [task for task, own in self.held_out.items() if {remedy, PLAIN} <= set(own)]
        known = [task for task in known if not self.rule.failing(remedy, self.assumptions[task])] or known
        if not known:
            return None
        weights = np.array([self.similarity(task, assumptions) for task in known])
        weights, means = weights / weights.sum(), [self.means(task) for task in known]
        effects = np.array([own[remedy] - own[PLAIN] for own in means])
        mean, lost = float(weights @ effects), float(weights @ weights)
        half, worth = 2 * RANGE, 1 / lost
        if worth > 1.5:  # tasks; a variance needs two
            variance = float(weights @ np.square(effects - mean)) / (1 - lost)
            half = -float(stdtrit(worth - 1, (1 - CONFIDENCE) / 2)) * np.sqrt(variance * (1 + lost))
        low, high = np.clip([mean - half, mean + half], -RANGE, RANGE)
        return Interval(mean, float(low), float(high), len(known))

    def similarity(self, task: str, assumptions: Mapping[str, float | None]) -> float:
        """Return how similar a task is, by the assumptions that could be measured on both, from 0 to 1."""
        values = [[own.get(name) for name in ASSUMPTIONS] for own in (assumptions, self.assumptions[task])]
        squares = np.square(np.diff(np.clip(np.array(values, dtype=float), 0, 1), axis=0))
        distance = np.nanmean(squares) if np.isfinite(squares).any() else 1.0
        return float(np.exp(-distance / (2 * self.rule.similar**2)))

    def best_on_average(self) -> str:
        """Return the remedy with the highest mean R² over tasks, of those that every task has."""
        means = [self.means(task) for task in self.held_out]
        return max(set.intersection(*map(set, means)), key=lambda name: (np.mean([own[name] for own in means]), name))

    def prescribed(self, task: str, *, trial: bool = True) -> str:
        """Return the remedy that would be prescribed for a task from the results on tasks with other images.

        With a trial, the best two compete with the plain decoder on the second hold-out in tuning.
        """
        known, others = self.assumptions[task], self.others(task)
        left = [name for name in self.held_out[task] if not self.rule.failing(name, known)]
        effects = {name: own.value for name in left if (own := others.effect(name, known)) is not None}
        best = sorted(effects, key=lambda name: -effects[name])
        if trial and task in self.inner:
            tried = [name for name in best if name != PLAIN][: self.rule.tried]
            inner = self.inner[task]
            return best_tried({name: inner[name] for name in (PLAIN, *tried) if name in inner}, self.rule)
        return best[0] if best else PLAIN

    @property
    def has_trials(self) -> bool:
        """Whether tuning, which shows what a trial would have shown, is known for every task."""
        return set(self.inner) == set(self.held_out)

    def others(self, task: str) -> Evidence:
        """Return the results on tasks with other images, of the remedies that this one has."""
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


def best_tried(trial: Mapping[str, Sequence[float]], rule: Rule, than: str = PLAIN) -> str:
    """Return the best remedy of those that are better in a trial than another, seed by seed, or that one if none is.

    If the other did not learn, and so is not in the trial, the best remedy is returned.
    """
    if than not in trial:
        return max(trial, key=lambda name: np.mean(trial[name]), default=than)
    gains = {name: TrimmedMean.of(np.subtract(own, trial[than])) for name, own in trial.items() if name != than}
    most = rule.error_rate / max(len(gains), 1)
    better = [name for name, own in gains.items() if (own.tail(0) <= most if own.networks > 1 else own.value > 0)]
    return max(better, key=lambda name: gains[name].value, default=than)


def regrets(validation: pandas.DataFrame) -> dict[str, float]:
    """Return the mean regret over tasks of each strategy that is known on all of them."""
    means = {name: float(validation[f"regret, {name}"].mean(skipna=False)) for name in (PRESCRIBED, AVERAGE, BROADCAST)}
    return {name: value for name, value in means.items() if np.isfinite(value)}


def learnt(kept: Any, rule: Rule) -> bool:
    """Return whether networks have learnt the kept images, by R² there."""
    return TrimmedMean.of(clipped(kept)).value >= rule.learnt
