"""Ranking of markers (metrics used to predict composition) by AUROC, and the record read by `diagnose`.

A marker's AUROC is the fraction of pairs of a composing and a failing network in which the composing network has the
larger value; ties count as half. Both networks of a pair have the same architecture (decoder family) and the same code
with the same settings, so a marker that differs only between architectures or codes gets 0.5. Networks are pooled over
depth, hold-out, data and remedy, and an architecture's AUROC is computed over all its pairs.

For each architecture, a marker's position and sign are chosen such that the mean AUROC over the *other* architectures
is farthest from 0.5, and the marker is then scored on the left-out architecture. The score is the unweighted mean over
architectures. If the sign is fixed in advance, only the position is chosen, by the largest AUROC with that sign.

For confidence intervals, arms (experimental conditions) with pairs are resampled within each architecture. Individual
networks are not resampled, because those of an arm differ only in their seed. Position and sign are chosen again in
every resample. An architecture without pairs in a resample is excluded from its mean.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import xarray

import recombine.metrics  # noqa: F401  registers the stage metrics
from recombine.files import write
from recombine.metrics.registry import STAGE_METRICS
from recombine.papers.forced_rendering.markers import FALL
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, WHOLE, learnt, trained
from recombine.reproduction.claims import Judgement
from recombine.reproduction.intervals import Interval, Resampled
from recombine.reproduction.results import Results

FEWEST = 2
"""Minimum number of composing and of failing networks with the same code for an architecture to be scored."""
RESAMPLES = 10_000
RANKING_RESAMPLES = 2000
MODEL_RESAMPLES = 500
MODEL_MARKERS = 3


@dataclass(frozen=True, eq=False)
class Table:
    """Marker values of the networks that learnt."""

    values: np.ndarray
    """Array `[network, marker, position]`, NaN where missing."""
    composing: np.ndarray
    architecture: np.ndarray
    code: np.ndarray
    """Only networks with equal codes are paired; if all codes are equal, any two can be paired."""
    arm: np.ndarray
    """Networks of the same arm differ only in the seed."""

    def part(self, chosen: np.ndarray) -> Table:
        """Return the table for a subset of networks, selected by mask or index."""
        return Table(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @cached_property
    def group(self) -> np.ndarray:
        """Number of each network's group; networks of a group share architecture and code."""
        (architectures, _), (codes, _) = pandas.factorize(self.architecture), pandas.factorize(self.code)
        return np.asarray(pandas.factorize(architectures * len(codes) + codes)[0])

    @cached_property
    def scored(self) -> tuple[str, ...]:
        """Architectures with at least `FEWEST` composing and `FEWEST` failing networks with the same code."""
        return tuple(dict.fromkeys(str(name) for name in self.architecture[with_pairs(self, FEWEST)]))

    @property
    def fewest(self) -> int:
        """Number of paired arms with composing networks or with failing networks, whichever is smaller."""
        own = with_pairs(self) & np.isin(self.architecture, self.scored)
        return min(len(np.unique(self.arm[own & rows])) for rows in (self.composing, ~self.composing))


def never_shown(networks: xarray.Dataset) -> xarray.Dataset:
    """Return the networks that were not trained on held-out combinations."""
    return networks.isel(network=np.flatnonzero(networks["data"].values != WHOLE))


def counted(networks: xarray.Dataset) -> np.ndarray:
    """Return a mask of the networks that learnt their training data."""
    return np.asarray((learnt(networks) & trained(networks)).values, dtype=bool)


def table_of(networks: xarray.Dataset, chosen: np.ndarray | None = None) -> Table:
    """Return the markers of the chosen networks (by default, all that learnt the training task)."""
    every = Table(
        np.asarray(networks["value"].transpose("network", "marker", "position").values, dtype=float),
        np.asarray(networks["ood_accuracy"].values, dtype=float) >= COMPOSING_ACCURACY,
        *(np.asarray(networks[name].values, dtype=str) for name in ("decoder", "code", "arm")),
    )
    return every.part(counted(networks) if chosen is None else chosen)


def with_pairs(table: Table, fewest: int = 1) -> np.ndarray:
    """Return which networks share architecture and code with at least `fewest` composing and `fewest` failing ones."""
    composing, failing = (np.bincount(table.group, own)[table.group] for own in (table.composing, ~table.composing))
    return np.asarray(np.minimum(composing, failing) >= fewest)


class Pairs(NamedTuple):
    """Pairs of networks with the same architecture, grouped by arm (experimental condition)."""

    arms: np.ndarray
    """Names of the arms, in the order of the other axes and of the weights in `aurocs`."""
    wins: np.ndarray
    """Number of pairs in which the composing network has the larger value, `[marker and position, arm, arm]`."""
    pairs: np.ndarray
    """Number of pairs in which both values are present, with the same axes."""

    def aurocs(self, weights: np.ndarray) -> np.ndarray:
        """Return AUROCs `[draw, marker and position]` with arms repeated `weights[draw, arm]` times."""
        pairs = (weights[:, :, None] * weights[:, None, :]).reshape(len(weights), -1)
        won, total = (pairs @ counts.reshape(len(counts), -1).T for counts in (self.wins, self.pairs))
        return np.divide(won, total, out=np.full_like(won, np.nan), where=total > 0)


def paired(table: Table, name: str) -> Pairs:
    """Return the pairs of networks with this architecture."""
    own = table.part((table.architecture == name) & with_pairs(table))
    arms, index = np.unique(own.arm, return_inverse=True)
    member = (index[:, None] == np.arange(len(arms))).astype(float)
    up, down = own.composing, ~own.composing
    values = own.values.reshape(len(own.values), -1).T
    high, low = values[:, up, None], values[:, None, down]
    present = (own.code[up][:, None] == own.code[down]) & np.isfinite(high) & np.isfinite(low)
    won = np.where(present, (high > low) + 0.5 * (high == low), 0.0)
    return Pairs(arms, *(member[up].T @ counts @ member[down] for counts in (won, present.astype(float))))


def aurocs(table: Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """Return AUROCs `[draw, architecture, marker, position]` of scored architectures for the table or its resamples."""
    generator, parts = np.random.default_rng(seed), []
    for name in table.scored:
        pairs = paired(table, name)
        draws = multiplicities(len(pairs.arms), resamples, generator)
        # process 1000 resamples at a time to limit memory
        scores = [pairs.aurocs(draws[at : at + 1000]) for at in range(0, len(draws), 1000)]
        parts.append(np.concatenate(scores).reshape(-1, *table.values.shape[1:]))
    return np.stack(parts, axis=1) if parts else np.full((max(1, resamples), 0, *table.values.shape[1:]), np.nan)


def multiplicities(arms: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return how often each arm is drawn, `[draw, arm]`; without resampling, a single draw includes every arm once."""
    if not resamples:
        return np.ones((1, arms))
    return generator.multinomial(arms, np.full(arms, 1 / arms), size=resamples).astype(float)


def resampled(value: float, draws: np.ndarray, table: Table) -> Resampled:
    """Return an estimate with `table.fewest` as its sample size, since an arm's seeds are far from independent."""
    finite = draws[np.isfinite(draws)]
    number = table.fewest if np.isfinite(value) and len(finite) else 0
    return Resampled(float(value), tuple(finite.tolist()) or (float("nan"),), number)


class Choice(NamedTuple):
    """Position and sign chosen for every marker, `[…, marker]`."""

    position: np.ndarray
    """Index of the position, or −1 if there are no pairs."""
    sign: np.ndarray
    """1 if composing networks have larger values, −1 if they have smaller ones."""
    strength: np.ndarray
    """AUROC with that sign."""


def chosen(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """Choose positions and signs from AUROCs `[…, marker, position]`; signs of ±1 in `signs` are fixed in advance."""
    free = np.where(scores < 0.5, -1.0, 1.0)
    sign = free if signs is None else np.where(signs == 0, free, signs)
    strength = np.where(sign > 0, scores, 1 - scores)
    position = np.where(np.isfinite(strength), strength, -1.0).argmax(axis=-1)
    sign, best = (np.take_along_axis(numbers, position[..., None], axis=-1)[..., 0] for numbers in (sign, strength))
    return Choice(np.where(np.isfinite(best), position, -1), sign, best)


def chosen_elsewhere(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """Choose for each architecture by the mean AUROC of all others; `scores` is the result of `aurocs`."""
    others = [mean(np.delete(scores, k, axis=-3), -3) for k in range(scores.shape[-3])]
    return chosen(np.stack(others, axis=-3), signs)


def left_out(scores: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Return the mean left-out AUROC over architectures, `[…, marker]`; NaN if there is only one architecture."""
    if scores.shape[-3] < 2:
        return np.full((*scores.shape[:-3], scores.shape[-2]), np.nan)
    choice = chosen_elsewhere(scores, signs)
    own = np.take_along_axis(scores, np.maximum(choice.position, 0)[..., None], axis=-1)[..., 0]
    own = np.where(choice.position < 0, np.nan, own)
    return mean(np.where(choice.sign > 0, own, 1 - own), -2)


def share_above(scores: np.ndarray, marker: int) -> np.ndarray:
    """Return the fraction of the other scored markers with a higher held-out score; ties count as half."""
    own, others = scores[..., marker, None], np.delete(scores, marker, axis=-1)
    there = np.isfinite(others)
    above = ((others > own) + 0.5 * (others == own)).sum(axis=-1, where=there)
    total = there.sum(axis=-1) * np.isfinite(own[..., 0])
    return np.divide(above, total, out=np.full(above.shape, np.nan), where=total > 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of finite values, without numpy's warning where there are none."""
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=axis), finite.sum(axis=axis)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


class Ranked(NamedTuple):
    """A marker and its score."""

    name: str
    title: str
    needs_targets: bool
    auroc: Interval
    """AUROC on left-out architectures."""
    position: str
    """Position chosen on all architectures together; empty if the marker has no values."""
    higher: bool
    """Whether composing networks have larger values at that position."""


def ranking(networks: xarray.Dataset) -> list[Ranked]:
    """Return all markers in the study's Dataset, best first, with unscored markers last."""
    table = table_of(never_shown(networks))
    scores = aurocs(table)
    value, draws = left_out(scores)[0], left_out(aurocs(table, RANKING_RESAMPLES))
    overall = chosen(mean(scores[0], 0))
    places = [*(str(name) for name in networks["position"].values), ""]  # position −1 means none
    ranked = [
        Ranked(
            str(name),
            str(networks["title"].values[k]),
            bool(networks["needs_targets"].values[k]),
            resampled(value[k], draws[:, k], table).interval(),
            places[overall.position[k]],
            bool(overall.sign[k] > 0),
        )
        for k, name in enumerate(networks["marker"].values)
    ]
    return sorted(ranked, key=lambda marker: -np.nan_to_num(marker.auroc.value, nan=-1.0))


# A logistic model of the best few markers is selected and fitted on all architectures but the one it is scored on.
# Values are centred within each architecture and code and scaled by their standard deviation in the fitted
# architectures, so that the model cannot exploit differences between them. Missing values are replaced by the mean.


def model(networks: xarray.Dataset) -> Interval:
    """Return the AUROC of the logistic model on left-out architectures."""
    table = table_of(never_shown(networks))
    value = model_left_out(table)[0]
    draws = model_left_out(table, MODEL_RESAMPLES) if np.isfinite(value) else np.array([])
    return resampled(value, draws, table).interval()


def model_left_out(table: Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """Return the model's left-out AUROC for the table or resamples of its arms, `[draw]`; NaN with one architecture."""
    scores, generator = aurocs(table, resamples, seed), np.random.default_rng(seed)  # both draw the same arms
    part = table.part(with_pairs(table) & np.isin(table.architecture, table.scored))
    repeats = np.zeros((len(scores), len(part.arm)), dtype=int)
    for name in table.scored:
        rows = part.architecture == name
        arms, index = np.unique(part.arm[rows], return_inverse=True)
        repeats[:, rows] = multiplicities(len(arms), resamples, generator)[:, index]
    results = []
    for number, own in zip(repeats, scores, strict=True):
        drawn = part.part(np.repeat(np.arange(len(number)), number))
        results.append(_model_score(drawn.part(with_pairs(drawn)), dict(zip(table.scored, own, strict=True))))
    return np.array(results)


def _model_score(table: Table, scores: dict[str, np.ndarray]) -> float:
    """Return the model's left-out AUROC, given the markers' AUROCs in each architecture."""
    there = [name for name, own in scores.items() if np.isfinite(own).any()]
    if len(there) < 2:
        return float("nan")
    choice, results = chosen_elsewhere(np.stack([scores[name] for name in there])), []
    for number, name in enumerate(there):
        strength = np.where(choice.position[number] < 0, -np.inf, choice.strength[number])
        best = np.argsort(-strength, kind="stable")[:MODEL_MARKERS]
        features = table.values[:, best, choice.position[number][best]]
        outside = np.isin(table.architecture, [other for other in there if other != name])
        centred = np.column_stack([_centred(own, table.group) for own in features.T])
        scale = centred[outside].std(axis=0)
        centred = centred / np.where(scale > 0, scale, 1.0)
        weights, _ = logistic(centred[outside], table.composing[outside])
        pairs = paired(replace(table, values=(centred @ weights)[:, None, None]), name)
        results.append(pairs.aurocs(np.ones((1, len(pairs.arms)))).item())
    return float(np.mean(results))


def _centred(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return values less the mean of their group; 0 where missing."""
    finite = np.isfinite(values)
    totals, counts = (np.bincount(group, own) for own in (np.where(finite, values, 0.0), finite))
    return np.where(finite, values - (totals / np.maximum(counts, 1))[group], 0.0)


def logistic(features: np.ndarray, outcome: np.ndarray, ridge: float = 1.0) -> tuple[np.ndarray, float]:
    """Return the coefficients and intercept of a ridge-penalised logistic regression on `[network, feature]`."""
    design = np.column_stack([features, np.ones(len(features))])
    penalty = np.append(np.full(features.shape[1], ridge), 0.0)  # the intercept is not penalised
    weights, outcome = np.zeros(design.shape[1]), outcome.astype(float)
    for _ in range(100):  # Newton's method with steps of at most 1, so that separable data do not diverge
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        gradient = design.T @ (chance - outcome) + penalty * weights
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            break
    return weights[:-1], float(weights[-1])


OTHER_NAMES = {
    "spread": ("log_volume_std",),
    "id_error": ("id_error",),
    "memorised": ("superposition memorised",),
    "kernel_binary": ("kernel_agreement binary",),
}
"""Names used in a diagnosis for a marker, in addition to its registered columns."""
ADVICE = {
    "C25": ("coordinate", "render each pixel from code and coordinate"),
    "C23": ("isolated", "also train on images of single factors (stripes)"),
}
"""Remedies to try and why, keyed by the claim that supports them."""


def write_marker_auroc(results: Results, judgements: Iterable[Judgement], path: Path) -> None:
    """Write the file read by diagnoses (`diagnosis.result.packaged`), with advice based on the verdicts."""
    record = marker_auroc_record(results.dataset("markers"), judgements)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    rows = re.sub(r"\{\s+\"auroc\"[^}]*\}", lambda score: " ".join(score[0].split()), text)  # one line per metric
    write(path, f"{rows}\n".encode(), "marker_auroc")


def marker_auroc_record(networks: xarray.Dataset, judgements: Iterable[Judgement] = ()) -> dict[str, Any]:
    """Return AUROCs keyed by the names used in a diagnosis, a description of the networks, and advice."""
    table = table_of(never_shown(networks))
    kinds = ", ".join(f"{count} {name}" for name, count in Counter(map(str, table.architecture)).most_common())
    about = (
        f"{described(table)} ({kinds}; preset {networks.attrs.get('preset', 'unknown')}), "
        f"{int(table.composing.sum())} of which compose (OOD accuracy of at least {100 * COMPOSING_ACCURACY:.0f} %); "
        f"scored on {', '.join(table.scored)}"
    )
    scored = [marker for marker in ranking(networks) if np.isfinite(marker.auroc.low)]
    numbers = {name: _score(own) for own in scored for name in names_of(own.name)}
    supported = {own.claim for own in judgements if own.described == "yes"}
    advice = [
        f"recombine compare --remedy {remedy}: {text} ({name}: described; found on the paper's bumps, may not hold for "
        "your images)"
        for name, (remedy, text) in ADVICE.items() if name in supported
    ]  # fmt: skip
    return {"networks": about, "numbers": numbers, "advice": advice}


def described(table: Table) -> str:
    """Return a description of the networks in a table."""
    conditions = len(set(table.arm))
    return f"{len(table.arm)} networks that learnt and never saw what is held out, in {conditions} conditions"


def names_of(marker: str) -> list[str]:
    """Return a marker's names in a diagnosis: columns with one value per stage, or one per factor (then averaged)."""
    columns = [
        column.name
        for column in STAGE_METRICS.columns().values()
        if column.study_name == marker and column.dims in ((), ("factor",))
    ]
    return [*columns, *OTHER_NAMES.get(marker, ())]


def _score(marker: Ranked) -> dict[str, Any]:
    low, high = (round(float(end), 4) for end in (marker.auroc.low, marker.auroc.high))
    return {
        "auroc": round(marker.auroc.value, 4), "low": low, "high": high, "higher": marker.higher,
        "position": marker.position, "fall": marker.position == FALL,
    }  # fmt: skip
