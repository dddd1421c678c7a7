"""Mean and standard deviation of scores over seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recombine.store.names import SCORES
from recombine.store.run import Run, flattened


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds; the deviation is NaN for a single seed."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Summary:
    """A summary of runs that differ only in their seed.

    Parameters
    ----------
    settings
        Values of the fields, such as `task.encoding.kind`, in which the summaries differ.
    seeds
        Number of runs that did not diverge.
    diverged
        Number of runs that diverged.
    scores
        Mean and standard deviation over seeds of each score.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.Summary({"decoder.width": 8}, seeds=2, diverged=0, scores={}).label
    'width=8'
    """

    settings: dict[str, Any]
    seeds: int
    diverged: int
    scores: dict[str, Spread]

    @property
    def label(self) -> str:
        """The settings as short text."""
        names = {name: name.removesuffix(".kind").split(".")[-1] for name in self.settings}
        return ", ".join(f"{names[name]}={value}" for name, value in self.settings.items()) or "all"


def summarize(runs: Iterable[Run]) -> list[Summary]:
    """Return a summary for each group of runs that differ only in their seed, in order of first appearance.

    Parameters
    ----------
    runs
        Finished runs, as returned by `train`; duplicates count once.

    Returns
    -------
    list of Summary
        Mean and standard deviation over seeds of every score.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> specs = spec.seeds(range(2)) + spec.replace(decoder="mlp:width=4:depth=1").seeds(range(2))
    >>> with TemporaryDirectory() as store:
    ...     rows = rc.summarize(rc.train(specs, store))
    >>> [(row.label, row.seeds) for row in rows]
    [('width=8', 2), ('width=4', 2)]
    """
    groups: dict[str, list[Run]] = {}
    fields: dict[str, dict[str, Any]] = {}
    for run in {run.key: run for run in runs}.values():
        spec = run.spec_fields
        del spec["seed"]
        group = json.dumps(spec, sort_keys=True)
        fields[group] = flattened(spec)
        groups.setdefault(group, []).append(run)
    names, summaries = differing(list(fields.values())), []
    for group, members in groups.items():
        done = [run for run in members if run.status == "done"]
        scores = {name: spread([run.scores[name] for run in done]) for name in SCORES}
        settings = {name: fields[group].get(name) for name in names}
        summaries.append(Summary(settings, len(done), len(members) - len(done), scores))
    return summaries


def differing(specs: list[dict[str, Any]]) -> list[str]:
    """Return the names of the fields in which flattened specs differ."""
    names = list(dict.fromkeys(name for spec in specs for name in spec))
    values = {name: {json.dumps(spec[name]) for spec in specs if name in spec} for name in names}
    different = [name for name in names if len(values[name]) > 1 or not all(name in spec for spec in specs)]
    kinds = tuple(name.removesuffix("kind") for name in different if name.endswith(".kind"))
    # If the kind differs (of encoding, decoder, …), fields that only one kind has are redundant.
    return [name for name in different if name.endswith(".kind") or not name.startswith(kinds) or len(values[name]) > 1]


def spread(values: list[float]) -> Spread:
    """Return the mean and sample standard deviation of the finite values."""
    finite = [value for value in values if math.isfinite(value)]
    mean = statistics.fmean(finite) if finite else math.nan
    return Spread(mean, statistics.stdev(finite) if len(finite) > 1 else math.nan)
