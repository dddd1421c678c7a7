"""Which remedy to use: measure what remedies assume, predict their effects from the arena, and try the best two.

>>> import recombine as rc
>>> result = rc.prescribe(rc.RunSpec(task=rc.ArrayTask(data="sprites.npz"), decoder="cnn"))
>>> print(result)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.arena.assumptions import inner_holdout, measured
from recombine.arena.evidence import (
    AVERAGE,
    BROADCAST,
    HOLDS,
    PRESCRIBED,
    TRIED,
    Evidence,
    assumed,
    best_tried,
    clipped,
    failing,
    regrets,
)
from recombine.arena.protocol import PLAIN, ArenaTask
from recombine.arena.scores import Scorer
from recombine.comparison import compare
from recombine.console import aligned, counted
from recombine.errors import InvalidValue, listed
from recombine.remedies import REMEDIES, Remedy
from recombine.reproduction.intervals import TrimmedMean
from recombine.specs import RunSpec
from recombine.store import Store

if TYPE_CHECKING:
    import pandas

LEARNT = 0.9
"""Least R² on kept images of a decoder that has learnt them."""


@dataclass(frozen=True)
class Prescription:
    """What to do, and why.

    Parameters
    ----------
    assumptions
        How well each holds on the inner hold-out, from 0 or less to 1; NaN if kept images cannot test it.
    table
        Remedies that fit the decoder, the best first: predicted effect with its interval, training time over that of
        the plain decoder, training images, privileges, and why some are left out.
    trial
        R² on the inner hold-out by seed, of the tried remedies and the plain decoder; None without a trial.
    validation
        What predictions lose on the arena's tasks; None without results of at least two.
    remedy
        The remedy to use; `none` for the plain decoder.
    sentences
        The three sentences.

    Examples
    --------
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=10, holdout="corner:7", training="each"), decoder="mlp:width=8:depth=1")
    >>> result = rc.prescribe(spec, ["multilinear"], seeds=0)
    >>> result.remedy, len(result.table), result.trial
    ('multilinear', 1, None)
    """

    assumptions: Mapping[str, float]
    table: pandas.DataFrame
    trial: pandas.DataFrame | None
    validation: pandas.DataFrame | None
    remedy: str
    sentences: tuple[str, str, str]

    def cells(self) -> dict[str, list[str]]:
        """Return the table as text, by column."""
        table = self.table
        return {
            "remedy": list(table["remedy"]),
            "predicted effect [95 %]": [_effect(row) for _, row in table.iterrows()],
            "time": [f"× {value:.2f}" if np.isfinite(value) else "–" for value in table["time"]],
            "training images": [str(value) for value in table["training images"]],
            "knows": [text or "–" for text in table["knows"]],
            "left out since": list(table["left out"]),
        }

    def __repr__(self) -> str:
        return "\n".join([*aligned(self.cells(), left=("remedy", "knows", "left out since")), *self.sentences])


def prescribe(
    spec: RunSpec,
    remedies: Iterable[Remedy | str] | None = None,
    *,
    inner: Any = None,
    arena: Evidence | str | os.PathLike[str] | None = None,
    seeds: int | Iterable[int] = 4,
    store: Store | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Prescription:
    """Measure what remedies assume about a task, predict their effects, try the best two, and say what to do.

    Only kept combinations are looked at. The task's own hold-out is left out altogether, and an inner one takes its
    place.

    Parameters
    ----------
    spec
        The base: task, decoder and recipe.
    remedies
        Remedies to choose from. Default: all registered ones.
    inner
        Inner hold-out. Default: the corner of two factors that is nearest to a tenth of the kept combinations.
    arena
        Results from which effects are predicted: a folder written by `recombine arena`. Default: those of this package.
    seeds
        How many seeds the trial has, from the base's own on, or which; 0 for no trial.
    store
        Where the trial's runs are kept.
    options
        Those of `train`: device, members, processes, scheduler, …

    Returns
    -------
    Prescription
        Measured assumptions, a table of remedies, the trial, and three sentences.

    Examples
    --------
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=10, holdout="corner:7", training="each"), decoder="mlp:width=8:depth=1")
    >>> result = rc.prescribe(spec, ["additive", "multilinear", "isolated"], seeds=0)
    >>> round(result.assumptions["low rank"], 1)
    1.0
    >>> result.table["left out"].tolist()
    ['', '', 'additivity fails']
    """
    if isinstance(seeds, int) and seeds < 0:
        raise InvalidValue("seeds", seeds, "at least 0")
    seeds = list(range(spec.seed, spec.seed + seeds) if isinstance(seeds, int) else seeds)
    tuning = _tuning(spec, inner)
    if remedies is not None and not (remedies := list(remedies)):
        raise InvalidValue("remedies", remedies, "at least one")
    choices = {str(own): own for own in map(REMEDIES.parse, REMEDIES if remedies is None else remedies)}
    fitting = {name: own for name, own in choices.items() if remedies is not None or _fits(own, spec)}
    evidence = arena if isinstance(arena, Evidence) else Evidence.open(arena) if arena else Evidence.packaged()
    if evidence is not None:
        evidence = evidence.part(evidence.held_out, {PLAIN, *fitting, *(own.kind for own in fitting.values())})
    known = measured(tuning.task)
    table = _table(spec, fitting, known, evidence)
    left = table["remedy"][table["left out"] == ""].tolist()
    validation = None if evidence is None else evidence.validation(trial=bool(seeds))
    always = None if evidence is None or validation is None else _always(evidence, regrets(validation))
    always = next((name for name, own in fitting.items() if always == own.kind), always)  # with the settings given
    tried = _tried(left, always, predicted=evidence is not None)
    trial, learnt = None, set[str]()
    if seeds and tried:
        trial, learnt, times = _trial(tuning, tried, seeds, store, **options)
        table["time"] = table["remedy"].map(times).fillna(table["time"])
    remedy, use = _use(tried, trial, learnt, table) if always is None else (always, f"use {always}")
    sentences = (
        _on_assumptions(known, tuning.task.holdout, len(left), len(table)),
        _on_trial(tried, trial, learnt, table, 0 if evidence is None else len(evidence.held_out)),
        _on_use(use, validation, predicted=always is None),
    )
    return Prescription(known, table, trial, validation, remedy, sentences)


def _tuning(spec: RunSpec, inner: Any) -> RunSpec:
    """Return the base without its held-out combinations, and with an inner hold-out in their place."""
    try:
        tuning = ArenaTask(base=spec, inner=inner_holdout(spec.task) if inner is None else inner).tuning
        if bool(tuning.task.held_out.any()):
            return tuning
    except InvalidValue as error:
        if error.field not in ("holdout", "inner"):
            raise
        if inner is None:
            raise InvalidValue("inner", None, error.allowed) from None
    allowed = "a hold-out that leaves out some, but not all, of the kept combinations, such as random:fraction=0.1"
    raise InvalidValue("inner", str(inner), allowed)


def _fits(remedy: Remedy, spec: RunSpec) -> bool:
    try:
        spec.with_remedy(remedy)
    except InvalidValue:
        return False
    return True


def _table(
    spec: RunSpec, remedies: Mapping[str, Remedy], known: Mapping[str, float], evidence: Evidence | None
) -> pandas.DataFrame:
    """Return the table of remedies: by effect, then by how well assumptions hold; those that are left out last."""
    import pandas

    rows, fits = [], []
    for name, own in remedies.items():
        effect, times, fails = None, list[float](), failing(own.assumes, known)
        if evidence is not None:
            effect = evidence.effect(name, known) or evidence.effect(own.kind, known)
            times = [task[own.kind] / task[PLAIN] for task in evidence.seconds.values() if {own.kind, PLAIN} <= {*task}]
        fits.append(min((known[one] for one in _specific(name)), default=0.0 if not own.assumes else -np.inf))
        value, low, high = (effect.value, effect.low, effect.high) if effect else (np.nan,) * 3
        rows.append({
            "remedy": name, "effect": value, "95 % low": low, "95 % high": high,
            "time": float(np.mean(times)) if times else np.nan,
            "training images": spec.with_remedy(own).task.training_images(spec.seed),
            "knows": ", ".join(own.privileges),
            "left out": " and ".join(fails) + ("" if not fails else " fails" if len(fails) == 1 else " fail"),
        })  # fmt: skip
    table = pandas.DataFrame(rows)
    order = np.lexsort((-np.nan_to_num(fits), -table["effect"].fillna(-np.inf), table["left out"] != ""))
    return table.iloc[order].reset_index(drop=True)


def _specific(remedy: str) -> tuple[str, ...]:
    """Return what a remedy assumes and a plain decoder does not."""
    return tuple(name for name in assumed(remedy) if name != "coverage")


def _always(evidence: Evidence, lost: Mapping[str, float]) -> str | None:
    """Return the remedy that is better for all tasks than a prescription for each, or None if prescriptions are."""
    best = min(lost, key=lambda name: (lost[name], name == PRESCRIBED))
    return {PRESCRIBED: None, BROADCAST: BROADCAST, AVERAGE: evidence.best_on_average()}[best]


def _tried(left: Sequence[str], always: str | None, *, predicted: bool) -> list[str]:
    """Return the first two remedies; without predictions, two that assume different things if possible."""
    if predicted:
        return [name for name in dict.fromkeys([always or PLAIN, *left]) if name != PLAIN][:TRIED]
    firsts: dict[tuple[str, ...], str] = {}
    for name in left:
        firsts.setdefault(_specific(name), name)
    firsts.pop((), None)
    return list(dict.fromkeys([*firsts.values(), *left]))[:TRIED]


def _trial(
    tuning: RunSpec, tried: Sequence[str], seeds: Sequence[int], store: Any, **options: Any
) -> tuple[pandas.DataFrame, set[str], dict[str, float]]:
    """Train without the task's hold-out.

    Return R² on the inner hold-out by seed, what learnt the kept images, and times over the plain decoder's.
    """
    import pandas

    scorer, result = Scorer(tuning.task), compare(tuning, tried, seeds, store, **options)
    scores = {name: [scorer.of_run(run) for run in own] for name, own in result.runs.items()}
    trial = pandas.DataFrame(
        {name: clipped([one["ood_r2"] for one in own]) for name, own in scores.items()},
        index=pandas.Index(seeds, name="seed"),
    )
    kept = {name: TrimmedMean.of(clipped([one["id_r2"] for one in own])).value for name, own in scores.items()}
    seconds = result.data["seconds"].mean("seed").to_series()
    return trial, {name for name, value in kept.items() if value >= LEARNT}, dict(seconds / seconds[PLAIN])


def _use(
    tried: Sequence[str], trial: pandas.DataFrame | None, learnt: set[str], table: pandas.DataFrame
) -> tuple[str, str]:
    """Return the remedy to use, and what to do in words."""
    plain = "keep the plain decoder"
    if not tried:
        return PLAIN, plain
    if trial is None:
        effect = table.set_index("remedy")["effect"][tried[0]]
        if not np.isfinite(effect):
            return tried[0], f"try {tried[0]} first"
        return (tried[0], f"use {tried[0]}") if effect > 0 else (PLAIN, plain)
    if not learnt:
        return PLAIN, f"train longer, since no network learnt the kept images (R² below {LEARNT:g}) in the trial"
    best = best_tried({name: own for name, own in trial.items() if name == PLAIN or name in learnt})
    if best != PLAIN:
        return best, f"use {best}, which was best in the trial"
    return PLAIN, f"{plain}, since no remedy gained {'more than seeds vary' if len(trial) > 1 else 'in the trial'}"


def _number(value: float, form: str = ".2f") -> str:
    return f"{value:{form}}".replace("-", "−")


def _effect(row: Any) -> str:
    value, low, high = (_number(row[name], "+.2f") for name in ("effect", "95 % low", "95 % high"))
    return f"{value} [{low}, {high}]" if np.isfinite(row["effect"]) else "–"


def _on_assumptions(known: Mapping[str, float], inner: Any, left: int, total: int) -> str:
    parts = {
        "hold": [f"{name} {_number(value)}" for name, value in known.items() if round(value, 2) >= HOLDS],
        "fail": [f"{name} {_number(known[name])}" for name in failing(known, known)],
        "cannot be tested": [name for name, value in known.items() if np.isnan(value)],
    }
    texts = "; ".join(f"{', '.join(own)} ({verb})" for verb, own in parts.items() if own)
    return f"Measured on kept images, with {inner} as inner hold-out: {texts}; {left} of {total} remedies remain."


def _on_trial(
    tried: list[str], trial: pandas.DataFrame | None, learnt: set[str], table: pandas.DataFrame, tasks: int
) -> str:
    if not tried:
        return "There is no remedy to try."
    effects = {row["remedy"]: _effect(row) for _, row in table.iterrows()}
    text = (
        f"Gains in R² predicted from {counted(tasks, 'arena task')} are "
        f"{' and '.join(f'{effects[name]} with {name}' for name in tried)}"
        if tasks
        else "There are no results of the arena from which effects could be predicted, so the choice is by how well "
        f"assumptions hold: {' and '.join(tried)}"
    )
    if trial is None:
        return f"{text} (not tried)."
    reached = []
    for name in (*tried, PLAIN):
        where = "without a remedy" if name == PLAIN else f"with {name}"
        note = "" if name in learnt else " (which did not learn the kept images)"
        reached.append(f"{_number(TrimmedMean.of(trial[name]).value)} {where}{note}")
    return f"{text}; R² on the inner hold-out, with {counted(len(trial), 'seed')}, is {listed(reached)}."


def _on_use(use: str, validation: pandas.DataFrame | None, *, predicted: bool) -> str:
    advice = use[0].upper() + use[1:]
    if validation is None:
        return f"{advice}."
    lost = regrets(validation)
    text = f"n {len(validation)} arena tasks, each left out in turn, the mean loss against the best remedy is "
    texts = {PRESCRIBED: "prescriptions", BROADCAST: "broadcast for all", AVERAGE: "the best on average for all"}
    text += listed(f"{value:.3f} with {texts[name]}" for name, value in lost.items())
    if predicted:
        return f"{advice}: o{text}."
    return f"O{text}, so prescriptions do not beat one remedy for all: {use} in any case."
