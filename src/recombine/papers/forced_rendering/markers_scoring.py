"""AUROC of markers (metrics used to predict composition) on architectures that were not used to choose them.

The AUROC of a marker is the share of pairs of a composing and a failing network in which the composing network has the
larger value; ties count half. The two networks of a pair have the same architecture (decoder family) and the same code
with the same settings, so a marker that differs only between architectures or codes gets 0.5. If all networks with an
architecture and code compose, or all fail, they form no pairs. Networks are pooled over depth, hold-out, data and
remedy, and an architecture's AUROC is over all its pairs, so codes with many pairs count more.

For each architecture, a marker's position and sign are chosen such that the mean AUROC over the *other* architectures
is farthest from 0.5, and the marker is then scored on the left-out architecture. The score is the unweighted mean over
architectures. Only architectures with at least `FEWEST` composing and `FEWEST` failing networks with the same code are
used. If the sign is fixed in advance, only the position is chosen, by the largest AUROC with that sign.

For intervals, arms (experimental conditions) that have pairs are resampled within each architecture. Networks are not
resampled, because those of an arm differ only in the seed. Position and sign are chosen again in every resample. An
architecture that has no pairs in a resample is excluded from its mean.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas
import xarray

from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, WHOLE, learnt, trained
from recombine.reproduction.intervals import Resampled

FEWEST = 2
"""Fewest composing and failing networks with the same code for an architecture to be scored."""
AT_ONCE = 1000
"""Number of resamples scored at a time."""
RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Table:
    """Marker values of the networks that learnt."""

    values: np.ndarray
    """`[network, marker, position]`; NaN where missing."""
    composing: np.ndarray
    architecture: np.ndarray
    code: np.ndarray
    """Networks are paired only within a code; if all codes are equal, any two can be paired."""
    arm: np.ndarray
    """Networks of the same arm differ only in the seed."""

    def part(self, chosen: np.ndarray) -> Table:
        """Return the table of some of the networks, selected by mask or index."""
        return Table(*(getattr(self, field.name)[chosen] for field in fields(self)))

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
    """Return which networks learnt."""
    return np.asarray((learnt(networks) & trained(networks)).values, dtype=bool)


def table_of(networks: xarray.Dataset, chosen: np.ndarray | None = None) -> Table:
    """Return the markers of the chosen networks, by default of all that learnt."""
    every = Table(
        np.asarray(networks["value"].transpose("network", "marker", "position").values, dtype=float),
        np.asarray(networks["ood_accuracy"].values, dtype=float) >= COMPOSING_ACCURACY,
        *(np.asarray(networks[name].values, dtype=str) for name in ("decoder", "code", "arm")),
    )
    return every.part(counted(networks) if chosen is None else chosen)


def with_pairs(table: Table, fewest: int = 1) -> np.ndarray:
    """Return which networks share architecture and code with at least `fewest` composing and `fewest` failing ones."""
    outcomes = pandas.Series(table.composing.astype(int)).groupby([table.architecture, table.code])
    composing, every = outcomes.transform("sum"), outcomes.transform("size")
    return np.asarray(np.minimum(composing, every - composing) >= fewest)


class Pairs(NamedTuple):
    """Pairs of networks with the same architecture, grouped by arm (experimental condition)."""

    arms: np.ndarray
    """Names of the arms, in the order of the weights in `aurocs`."""
    above: np.ndarray
    """Indices of arms with composing networks."""
    below: np.ndarray
    """Indices of arms with failing networks."""
    wins: np.ndarray
    """Number of pairs in which the composing network has the larger value, `[marker and position, above, below]`."""
    pairs: np.ndarray
    """Distinct matrices of pair counts, `[kind, above, below]`; markers without missing values share one."""
    kind: np.ndarray
    """Index into `pairs` for each marker and position."""

    def aurocs(self, weights: np.ndarray) -> np.ndarray:
        """Return AUROCs `[draw, marker and position]` with arms repeated `weights[draw, arm]` times."""
        above, below = weights[:, self.above], weights[:, self.below]
        won, total = (
            np.einsum("ba,kac,bc->bk", above, matrix, below, optimize=True) for matrix in (self.wins, self.pairs)
        )
        total = total[:, self.kind]
        return np.divide(won, total, out=np.full_like(won, np.nan), where=total > 0)


def paired(table: Table, name: str) -> Pairs:
    """Return the pairs of networks with this architecture."""
    own = table.part((table.architecture == name) & with_pairs(table))
    arms, index = np.unique(own.arm, return_inverse=True)
    values = own.values.reshape(len(own.values), -1)
    up, down = own.composing, ~own.composing
    same = own.code[up][:, None] == own.code[down]
    above, below = np.unique(index[up]), np.unique(index[down])
    of_above, of_below = (index[up][:, None] == above).astype(float), (index[down][:, None] == below).astype(float)
    wins, pairs = [], []
    for column in values.T:
        high, low = column[up][:, None], column[down]
        present = same & np.isfinite(high) & np.isfinite(low)
        won = np.where(present, (high > low) + 0.5 * (high == low), 0.0)
        wins.append(of_above.T @ won @ of_below)
        pairs.append(of_above.T @ present.astype(float) @ of_below)
    kinds, kind = np.unique(np.array(pairs), axis=0, return_inverse=True)
    return Pairs(arms, above, below, np.array(wins), kinds, kind.reshape(-1))


def aurocs(table: Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """Return AUROCs `[draw, architecture, marker, position]` of scored architectures, for the table or resamples."""
    generator, parts = np.random.default_rng(seed), []
    for name in table.scored:
        pairs = paired(table, name)
        draws = multiplicities(len(pairs.arms), resamples, generator)
        scores = [pairs.aurocs(draws[at : at + AT_ONCE]) for at in range(0, len(draws), AT_ONCE)]
        parts.append(np.concatenate(scores).reshape(-1, *table.values.shape[1:]))
    return np.stack(parts, axis=1) if parts else np.full((max(1, resamples), 0, *table.values.shape[1:]), np.nan)


def multiplicities(arms: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return how often each arm is drawn, `[draw, arm]`; without resamples, one draw with every arm once."""
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
    """For each architecture, choose by the mean AUROC of all others; `scores` are what `aurocs` returns."""
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


def more_telling(scores: np.ndarray, marker: int) -> np.ndarray:
    """Return the share of the other scored markers with a higher left-out score; ties count half."""
    own, others = scores[..., marker, None], np.delete(scores, marker, axis=-1)
    there = np.isfinite(others)
    above = ((others > own) + 0.5 * (others == own)).sum(axis=-1, where=there)
    total = there.sum(axis=-1) * np.isfinite(own[..., 0])
    return np.divide(above, total, out=np.full(above.shape, np.nan), where=total > 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of values that are not NaN, without numpy's warning where all are NaN."""
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))
