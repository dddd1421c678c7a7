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

ERRORS = 2.0
"""Standard errors by which a remedy has to be better in the trial."""


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
    try:
        tuning = ArenaTask(base=spec, inner=inner_holdout(spec.task) if inner is None else inner).tuning
    except InvalidValue as error:
        raise InvalidValue(error.field.replace("holdout", "inner"), error.value, error.allowed) from None
    choices = {str(own): own for own in map(REMEDIES.parse, REMEDIES if remedies is None else remedies)}
    fitting = {name: own for name, own in choices.items() if remedies is not None or _fits(own, spec)}
    evidence = arena if isinstance(arena, Evidence) else Evidence.open(arena) if arena else Evidence.packaged()
    if evidence is not None:
        evidence = evidence.part(evidence.held_out, {PLAIN, *fitting, *(own.kind for own in fitting.values())})
    known = measured(tuning.task)
    table = _table(spec, fitting, known, evidence)
    left = table["remedy"][table["left out"] == ""].tolist()
    validation = None if evidence is None else evidence.validation()
    always = None if evidence is None or validation is None else _always(evidence, regrets(validation))
    always = next((name for name, own in fitting.items() if always == own.kind), always)  # with the settings given
    tried = _tried(left, always, predicted=evidence is not None)
    trial = None
    if seeds and tried:
        trial, times = _trial(tuning, tried, seeds, store, **options)
        table["time"] = table["remedy"].map(times).fillna(table["time"])
    means = {} if trial is None else {name: TrimmedMean.of(own).value for name, own in trial.items()}
    remedy = always or _best(tried, trial, table)
    sentences = (
        _on_assumptions(known, tuning.task.holdout, len(left), len(table)),
        _on_trial(tried, means, len(seeds), table, 0 if evidence is None else len(evidence.held_out)),
        _on_use(remedy, means, validation),
    )
    return Prescription(known, table, trial, validation, remedy, sentences)


def _fits(remedy: Remedy, spec: RunSpec) -> bool:
    try:
        remedy.apply(spec)
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
            "training images": len(own.apply(spec).task.training_values(spec.seed)), "knows": ", ".join(own.privileges),
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
) -> tuple[pandas.DataFrame, dict[str, float]]:
    """Train without the task's hold-out; return R² on the inner one, by seed, and times over the plain decoder's."""
    import pandas

    scorer, result = Scorer(tuning.task), compare(tuning, tried, seeds, store, **options)
    scores = {name: clipped([scorer.of_run(run)["ood_r2"] for run in own]) for name, own in result.runs.items()}
    seconds = result.data["seconds"].mean("seed").to_series()
    return pandas.DataFrame(scores, index=pandas.Index(seeds, name="seed")), dict(seconds / seconds[PLAIN])


def _best(tried: Sequence[str], trial: pandas.DataFrame | None, table: pandas.DataFrame) -> str:
    """Return the remedy that a trial favours, if it gains more than seeds vary, else the first unless it would lose."""
    if trial is None:
        effects = table.set_index("remedy")["effect"]
        return tried[0] if tried and not effects[tried[0]] < 0 else PLAIN
    gains = trial[tried].sub(trial[PLAIN], axis=0)
    best = str(gains.mean().idxmax())
    doubt = ERRORS * gains[best].std() / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return best if gains[best].mean() > doubt else PLAIN


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


def _on_trial(tried: list[str], means: Mapping[str, float], seeds: int, table: pandas.DataFrame, tasks: int) -> str:
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
    if not means:
        return f"{text} (not tried)."
    reached = [*(f"{_number(means[name])} with {name}" for name in tried), f"{_number(means[PLAIN])} without a remedy"]
    return f"{text}; R² on the inner hold-out, with {counted(seeds, 'seed')}, is {listed(reached)}."


def _on_use(remedy: str, means: Mapping[str, float], validation: pandas.DataFrame | None) -> str:
    use = "keep the plain decoder" if remedy == PLAIN else f"use {remedy}"
    why = ", since no remedy gained more than seeds vary" if remedy == PLAIN else ", which was best in the trial"
    why = why if means else ""
    if validation is None:
        return f"{use.capitalize()}{why}."
    lost = regrets(validation)
    text = f"On {len(validation)} arena tasks, each left out in turn, the mean loss against the best remedy is "
    texts = {PRESCRIBED: "prescriptions", BROADCAST: "broadcast for all", AVERAGE: "the best on average for all"}
    text += listed(f"{value:.3f} with {texts[name]}" for name, value in lost.items())
    if min(lost, key=lambda name: (lost[name], name == PRESCRIBED)) == PRESCRIBED:
        return f"{use.capitalize()}{why}: {text[0].lower()}{text[1:]}."
    return f"{text}, so prescriptions do not beat one remedy for all: {use} in any case."
