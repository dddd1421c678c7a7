"""How telling a marker is: does it tell composing networks from failing ones, in architectures it was not chosen on?

For each architecture, position and sign of a marker are those whose mean AUROC (`pairs`) over the *other* architectures
is farthest from 0.5; with these it is scored on the one left out. The score is the mean over architectures, each
counting the same. Only architectures with at least `FEWEST` networks of either outcome in one code are scored or chosen
on. Where a sign is given beforehand, only the position is chosen, as that whose AUROC of this sign is largest.

Intervals come from resamples of arms. Position and sign are chosen again in every resample; an architecture that has
lost its pairs in one is left out of its mean.

No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recombine.papers.forced_rendering.markers.pairs import Table, aurocs, with_pairs

RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Choice:
    """Position and sign of every marker, for each architecture that is left out."""

    position: np.ndarray
    """`[…, architecture, marker]`; −1 where the others have no pairs."""
    sign: np.ndarray
    """1 where composing networks have larger values, −1 where smaller ones."""
    strength: np.ndarray
    """Mean AUROC over the others, of that sign."""

    def taken(self, numbers: np.ndarray) -> np.ndarray:
        """Of numbers by architecture, marker and position, those at the chosen position."""
        chosen = np.take_along_axis(numbers, np.maximum(self.position, 0)[..., None], axis=-1)[..., 0]
        return np.where(self.position < 0, np.nan, chosen)


def chosen_elsewhere(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """For each architecture, position and sign of every marker from the AUROCs of all others.

    Parameters
    ----------
    scores
        `aurocs`: `[…, architecture, marker, position]`.
    signs
        Signs that are given, not chosen, `[marker, position]`; 0 where they are chosen. All are, without.

    Returns
    -------
    Choice
        Of every marker, for each architecture that is left out.
    """
    others = np.stack([mean(np.delete(scores, k, axis=-3), -3) for k in range(scores.shape[-3])], axis=-3)
    free = np.where(others < 0.5, -1.0, 1.0)
    sign = free if signs is None else np.where(signs == 0, free, signs)
    strength = np.where(sign > 0, others, 1 - others)
    position = np.where(np.isfinite(strength), strength, -1.0).argmax(axis=-1)
    sign, best = (np.take_along_axis(numbers, position[..., None], axis=-1)[..., 0] for numbers in (sign, strength))
    return Choice(np.where(np.isfinite(best), position, -1), sign, best)


def left_out(scores: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Mean AUROC over architectures, on each of which a marker is scored as chosen on the others.

    Parameters
    ----------
    scores
        `aurocs`: `[…, architecture, marker, position]`.
    signs
        Signs that are given, not chosen (`chosen_elsewhere`).

    Returns
    -------
    ndarray
        `[…, marker]`; NaN with fewer than two architectures.
    """
    if scores.shape[-3] < 2:
        return np.full((*scores.shape[:-3], scores.shape[-2]), np.nan)
    choice = chosen_elsewhere(scores, signs)
    own = choice.taken(scores)
    return mean(np.where(choice.sign > 0, own, 1 - own), -2)


def overall(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position and sign of every marker that all architectures together choose: what to look at from now on.

    Parameters
    ----------
    scores
        AUROCs of the networks as they are, `[architecture, marker, position]`.

    Returns
    -------
    tuple of ndarray
        `[marker]` each; the position is −1 where a marker has no value.
    """
    average = mean(scores, 0)
    position = np.where(np.isfinite(average), np.abs(average - 0.5), -1.0).argmax(axis=-1)
    best = np.take_along_axis(average, position[:, None], axis=-1)[:, 0]
    return np.where(np.isfinite(best), position, -1), np.where(best < 0.5, -1.0, 1.0)


def spearman(table: Table) -> np.ndarray:
    """Rank correlation with OOD accuracy at the position and sign chosen as for the AUROC; mean over architectures.

    Within one code; codes of an architecture count by their networks.
    """
    scores = aurocs(table)[0]
    if len(scores) < 2:
        return np.full(table.values.shape[1], np.nan)
    correlations = np.full(scores.shape, np.nan)
    for number, name in enumerate(table.scored):
        own = table.part((table.architecture == name) & with_pairs(table))
        for place in np.ndindex(*scores.shape[1:]):
            correlations[(number, *place)] = _correlation(own.values[(slice(None), *place)], own.accuracy, own.code)
    choice = chosen_elsewhere(scores)
    return mean(choice.sign * choice.taken(correlations), 0)


def _correlation(values: np.ndarray, accuracy: np.ndarray, code: np.ndarray) -> float:
    """Spearman's, within each code, weighted by networks; NaN where nothing differs in any."""
    from scipy.stats import spearmanr

    total, networks = 0.0, 0
    for own in np.unique(code):
        there = np.isfinite(values) & (code == own)
        if len(np.unique(values[there])) > 1 and len(np.unique(accuracy[there])) > 1:
            total += there.sum() * float(spearmanr(values[there], accuracy[there]).statistic)
            networks += int(there.sum())
    return total / networks if networks else float("nan")


def more_telling(scores: np.ndarray, marker: int) -> np.ndarray:
    """Share of the other markers whose left-out score is higher, ties half.

    Parameters
    ----------
    scores
        `left_out`: `[…, marker]`; markers without a score are not counted.
    marker
        Which.

    Returns
    -------
    ndarray
        `[…]`; NaN where the marker itself has no score.
    """
    own, others = scores[..., marker, None], np.delete(scores, marker, axis=-1)
    there = np.isfinite(others)
    above = ((others > own) + 0.5 * (others == own)).sum(axis=-1, where=there)
    counted = there.sum(axis=-1) * np.isfinite(own[..., 0])
    return np.divide(above, counted, out=np.full(above.shape, np.nan), where=counted > 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is not NaN; NaN where nothing is left."""
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))
