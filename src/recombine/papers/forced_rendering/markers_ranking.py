"""Ranking of all markers (metrics used to predict composition) by AUROC, and the record that `diagnose` reads.

The sign of every marker is chosen from the data, since smaller values can predict composition just as well.
Networks trained on the whole grid are excluded.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import xarray

import recombine.metrics  # noqa: F401  registers the stage metrics
from recombine.errors import InvalidValue
from recombine.files import write
from recombine.metrics.registry import STAGE_METRICS
from recombine.papers.forced_rendering import markers_scoring as scoring
from recombine.papers.forced_rendering.markers import FALL
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY
from recombine.reproduction.claims import Judgement
from recombine.reproduction.intervals import Interval
from recombine.reproduction.report.verdicts import sentence
from recombine.reproduction.results import Results

RANKING_RESAMPLES = 2000
MODEL_RESAMPLES = 500
MODEL_MARKERS = 3
RIDGE = 1.0
"""Weight of the penalty on the model's coefficients (1 / C in scikit-learn)."""


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
    """Return all markers in the study's Dataset, best first and those without a score last."""
    table = scoring.table_of(scoring.never_shown(networks))
    scores = scoring.aurocs(table)
    value, draws = scoring.left_out(scores)[0], scoring.left_out(scoring.aurocs(table, RANKING_RESAMPLES))
    overall = scoring.chosen(scoring.mean(scores[0], 0))
    places = [*(str(name) for name in networks["position"].values), ""]  # position −1 means none
    ranked = [
        Ranked(
            str(name),
            str(networks["title"].values[k]),
            bool(networks["needs_targets"].values[k]),
            scoring.resampled(value[k], draws[:, k], table).interval(),
            places[overall.position[k]],
            bool(overall.sign[k] > 0),
        )
        for k, name in enumerate(networks["marker"].values)
    ]
    return sorted(ranked, key=lambda marker: -np.nan_to_num(marker.auroc.value, nan=-1.0))


# -- model -------------------------------------------------------------------------------------------------------------
# A logistic model of the best few markers is selected and fitted on all architectures but the one it is scored on.
# Values are centred within each architecture and code and scaled by their standard deviation in the fitted
# architectures, so that the model cannot exploit differences between them. Missing values are replaced by the mean.


def model(networks: xarray.Dataset) -> Interval:
    """Return the AUROC of the logistic model on left-out architectures."""
    table = scoring.table_of(scoring.never_shown(networks))
    value = model_left_out(table)[0]
    draws = model_left_out(table, MODEL_RESAMPLES) if np.isfinite(value) else np.array([])
    return scoring.resampled(value, draws, table).interval()


def model_left_out(table: scoring.Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """Return the model's left-out AUROC for the table or resamples of its arms, `[draw]`; NaN for one architecture."""
    generator = np.random.default_rng(seed)
    part = table.part(scoring.with_pairs(table) & np.isin(table.architecture, table.scored))
    pairs = {name: scoring.paired(table, name) for name in table.scored}
    weights = {name: scoring.multiplicities(len(own.arms), resamples, generator) for name, own in pairs.items()}
    results = []
    for draw in range(max(1, resamples)):
        scores, often = {}, np.zeros(len(part.arm), dtype=int)
        for name, own in pairs.items():
            drawn = weights[name][draw]
            scores[name] = own.aurocs(drawn[None])[0].reshape(table.values.shape[1:])
            rows = part.architecture == name
            often[rows] = drawn[np.searchsorted(own.arms, part.arm[rows])]
        again = part.part(np.repeat(np.arange(len(often)), often))
        results.append(_model_score(again.part(scoring.with_pairs(again)), scores))
    return np.array(results)


def _model_score(table: scoring.Table, scores: dict[str, np.ndarray]) -> float:
    """Return the model's left-out AUROC, given those of the markers in each architecture."""
    there = [name for name, own in scores.items() if np.isfinite(own).any()]
    if len(there) < 2:
        return float("nan")
    choice, results = scoring.chosen_elsewhere(np.stack([scores[name] for name in there])), []
    for number, name in enumerate(there):
        strength = np.where(choice.position[number] < 0, -np.inf, choice.strength[number])
        best = np.argsort(-strength, kind="stable")[:MODEL_MARKERS]
        features = pandas.DataFrame(table.values[:, best, choice.position[number][best]])
        outside = np.isin(table.architecture, [other for other in there if other != name])
        means = features.groupby([table.architecture, table.code]).transform("mean")
        centred = (features - means).fillna(0).to_numpy()
        scale = centred[outside].std(axis=0)
        centred = centred / np.where(scale > 0, scale, 1.0)
        weights, _ = logistic(centred[outside], table.composing[outside])
        pairs = scoring.paired(replace(table, values=(centred @ weights)[:, None, None]), name)
        results.append(pairs.aurocs(np.ones((1, len(pairs.arms)))).item())
    return float(np.mean(results))


def logistic(features: np.ndarray, outcome: np.ndarray, ridge: float = RIDGE) -> tuple[np.ndarray, float]:
    """Fit a ridge-penalised logistic regression to `[network, feature]`; return its coefficients and intercept."""
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


# -- record ------------------------------------------------------------------------------------------------------------

STUDY = "markers"
OTHER_NAMES = {
    "spread": ("log_volume_std",),
    "id_error": ("id_error",),
    "memorised": ("superposition memorised",),
    "kernel_binary": ("kernel_agreement binary",),
}
"""Names that a diagnosis uses for a marker in addition to its registered columns."""
ADVICE = {
    "C25": "render each pixel from code and coordinate, as a coordinate MLP does, which composed with no remedy",
    "C23": "train on images of single factors (stripes) too, which composed where combinations alone did not",
}
"""What to try, keyed by the claim that supports it."""


def write_marker_auroc(results: Results, judgements: Iterable[Judgement], path: Path) -> None:
    """Write the file that a diagnosis reads (`diagnosis.result.packaged`), with advice according to the verdicts."""
    if STUDY not in results.studies:
        raise InvalidValue("marker_auroc", str(path), f"omitted if the folder has no results of the study {STUDY}")
    record = marker_auroc_record(results.dataset(STUDY), judgements)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    rows = re.sub(r"\{\s+\"auroc\"[^}]*\}", lambda score: " ".join(score[0].split()), text)  # one line per metric
    write(path, f"{rows}\n".encode(), "marker_auroc")


def marker_auroc_record(networks: xarray.Dataset, judgements: Iterable[Judgement] = ()) -> dict[str, Any]:
    """Return AUROCs keyed by the names used in a diagnosis, a description of the networks, and advice."""
    table = scoring.table_of(scoring.never_shown(networks))
    kinds = ", ".join(f"{count} {name}" for name, count in Counter(map(str, table.architecture)).most_common())
    about = (
        f"{described(table)} ({kinds}; preset {networks.attrs.get('preset', 'unknown')}), "
        f"{int(table.composing.sum())} of which compose (OOD accuracy of at least {100 * COMPOSING_ACCURACY:.0f} %); "
        f"scored on {', '.join(table.scored)}"
    )
    scored = [marker for marker in ranking(networks) if np.isfinite(marker.auroc.low)]
    numbers = {name: _score(own) for own in scored for name in names_of(own.name)}
    supported = {own.claim: own for own in judgements if own.verdict == "supported"}
    advice = [f"{text}. {name}: {sentence(supported[name])}" for name, text in ADVICE.items() if name in supported]
    return {"networks": about, "numbers": numbers, "advice": advice}


def described(table: scoring.Table) -> str:
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
