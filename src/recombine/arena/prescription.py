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
from recombine.arena.evidence import AVERAGE, BROADCAST, PRESCRIBED, Evidence, best_tried, learnt, regrets
from recombine.arena.protocol import PLAIN, ArenaTask, Rule
from recombine.arena.result import LOWEST, clipped
from recombine.arena.scores import Scorer
from recombine.comparison import compare
from recombine.console import aligned, counted, number
from recombine.errors import InvalidValue, listed
from recombine.remedies import REMEDIES, Remedy
from recombine.reproduction.intervals import TrimmedMean
from recombine.specs import RunSpec
from recombine.store import Store
from recombine.tasks import Task

if TYPE_CHECKING:
    import pandas

LEFT_OUT = "left out because"


@dataclass(frozen=True)
class Prescription:
    """What to do, and why.

    Parameters
    ----------
    assumptions
        How well each holds on the inner hold-out, from 0 or less to 1; NaN if kept images cannot test it.
    table
        Remedies that fit the decoder, the best first: predicted effect with its interval for a new task and the number
        of arena tasks it is from, training time over that of the plain decoder, training images, privileges, why some
        are left out, what each assumes and a plain decoder does not, and how well the least of these holds (`fit`).
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
    >>> result = rc.prescribe(spec, ["coordconv"], seeds=0)
    >>> result.remedy, len(result.table), result.trial
    ('coordconv', 1, None)
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
            LEFT_OUT: list(table["left out"]),
        }

    def __repr__(self) -> str:
        return "\n".join([*aligned(self.cells(), left=("remedy", "knows", LEFT_OUT)), *self.sentences])


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
    >>> result = rc.prescribe(spec, ["additive", "coordconv", "isolated"], seeds=0)
    >>> round(result.assumptions["translation"], 1)
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
    rule = Rule() if evidence is None else evidence.rule
    known = measured(tuning.task, rule.rank)
    table = _table(spec, fitting, known, evidence, rule)
    left = table[table["left out"] == ""]
    predicts = evidence is not None and bool(np.isfinite(left["effect"]).any())
    validation = evidence.validation(trial=bool(seeds)) if evidence is not None and predicts else None
    always = None if evidence is None or validation is None else _always(evidence, validation, left["remedy"], fitting)
    tried = _tried(left, always, rule, all_named=remedies is not None)
    trial = _trial(tuning, tried, seeds, store, rule, **options) if seeds and tried else None
    if trial is not None:
        table["time"] = table["remedy"].map(trial.times).fillna(table["time"])
        always = always if always == PLAIN or always in trial.learnt else None
    remedy, use = _use(tried, trial, table, rule, always)
    similar = None if evidence is None else max(evidence.held_out, key=lambda task: evidence.similarity(task, known))
    sentences = (
        _on_assumptions(known, tuning.task.holdout, len(left), len(table), rule),
        _on_trial(tried, trial, table, similar),
        _on_use(use, validation, has_trials=bool(seeds) and evidence is not None and evidence.has_trials),
    )
    return Prescription(known, table, None if trial is None else trial.scores, validation, remedy, sentences)


def _tuning(spec: RunSpec, inner: Any) -> RunSpec:
    """Return the base without its held-out combinations, and with an inner hold-out in their place."""
    try:
        tuning = ArenaTask(base=spec, inner=inner_holdout(spec.task) if inner is None else inner).tuning
        if bool(tuning.task.held_out.any()):
            return tuning
    except InvalidValue as error:
        part, _, rest = error.field.partition(".")
        if part not in ("holdout", "inner"):
            raise
        if inner is None or rest:
            raise InvalidValue(f"inner.{rest}".rstrip("."), error.value, error.allowed) from None
    allowed = "a hold-out that leaves out some, but not all, of the kept combinations, such as random:fraction=0.1"
    raise InvalidValue("inner", str(inner), allowed)


def _fits(remedy: Remedy, spec: RunSpec) -> bool:
    try:
        spec.with_remedy(remedy)
    except InvalidValue:
        return False
    return True


def _table(
    spec: RunSpec, remedies: Mapping[str, Remedy], known: Mapping[str, float], evidence: Evidence | None, rule: Rule
) -> pandas.DataFrame:
    """Return the table of remedies: by effect, then by how well assumptions hold; those that are left out last."""
    import pandas

    rows, images = [], dict[Task, int]()
    for name, own in remedies.items():
        effect, times, fails = None, list[float](), rule.failing(name, known)
        if evidence is not None:
            effect = evidence.effect(name, known) or evidence.effect(own.kind, known)
            known_as = name if any(name in task for task in evidence.seconds.values()) else own.kind
            times = [task[known_as] / task[PLAIN] for task in evidence.seconds.values() if {known_as, PLAIN} <= {*task}]
        if (task := spec.with_remedy(own).task) not in images:
            images[task] = task.training_images(spec.seed)
        specific = tuple(one for one in rule.assumed(name) if one != "coverage")  # what a plain decoder does not assume
        interval = (effect.value, effect.low, effect.high, effect.networks) if effect else (np.nan, np.nan, np.nan, 0)
        rows.append({
            "remedy": name, **dict(zip(("effect", "95 % low", "95 % high", "tasks"), interval, strict=True)),
            "time": float(np.mean(times)) if times else np.nan, "training images": images[task],
            "knows": ", ".join(own.privileges),
            "left out": " and ".join(fails) + ("" if not fails else " fails" if len(fails) == 1 else " fail"),
            "assumes": specific,
            "fit": min((known[one] for one in specific), default=0.0 if not rule.assumed(name) else -np.inf),
        })  # fmt: skip
    table = pandas.DataFrame(rows)
    order = np.lexsort((-np.nan_to_num(table["fit"]), -table["effect"].fillna(-np.inf), table["left out"] != ""))
    return table.iloc[order].reset_index(drop=True)


def _always(
    evidence: Evidence, validation: pandas.DataFrame, left: Iterable[str], remedies: Mapping[str, Remedy]
) -> str | None:
    """Return the remedy that is better for all tasks than a prescription for each, with the settings given.

    None if prescriptions are better, or if that remedy is left out.
    """
    lost = regrets(validation)
    best = min(lost, key=lambda name: (lost[name], name != PRESCRIBED))
    name = {PRESCRIBED: None, BROADCAST: BROADCAST, AVERAGE: evidence.best_on_average()}[best]
    return PLAIN if name == PLAIN else next((own for own in left if name in (own, remedies[own].kind)), None)


def _tried(left: pandas.DataFrame, always: str | None, rule: Rule, *, all_named: bool) -> list[str]:
    """Return the first two remedies and, if remedies are named, those of them about which the arena has no results.

    Without any results, these are two that assume different things, if possible.
    """
    is_known = np.isfinite(left["effect"])
    if is_known.any():
        others = left["remedy"][~is_known] if all_named else []
        firsts = list(dict.fromkeys([always or PLAIN, *left["remedy"][is_known]]))
        return [*[name for name in firsts if name != PLAIN][: rule.tried], *others]
    first = left.drop_duplicates("assumes")["remedy"]
    return list(dict.fromkeys([*first, *left["remedy"]]))[: rule.tried]


@dataclass(frozen=True)
class _Trial:
    """A trial: R² on the inner hold-out by seed, what learnt the kept images, and times over the plain decoder's."""

    scores: pandas.DataFrame
    learnt: set[str]
    times: Mapping[str, float]

    def best(self, names: Iterable[str], rule: Rule, than: str = PLAIN) -> str:
        """Return the best of some remedies that learnt."""
        return best_tried({name: self.scores[name] for name in (than, *names) if name in self.learnt}, rule, than)


def _trial(
    tuning: RunSpec, tried: Sequence[str], seeds: Sequence[int], store: Any, rule: Rule, **options: Any
) -> _Trial:
    """Train without the task's hold-out."""
    import pandas

    scorer, result = Scorer(tuning.task), compare(tuning, tried, seeds, store, **options)
    scores = {name: [scorer.of_run(run) for run in own] for name, own in result.runs.items()}
    trial = pandas.DataFrame(
        {name: clipped([one["ood_r2"] for one in own]) for name, own in scores.items()},
        index=pandas.Index(seeds, name="seed"),
    )
    seconds = result.data["seconds"].mean("seed").to_series()
    able = {name for name, own in scores.items() if learnt([one["id_r2"] for one in own], rule)}
    return _Trial(trial, able, dict(seconds / seconds[PLAIN]))


def _use(
    tried: Sequence[str], trial: _Trial | None, table: pandas.DataFrame, rule: Rule, always: str | None
) -> tuple[str, str]:
    """Return the remedy to use, and what to do in words."""
    effects = table.set_index("remedy")["effect"]
    if trial is not None and not trial.learnt:
        return PLAIN, f"train longer, since no network learnt the kept images (R² below {rule.learnt:g}) in the trial"
    if always is not None:
        unknown = [name for name in tried if not np.isfinite(effects[name])]
        best = always if trial is None else trial.best(unknown, rule, always)
        if best != always:
            return best, f"{_advice(best)}, which was better in the trial than {_named(always)}"
        reason = "since prescriptions do not beat one remedy for all"
        if trial is not None and (other := trial.best(tried, rule)) not in (always, PLAIN):
            reason += f", although the trial speaks for {other}"
        elif trial is not None and other != always:
            reason += f", although it did not gain {_enough(trial)}"
        return always, f"{_advice(always)}, {reason}"
    if not tried:
        return PLAIN, _advice(PLAIN)
    if trial is None:
        if not np.isfinite(effects[tried[0]]):
            return tried[0], f"try {tried[0]} first"
        best = tried[0] if effects[tried[0]] > 0 else PLAIN
        return best, _advice(best)
    best = trial.best(tried, rule)
    if best != PLAIN:
        chance = "" if len(trial.scores) > 1 else " of one seed, which may be chance"
        return best, f"{_advice(best)}, which was best in the trial{chance}"
    return PLAIN, f"{_advice(PLAIN)}, since no remedy gained {_enough(trial)}"


def _enough(trial: _Trial) -> str:
    return "more than seeds vary in the trial" if len(trial.scores) > 1 else "anything in the trial"


def _named(remedy: str) -> str:
    return "the plain decoder" if remedy == PLAIN else remedy


def _advice(remedy: str) -> str:
    return "keep the plain decoder" if remedy == PLAIN else f"use {remedy}"


def _effect(row: Any) -> str:
    value, low, high = (number(row[name], "+.2f") for name in ("effect", "95 % low", "95 % high"))
    return f"{value} [{low}, {high}]" if np.isfinite(row["effect"]) else "–"


def _on_assumptions(known: Mapping[str, float], inner: Any, left: int, total: int, rule: Rule) -> str:
    parts = {
        "hold": [f"{name} {number(value)}" for name, value in known.items() if round(value, 2) >= rule.holds],
        "fail": [f"{name} {number(max(value, LOWEST))}" for name, value in known.items() if rule.fails(value)],
        "cannot be tested": [name for name, value in known.items() if np.isnan(value)],
    }
    texts = "; ".join(f"{', '.join(own)} ({verb})" for verb, own in parts.items() if own)
    return f"Measured on kept images, with {inner} as inner hold-out: {texts}; remedies that remain: {left} of {total}."


def _on_trial(tried: Sequence[str], trial: _Trial | None, table: pandas.DataFrame, similar: str | None) -> str:
    if not tried:
        return "There is no remedy to try."
    rows = table.set_index("remedy").loc[list(tried)]
    known, unknown = rows[rows["tasks"] > 0], list(rows.index[rows["tasks"] == 0])
    if similar is None or not len(known):
        text = (
            "There are no results of the arena from which effects could be predicted, so remedies are ordered by how "
            f"well their assumptions hold: {' and '.join(tried)}"
        )
    else:
        each = [f"{_effect(row)} with {name} (from {counted(row['tasks'], 'task')})" for name, row in known.iterrows()]
        text = f"Gains in R² predicted from the arena, whose most similar task is {similar}, are {listed(each)}"
        text += f", and it has no results on {listed(unknown)}" if unknown else ""
    if trial is None:
        return f"{text} (not tried)."
    reached = []
    for name in (*tried, PLAIN):
        where = "without a remedy" if name == PLAIN else f"with {name}"
        note = "" if name in trial.learnt else " (which did not learn the kept images)"
        reached.append(f"{number(TrimmedMean.of(trial.scores[name]).value)} {where}{note}")
    return f"{text}; R² on the inner hold-out, with {counted(len(trial.scores), 'seed')}, is {listed(reached)}."


def _on_use(use: str, validation: pandas.DataFrame | None, *, has_trials: bool) -> str:
    advice = use[0].upper() + use[1:]
    if validation is None:
        return f"{advice}."
    lost = regrets(validation)
    own = "prescriptions" if has_trials else "prescriptions without a trial"
    texts = {PRESCRIBED: own, BROADCAST: "broadcast for all", AVERAGE: "the best on average for all"}
    each = listed(f"{value:.3f} with {texts[name]}" for name, value in lost.items())
    tasks = counted(len(validation), "arena task")
    return f"{advice}: on {tasks}, each left out in turn, the mean loss against the best remedy is {each}."
