"""AUROC of markers: shares of pairs of a composing and a failing network, of one architecture and one code.

The AUROC of a marker is the share of pairs in which the composing network has the larger value, ties half. Pairs are
always of one architecture (the decoder's family) and one code, settings included: a marker that differs between
architectures, or between codes, but not between networks of one has 0.5. Networks of an architecture and code that all
compose, or all fail, have no pairs. Depth, hold-out, data and remedy are pooled, and an architecture's AUROC is over
all its pairs, those of a code with many counting more. Resamples draw arms that have pairs, not networks, within each
architecture: networks of an arm differ in the seed alone.

No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

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
    accuracy: np.ndarray
    """OOD accuracy."""
    architecture: np.ndarray
    code: np.ndarray
    """Networks are paired within one; all the same to pair across codes."""
    arm: np.ndarray
    """Networks of one arm differ in the seed alone."""

    def part(self, chosen: np.ndarray) -> Table:
        """Some of the networks, by mask or index."""
        return Table(
            self.values[chosen], self.composing[chosen], self.accuracy[chosen], self.architecture[chosen],
            self.code[chosen], self.arm[chosen],
        )  # fmt: skip

    def markers(self, chosen: np.ndarray | slice) -> Table:
        """Some of the markers."""
        return replace(self, values=self.values[:, chosen])

    @cached_property
    def scored(self) -> tuple[str, ...]:
        """Architectures with networks of both outcomes in one code."""
        return scored_architectures(self)

    @property
    def fewest(self) -> int:
        """Arms with composing, or with failing, networks in pairs of scored architectures, whichever are fewer."""
        own = with_pairs(self) & np.isin(self.architecture, self.scored)
        return min(len(np.unique(self.arm[own & rows])) for rows in (self.composing, ~self.composing))


def scored_architectures(table: Table) -> tuple[str, ...]:
    """Those with at least `FEWEST` networks of either outcome in one code."""
    enough = table.architecture[with_pairs(table, FEWEST)]
    return tuple(dict.fromkeys(str(name) for name in enough))


def with_pairs(table: Table, fewest: int = 1) -> np.ndarray:
    """Which networks are of an architecture and code with at least so many networks of either outcome."""
    found = np.zeros(len(table.arm), dtype=bool)
    for name, code in set(zip(table.architecture, table.code, strict=True)):
        rows = (table.architecture == name) & (table.code == code)
        composing = int(table.composing[rows].sum())
        found |= rows & (min(composing, int(rows.sum()) - composing) >= fewest)
    return found


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
    """AUROCs within each scored architecture, over pairs of one code.

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
        `[draw, architecture, marker, position]`.
    """
    generator, parts = np.random.default_rng(seed), []
    for name in table.scored:
        pairs = paired(table, name)
        number = len(pairs.arms)
        draws = multiplicities(number, resamples, generator) if resamples else np.ones((1, number))
        scores = [pairs.aurocs(draws[at : at + AT_ONCE]) for at in range(0, len(draws), AT_ONCE)]
        parts.append(np.concatenate(scores).reshape(-1, *table.values.shape[1:]))
    return np.stack(parts, axis=1) if parts else np.full((max(1, resamples), 0, *table.values.shape[1:]), np.nan)


def multiplicities(arms: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """How often each arm is drawn: `[draw, arm]`."""
    return generator.multinomial(arms, np.full(arms, 1 / arms), size=resamples).astype(float)
