"""AUROC of markers: how well each separates composing from failing networks, on architectures it was not chosen on.

The AUROC of a marker is the share of pairs of a composing and a failing network in which the composing one has the
larger value; ties count half. Pairs always share the architecture (the decoder's family) and the code with its
settings, so that a marker that differs only between architectures or codes has 0.5. Networks of an architecture and
code that all compose, or all fail, have no pairs. Depth, hold-out, data and remedy are pooled, and an architecture's
AUROC is over all its pairs, so that codes with many pairs count more.

For each architecture, a marker's position and sign are those whose mean AUROC over the *other* architectures is
farthest from 0.5, and it is then scored on the one left out. The score is the unweighted mean over architectures. Only
architectures with at least `FEWEST` networks of either outcome in one code are used. Where the sign is given, only the
position is chosen, by the largest AUROC of that sign.

Intervals come from resampling arms that have pairs, within each architecture, rather than networks, because networks of
an arm differ only in the seed. Position and sign are chosen anew in every resample; an architecture left without pairs
in a resample is excluded from its mean.
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
"""Composing, and failing, networks of one code that an architecture needs to be scored."""
AT_ONCE = 1000
"""Resamples scored at a time."""
RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Table:
    """Markers of networks that learnt."""

    values: np.ndarray
    """`[network, marker, position]`; NaN where missing."""
    composing: np.ndarray
    architecture: np.ndarray
    code: np.ndarray
    """Networks are paired within a code; all equal to pair across codes."""
    arm: np.ndarray
    """Networks of one arm differ only in the seed."""

    def part(self, chosen: np.ndarray) -> Table:
        """Return some of the networks, by mask or index."""
        return Table(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @cached_property
    def scored(self) -> tuple[str, ...]:
        """Architectures with at least `FEWEST` networks of either outcome in one code."""
        return tuple(dict.fromkeys(str(name) for name in self.architecture[with_pairs(self, FEWEST)]))

    @property
    def fewest(self) -> int:
        """Number of arms with composing, or with failing, networks in pairs, whichever is smaller."""
        own = with_pairs(self) & np.isin(self.architecture, self.scored)
        return min(len(np.unique(self.arm[own & rows])) for rows in (self.composing, ~self.composing))


def never_shown(networks: xarray.Dataset) -> xarray.Dataset:
    """Return the networks that were not trained on held-out combinations."""
    return networks.isel(network=np.flatnonzero(networks["data"].values != WHOLE))


def counted(networks: xarray.Dataset) -> np.ndarray:
    """Which networks learnt."""
    return np.asarray((learnt(networks) & trained(networks)).values, dtype=bool)


def table_of(networks: xarray.Dataset, chosen: np.ndarray | None = None) -> Table:
    """Return the markers of the networks that learnt, or of the chosen ones."""
    every = Table(
        np.asarray(networks["value"].transpose("network", "marker", "position").values, dtype=float),
        np.asarray(networks["ood_accuracy"].values, dtype=float) >= COMPOSING_ACCURACY,
        *(np.asarray(networks[name].values, dtype=str) for name in ("decoder", "code", "arm")),
    )
    return every.part(counted(networks) if chosen is None else chosen)


def with_pairs(table: Table, fewest: int = 1) -> np.ndarray:
    """Which networks are of an architecture and code with at least so many networks of either outcome."""
    outcomes = pandas.Series(table.composing.astype(int)).groupby([table.architecture, table.code])
    composing, every = outcomes.transform("sum"), outcomes.transform("size")
    return np.asarray(np.minimum(composing, every - composing) >= fewest)


class Pairs(NamedTuple):
    """Pairs of one architecture, by the arms of their networks."""

    arms: np.ndarray
    """Names, in the order of weights."""
    above: np.ndarray
    """Indices of arms with composing networks."""
    below: np.ndarray
    """Indices of arms with failing networks."""
    wins: np.ndarray
    """`[marker and position, arm above, arm below]`"""
    pairs: np.ndarray
    """Distinct matrices of pair counts, `[kind, arm above, arm below]`: most markers share one, being never missing."""
    kind: np.ndarray
    """Index into `pairs` of each marker and position."""

    def aurocs(self, weights: np.ndarray) -> np.ndarray:
        """AUROCs with arms repeated `weights` times, `[draw, arm]`: `[draw, marker and position]`."""
        above, below = weights[:, self.above], weights[:, self.below]
        won, total = (
            np.einsum("ba,kac,bc->bk", above, matrix, below, optimize=True) for matrix in (self.wins, self.pairs)
        )
        total = total[:, self.kind]
        return np.divide(won, total, out=np.full_like(won, np.nan), where=total > 0)


def paired(table: Table, name: str) -> Pairs:
    """Return the pairs of an architecture."""
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
    """AUROCs in each scored architecture, `[draw, architecture, marker, position]`, of the table or of resamples."""
    generator, parts = np.random.default_rng(seed), []
    for name in table.scored:
        pairs = paired(table, name)
        draws = multiplicities(len(pairs.arms), resamples, generator)
        scores = [pairs.aurocs(draws[at : at + AT_ONCE]) for at in range(0, len(draws), AT_ONCE)]
        parts.append(np.concatenate(scores).reshape(-1, *table.values.shape[1:]))
    return np.stack(parts, axis=1) if parts else np.full((max(1, resamples), 0, *table.values.shape[1:]), np.nan)


def multiplicities(arms: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """How often each arm is drawn, `[draw, arm]`; once without resamples."""
    if not resamples:
        return np.ones((1, arms))
    return generator.multinomial(arms, np.full(arms, 1 / arms), size=resamples).astype(float)


def resampled(value: float, draws: np.ndarray, table: Table) -> Resampled:
    """Return an estimate whose number of networks is `table.fewest`: seeds of one arm are far from independent."""
    finite = draws[np.isfinite(draws)]
    number = table.fewest if np.isfinite(value) and len(finite) else 0
    return Resampled(float(value), tuple(finite.tolist()) or (float("nan"),), number)


class Choice(NamedTuple):
    """Position and sign of every marker: `[…, marker]`."""

    position: np.ndarray
    """−1 without pairs."""
    sign: np.ndarray
    """1 where composing networks have larger values, −1 where smaller."""
    strength: np.ndarray
    """AUROC with that sign."""


def chosen(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """Choose position and sign from AUROCs `[…, marker, position]`, except for signs given as ±1 in `signs`."""
    free = np.where(scores < 0.5, -1.0, 1.0)
    sign = free if signs is None else np.where(signs == 0, free, signs)
    strength = np.where(sign > 0, scores, 1 - scores)
    position = np.where(np.isfinite(strength), strength, -1.0).argmax(axis=-1)
    sign, best = (np.take_along_axis(numbers, position[..., None], axis=-1)[..., 0] for numbers in (sign, strength))
    return Choice(np.where(np.isfinite(best), position, -1), sign, best)


def chosen_elsewhere(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """For each architecture, choose from the mean AUROC of all others; `scores` are those of `aurocs`."""
    others = [mean(np.delete(scores, k, axis=-3), -3) for k in range(scores.shape[-3])]
    return chosen(np.stack(others, axis=-3), signs)


def left_out(scores: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Mean AUROC over architectures, with position and sign chosen on the others: `[…, marker]`; NaN with only one."""
    if scores.shape[-3] < 2:
        return np.full((*scores.shape[:-3], scores.shape[-2]), np.nan)
    choice = chosen_elsewhere(scores, signs)
    own = np.take_along_axis(scores, np.maximum(choice.position, 0)[..., None], axis=-1)[..., 0]
    own = np.where(choice.position < 0, np.nan, own)
    return mean(np.where(choice.sign > 0, own, 1 - own), -2)


def more_telling(scores: np.ndarray, marker: int) -> np.ndarray:
    """Share of other markers with a higher left-out score, ties counting half; markers without a score are ignored."""
    own, others = scores[..., marker, None], np.delete(scores, marker, axis=-1)
    there = np.isfinite(others)
    above = ((others > own) + 0.5 * (others == own)).sum(axis=-1, where=there)
    total = there.sum(axis=-1) * np.isfinite(own[..., 0])
    return np.divide(above, total, out=np.full(above.shape, np.nan), where=total > 0)


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean over what is not NaN, without numpy's warning where nothing is."""
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))
