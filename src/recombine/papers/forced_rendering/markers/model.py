"""A logistic model of the best few markers, chosen and fitted on the architectures that it is not scored on.

Values are centred within each architecture and code and scaled by their spread within the fitted architectures, so that
the model cannot use that architectures or codes differ; a missing value is their mean.

No torch here.
"""

from __future__ import annotations

import numpy as np

from recombine.papers.forced_rendering.markers.pairs import Table, auroc, multiplicities, paired, with_pairs
from recombine.papers.forced_rendering.markers.scoring import chosen_elsewhere, mean

MODEL_RESAMPLES = 500
MODEL_MARKERS = 3
RIDGE = 1.0
"""Weight of the penalty on the model's coefficients, as scikit-learn's 1 / C."""


def model_left_out(table: Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """Left-out AUROC of a logistic model of the best few markers, in the networks or in resamples of their arms.

    Parameters
    ----------
    table
        Networks that learnt.
    resamples
        Draws of arms with replacement; none for the networks as they are.
    seed
        Of the draws.

    Returns
    -------
    ndarray
        `[draw]`; NaN with fewer than two architectures.
    """
    generator = np.random.default_rng(seed)
    part = table.part(with_pairs(table) & np.isin(table.architecture, table.scored))
    pairs = {name: paired(table, name) for name in table.scored}
    weights = {
        name: multiplicities(len(own.arms), resamples, generator) if resamples else np.ones((1, len(own.arms)))
        for name, own in pairs.items()
    }
    results = []
    for draw in range(max(1, resamples)):
        scores, often = [], np.zeros(len(part.arm), dtype=int)
        for name, own in pairs.items():
            drawn = weights[name][draw]
            scores.append(own.aurocs(drawn[None])[0].reshape(table.values.shape[1:]))
            rows = part.architecture == name
            often[rows] = drawn[np.searchsorted(own.arms, part.arm[rows])]
        again = part.part(np.repeat(np.arange(len(often)), often))
        results.append(_model_score(again.part(with_pairs(again)), dict(zip(pairs, scores, strict=True))))
    return np.array(results)


def _model_score(table: Table, scores: dict[str, np.ndarray]) -> float:
    """From AUROCs by architecture; those without pairs are left out."""
    there = [name for name, own in scores.items() if np.isfinite(own).any()]
    if len(there) < 2:
        return float("nan")
    choice, results = chosen_elsewhere(np.stack([scores[name] for name in there])), []
    for number, name in enumerate(there):
        strength = np.where(choice.position[number] < 0, -np.inf, choice.strength[number])
        best = np.argsort(-strength, kind="stable")[:MODEL_MARKERS]
        features = table.values[:, best, choice.position[number][best]]
        outside, own = np.isin(table.architecture, [o for o in there if o != name]), table.architecture == name
        centred = _centred(features, np.char.add(table.architecture, np.char.add(" ", table.code)))
        scale = centred[outside].std(axis=0)
        centred = centred / np.where(scale > 0, scale, 1.0)
        weights, _ = logistic(centred[outside], table.composing[outside])
        results.append(auroc(centred[own] @ weights, table.composing[own], table.code[own]))
    return float(np.mean(results))


def _centred(features: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Values less the mean of their group; 0 where there is none."""
    centred = np.zeros_like(features, dtype=float)
    for name in np.unique(group):
        own = group == name
        centred[own] = np.nan_to_num(features[own] - mean(features[own], 0))
    return centred


def logistic(features: np.ndarray, outcome: np.ndarray, ridge: float = RIDGE) -> tuple[np.ndarray, float]:
    """Coefficients and intercept of a logistic regression with a penalty on the squared coefficients.

    Parameters
    ----------
    features
        `[network, feature]`.
    outcome
        True or false for each network.
    ridge
        Weight of half the squared coefficients beside the summed log-likelihood.

    Returns
    -------
    tuple
        Coefficients and intercept.
    """
    design = np.column_stack([features, np.ones(len(features))])
    penalty = np.append(np.full(features.shape[1], ridge), 0.0)
    weights, outcome = np.zeros(design.shape[1]), outcome.astype(float)
    for _ in range(100):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        gradient = design.T @ (chance - outcome) + penalty * weights
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            break
    return weights[:-1], float(weights[-1])
