"""Accuracy against the size of the training set: a curve, where it crosses a target, and how sure that is.

The curve is a(n) = top · logistic(slope · (ln n − mid)): rising, and levelling off at `top` ≤ 1, so that networks that
never get beyond a part of the grid are not read as if they would with more data. It is fitted by least squares within
bounds, one point per network. Uncertainty comes from resampling the networks, each with its own n, and fitting again.

The fit is a search and not a descent. For a given slope and mid the best top has a closed form, so a coarse grid over
those two and then ever finer ones around the best find the minimum without a starting point to depend on, for all
resamples at once.

A threshold is where the curve crosses the target. It can have a floor, below which no training set goes (stripes that
are always there), and it is believed up to the largest set that could have been tried: beyond that it is *not reached*.
Resampled thresholds are believed up to `EXTRAPOLATED` times that. Those beyond are drawn as that much, but where they
are more than a tail of the interval its limit is open (`limits`), and when more than `UNSURE` of the resamples
lie beyond, the threshold is *unsure* and there is none. The same holds for those below the smallest set tried.

Known answers: points on a curve give back its crossing; points that are flat at 0.5 never cross 0.9; those of
1 − exp(−n / N²), which is no logistic, give crossings some 5 % off when most points lie near them, but by as much at
every N, so that the exponent is 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recombine.papers.forced_rendering.threshold.limits import threshold_limits

Floats = NDArray[np.float64]
Outcome = Literal["fitted", "exact", "not reached", "unsure", "always reached"]

EXTRAPOLATED = 2
"""Resampled thresholds are believed up to this multiple of the largest training set."""
UNSURE = 0.05
"""Largest share of resamples without a threshold."""

SLOPES = (0.3, 100.0)
"""Bounds of the slope, per factor of e in n."""
BEYOND = 3.0
"""How far outside the points' range of ln n the middle of a curve may lie."""
LOWEST_TOP = 1e-6
SLOPE_CELLS, MID_CELLS = 25, 60
"""Of the coarse grid."""
ZOOMS = 12
"""Finer grids after it."""
HALF_WIDTH = 2
"""Cells of a finer grid to each side of the best point so far."""
TOGETHER = 256
"""Resamples fitted at a time, which bounds the memory."""


@dataclass(frozen=True)
class Curves:
    """One fitted curve, or one per resample: arrays of the same length."""

    top: Floats
    slope: Floats
    mid: Floats

    def accuracy(self, examples: ArrayLike) -> Floats:
        """Accuracy at these sizes of the training set: `(curve, size)`."""
        distance = np.log(np.asarray(examples, dtype=float))[None] - self.mid[:, None]
        return self.top[:, None] * _logistic(self.slope[:, None] * distance)

    def crossing(self, target: float) -> Floats:
        """The size of the training set at which each curve reaches the target; infinite where it never does."""
        reaches = self.top > target
        share = np.where(reaches, target / self.top, 0.5)
        log_size = self.mid + np.log(share / (1 - share)) / self.slope
        return np.where(reaches, np.exp(np.minimum(log_size, 700.0)), np.inf)


def fitted(examples: ArrayLike, accuracy: ArrayLike) -> Curves:
    """The curve through all networks' accuracies."""
    logs, points = np.log(np.asarray(examples, dtype=float)), np.asarray(accuracy, dtype=float)
    return _search(logs, points, np.ones((1, len(points))))


def resampled(examples: ArrayLike, accuracy: ArrayLike, resamples: int, generator: np.random.Generator) -> Curves:
    """Curves through networks drawn with replacement, as many as there are."""
    logs, points = np.log(np.asarray(examples, dtype=float)), np.asarray(accuracy, dtype=float)
    draws = generator.multinomial(len(points), np.full(len(points), 1 / len(points)), size=resamples).astype(float)
    parts = [_search(logs, points, draws[k : k + TOGETHER]) for k in range(0, resamples, TOGETHER)]
    return Curves(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "slope", "mid")))


@dataclass(frozen=True)
class Threshold:
    """The smallest training set that reaches a target; NaN where there is none, and the outcome says why."""

    outcome: Outcome
    value: float
    low: float
    high: float
    draws: Floats
    """The resampled thresholds."""
    top: float = np.nan
    slope: float = np.nan
    mid: float = np.nan
    unreached: float = 0.0
    """Share of the resamples whose threshold is beyond what is believed."""
    undercut: float = 0.0
    """Share of the resamples whose threshold is below it."""


def exact_threshold(value: float, resamples: int) -> Threshold:
    """A threshold that no curve is needed for."""
    return Threshold("exact", value, value, value, np.full(resamples, value))


def threshold(
    examples: ArrayLike,
    accuracy: ArrayLike,
    target: float,
    generator: np.random.Generator,
    *,
    largest: float,
    floor: float = 0.0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Threshold:
    """Where the curve through the networks crosses the target, with an interval from resampling them."""
    curve, lowest, furthest = fitted(examples, accuracy), np.min(examples) / EXTRAPOLATED, EXTRAPOLATED * largest
    shape = (float(curve.top[0]), float(curve.slope[0]), float(curve.mid[0]))
    value = max(floor, float(curve.crossing(target)[0]))
    if not lowest <= value <= largest:
        outcome: Outcome = "not reached" if value > largest else "always reached"
        shares = (1.0, 0.0) if value > largest else (0.0, 1.0)
        return Threshold(outcome, np.nan, np.nan, np.nan, np.full(resamples, np.nan), *shape, *shares)
    draws = np.maximum(floor, resampled(examples, accuracy, resamples, generator).crossing(target))
    shares = float((draws > furthest).mean()), float((draws < lowest).mean())
    draws = np.clip(draws, lowest, furthest)
    if sum(shares) > UNSURE:
        return Threshold("unsure", np.nan, np.nan, np.nan, draws, *shape, *shares)
    return Threshold("fitted", value, *threshold_limits(draws, *shares, confidence), draws, *shape, *shares)


def exponent(sizes: ArrayLike, thresholds: ArrayLike) -> Floats:
    """Least-squares slope of ln threshold on ln size, along the last axis of the thresholds."""
    logs = np.log(np.asarray(sizes, dtype=float))
    centred = logs - logs.mean()
    return np.asarray(np.log(np.asarray(thresholds, dtype=float)) @ centred / (centred @ centred))


# -- the search ----------------------------------------------------------------------------------------------------


def _search(logs: Floats, accuracy: Floats, weights: Floats) -> Curves:
    """The best curve for each row of weights over the networks."""
    slopes = np.linspace(np.log(SLOPES[0]), np.log(SLOPES[1]), SLOPE_CELLS)
    mids = np.linspace(logs.min() - BEYOND, logs.max() + BEYOND, MID_CELLS)
    grid = np.stack(np.meshgrid(slopes, mids, indexing="ij"), axis=-1).reshape(-1, 2)
    shape = _shape(grid, logs)
    best = grid[_loss(weights @ (shape * accuracy).T, weights @ (shape**2).T)[0].argmin(axis=1)]

    ticks = np.arange(-HALF_WIDTH, HALF_WIDTH + 1)
    offsets = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    low, high = grid.min(axis=0), grid.max(axis=0)
    step = np.tile((high - low) / (SLOPE_CELLS - 1, MID_CELLS - 1), (len(weights), 1))
    rows = np.arange(len(weights))
    for _ in range(ZOOMS):
        around = np.clip(best[:, None] + offsets * step[:, None], low, high)
        loss, tops = _loss(*_moments(around, logs, accuracy, weights))
        chosen = loss.argmin(axis=1)
        best, top = around[rows, chosen], tops[rows, chosen]
        inside = np.abs(offsets[chosen]).max(axis=1) < HALF_WIDTH
        step = np.where(inside[:, None], step / 2, step)
    return Curves(top, np.exp(best[:, 0]), best[:, 1])


def _moments(around: Floats, logs: Floats, accuracy: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Of each resample's own candidates."""
    shape = _shape(around, logs)
    return np.einsum("rgk,rk->rg", shape, weights * accuracy), np.einsum("rgk,rk->rg", shape**2, weights)


def _shape(candidates: Floats, logs: Floats) -> Floats:
    """The logistic of each candidate (ln slope, mid) at each network's ln n."""
    return _logistic(np.exp(candidates[..., 0, None]) * (logs - candidates[..., 1, None]))


def _loss(product: Floats, square: Floats) -> tuple[Floats, Floats]:
    """Squared error, less a constant, at the best top within its bounds; and that top.

    With s the logistic, Σ w (a − top s)² = top² Σ w s² − 2 top Σ w a s + Σ w a².
    """
    top = np.clip(product / np.maximum(square, np.finfo(float).tiny), LOWEST_TOP, 1.0)
    return top**2 * square - 2 * top * product, top


def _logistic(values: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * values))
