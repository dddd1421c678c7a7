"""AUROC of markers: shares of pairs of a composing and a failing network, of one architecture and one code.

The AUROC of a marker is the share of pairs in which the composing network has the larger value, ties half. Pairs are
always of one architecture (the decoder's family) and one code, settings included: a marker that differs between
architectures, or between codes, but not between networks of one has 0.5. Networks of an architecture and code that all
compose, or all fail, have no pairs. Depth, hold-out, data and remedy are pooled, and an architecture's AUROC is over
all its pairs, those of a code with many counting more. Resamples draw arms that have pairs, not networks, within each
architecture: networks of an arm differ in the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import pandas
import xarray

from recombine.papers.forced_rendering.markers import COMPOSING, WHOLE_GRID
from recombine.papers.forced_rendering.samples import learnt, trained
from recombine.reproduction.intervals import Resampled

FEWEST = 2
"""Composing, and failing, networks of one code that an architecture must have to be scored."""
AT_ONCE = 1000
"""Resamples that are scored at a time."""


@dataclass(frozen=True, eq=False)
class Table:
    """Markers of networks that learnt."""

    values: np.ndarray
    """`[network, marker, position]`; NaN where there is none."""
    composing: np.ndarray
    architecture: np.ndarray
    code: np.ndarray
    """Networks are paired within one; all the same to pair across codes."""
    arm: np.ndarray
    """Networks of one arm differ in the seed alone."""

    def part(self, chosen: np.ndarray) -> Table:
        """Some of the networks, by mask or index."""
        return Table(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @cached_property
    def scored(self) -> tuple[str, ...]:
        """Architectures with at least `FEWEST` networks of either outcome in one code."""
        return tuple(dict.fromkeys(str(name) for name in self.architecture[with_pairs(self, FEWEST)]))

    @property
    def fewest(self) -> int:
        """Arms with composing, or with failing, networks in pairs of scored architectures, whichever are fewer."""
        own = with_pairs(self) & np.isin(self.architecture, self.scored)
        return min(len(np.unique(self.arm[own & rows])) for rows in (self.composing, ~self.composing))


def with_pairs(table: Table, fewest: int = 1) -> np.ndarray:
    """Which networks are of an architecture and code with at least so many networks of either outcome."""
    outcomes = pandas.Series(table.composing.astype(int)).groupby([table.architecture, table.code])
    composing, every = outcomes.transform("sum"), outcomes.transform("size")
    return np.asarray(np.minimum(composing, every - composing) >= fewest)


def auroc(values: np.ndarray, composing: np.ndarray, code: np.ndarray | None = None) -> float:
    """Share of pairs, of one code if given, in which the composing network has the larger value, ties half.

    NaN without pairs.

    >>> auroc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True]))
    0.875
    """
    from scipy.stats import rankdata

    codes = np.zeros(len(values)) if code is None else code
    won = pairs = 0.0
    for own in np.unique(codes):
        rows = np.isfinite(values) & (codes == own)
        above, below = int(composing[rows].sum()), int((~composing[rows]).sum())
        won += rankdata(values[rows])[composing[rows]].sum() - above * (above + 1) / 2
        pairs += above * below
    return float(won / pairs) if pairs else float("nan")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of one architecture, by the arms that their networks are of."""

    arms: np.ndarray
    """Names, in the order of weights."""
    above: np.ndarray
    """Which of them have composing networks."""
    below: np.ndarray
    """Which of them have failing networks."""
    wins: np.ndarray
    """`[marker and position, arm with composing ones, arm with failing ones]`"""
    pairs: np.ndarray
    """How many there are, `[kind, …]`: most markers have a value for every network, and the same numbers of pairs."""
    kind: np.ndarray
    """Of each marker and position."""

    def aurocs(self, weights: np.ndarray) -> np.ndarray:
        """AUROCs where arms count so often: `[draw, marker and position]`."""
        above, below = weights[:, self.above], weights[:, self.below]
        won, there = (
            np.einsum("ba,kac,bc->bk", above, matrix, below, optimize=True) for matrix in (self.wins, self.pairs)
        )
        there = there[:, self.kind]
        return np.divide(won, there, out=np.full_like(won, np.nan), where=there > 0)


def paired(table: Table, name: str) -> Pairs:
    """The pairs of an architecture."""
    own = table.part((table.architecture == name) & with_pairs(table))
    arms, index = np.unique(own.arm, return_inverse=True)
    values = own.values.reshape(len(own.values), -1)
    high, low = values[own.composing], values[~own.composing]
    same = own.code[own.composing][:, None] == own.code[~own.composing]
    above, below = np.unique(index[own.composing]), np.unique(index[~own.composing])
    of_high = (index[own.composing][:, None] == above).astype(float)
    of_low = (index[~own.composing][:, None] == below).astype(float)
    wins, pairs = [], []
    for one, other in zip(high.T, low.T, strict=True):
        there = same & np.isfinite(one)[:, None] & np.isfinite(other)[None]
        won = np.where(there, (one[:, None] > other[None]) + 0.5 * (one[:, None] == other[None]), 0.0)
        wins.append(of_high.T @ won @ of_low)
        pairs.append(of_high.T @ there.astype(float) @ of_low)
    kinds, kind = np.unique(np.array(pairs), axis=0, return_inverse=True)
    return Pairs(arms, above, below, np.array(wins), kinds, kind.reshape(-1))


def aurocs(table: Table, resamples: int = 0, seed: int = 0) -> np.ndarray:
    """AUROCs within each scored architecture, over pairs of one code: `[draw, architecture, marker, position]`.

    Of the networks as they are, or of resamples, draws of arms with replacement.
    """
    generator, parts = np.random.default_rng(seed), []
    for name in table.scored:
        pairs = paired(table, name)
        draws = multiplicities(len(pairs.arms), resamples, generator)
        scores = [pairs.aurocs(draws[at : at + AT_ONCE]) for at in range(0, len(draws), AT_ONCE)]
        parts.append(np.concatenate(scores).reshape(-1, *table.values.shape[1:]))
    return np.stack(parts, axis=1) if parts else np.full((max(1, resamples), 0, *table.values.shape[1:]), np.nan)


def multiplicities(arms: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """How often each arm is drawn: `[draw, arm]`; without resamples, once."""
    if not resamples:
        return np.ones((1, arms))
    return generator.multinomial(arms, np.full(arms, 1 / arms), size=resamples).astype(float)


def resampled(value: float, draws: np.ndarray, table: Table) -> Resampled:
    """With as many networks as there are arms of the rarer outcome: networks of one arm are hardly several."""
    finite = draws[np.isfinite(draws)]
    number = table.fewest if np.isfinite(value) and len(finite) else 0
    return Resampled(float(value), tuple(finite.tolist()) or (float("nan"),), number)


def never_shown(networks: xarray.Dataset) -> xarray.Dataset:
    """Networks that were not trained on the combinations that count as held out."""
    return networks.isel(network=np.flatnonzero(networks["data"].values != WHOLE_GRID))


def counted(networks: xarray.Dataset) -> np.ndarray:
    """Which networks learnt."""
    return np.asarray((learnt(networks) & trained(networks)).values, dtype=bool)


def table_of(networks: xarray.Dataset, chosen: np.ndarray | None = None) -> Table:
    """Markers of the networks that learnt, or of some."""
    rows = counted(networks) if chosen is None else chosen
    every = Table(
        np.asarray(networks["value"].transpose("network", "marker", "position").values, dtype=float),
        np.asarray(networks["ood_accuracy"].values, dtype=float) >= COMPOSING,
        np.asarray(networks["decoder"].values, dtype=str),
        np.asarray(networks["code"].values, dtype=str),
        np.asarray(networks["arm"].values, dtype=str),
    )
    return every.part(rows)


# -- scoring ---------------------------------------------------------------------------------------------------------
# How telling a marker is: does it tell composing networks from failing ones, in architectures it was not chosen on?
#
# For each architecture, position and sign of a marker are those whose mean AUROC (`pairs`) over the *other*
# architectures is farthest from 0.5; with these it is scored on the one left out. The score is the mean over
# architectures, each counting the same. Only architectures with at least `FEWEST` networks of either outcome in one
# code are scored or chosen on. Where a sign is given beforehand, only the position is chosen, as that whose AUROC of
# this sign is largest.
#
# Intervals come from resamples of arms. Position and sign are chosen again in every resample; an architecture that has
# lost its pairs in one is left out of its mean.


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


def chosen_elsewhere(scores: np.ndarray, signs: np.ndarray | None = None) -> Choice:
    """For each architecture, position and sign of every marker from the AUROCs of all others.

    `scores` are `[…, architecture, marker, position]`; `signs`, `[marker, position]`, are given where they are not 0.
    """
    others = np.stack([mean(np.delete(scores, k, axis=-3), -3) for k in range(scores.shape[-3])], axis=-3)
    free = np.where(others < 0.5, -1.0, 1.0)
    sign = free if signs is None else np.where(signs == 0, free, signs)
    strength = np.where(sign > 0, others, 1 - others)
    position = np.where(np.isfinite(strength), strength, -1.0).argmax(axis=-1)
    sign, best = (np.take_along_axis(numbers, position[..., None], axis=-1)[..., 0] for numbers in (sign, strength))
    return Choice(np.where(np.isfinite(best), position, -1), sign, best)


def left_out(scores: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Mean AUROC over architectures, on each of which a marker is scored as chosen on the others: `[…, marker]`.

    NaN with fewer than two architectures. `signs` are given, not chosen (`chosen_elsewhere`).
    """
    if scores.shape[-3] < 2:
        return np.full((*scores.shape[:-3], scores.shape[-2]), np.nan)
    choice = chosen_elsewhere(scores, signs)
    own = np.take_along_axis(scores, np.maximum(choice.position, 0)[..., None], axis=-1)[..., 0]
    own = np.where(choice.position < 0, np.nan, own)
    return mean(np.where(choice.sign > 0, own, 1 - own), -2)


def overall(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position and sign of every marker that all architectures together choose: what to look at from now on.

    The position is −1 where a marker has no value.
    """
    average = mean(scores, 0)
    position = np.where(np.isfinite(average), np.abs(average - 0.5), -1.0).argmax(axis=-1)
    best = np.take_along_axis(average, position[:, None], axis=-1)[:, 0]
    return np.where(np.isfinite(best), position, -1), np.where(best < 0.5, -1.0, 1.0)


def more_telling(scores: np.ndarray, marker: int) -> np.ndarray:
    """Share of the other markers whose left-out score is higher, ties half; those without a score are not counted."""
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
