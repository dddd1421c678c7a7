"""Accuracy against the size of the training set: a curve, where it crosses a target, and how sure that is.

The curve is a(n) = top · logistic(slope · (ln n − mid)): rising, and levelling off at `top` ≤ 1, so that networks that
never get beyond a part of the grid are not read as if they would with more data. It is fitted by least squares within
bounds, one point per network. Uncertainty comes from resampling the networks, each with its own n, and fitting again.

For a given slope and mid the best top has a closed form, so there are two parameters to look for. A coarse grid over
both finds where the minimum lies without a starting point to depend on, and damped Gauss-Newton steps from there lead
to it, for all resamples at once. Resamples of few networks are often the same, and fitted once.

A threshold is where the curve crosses the target. It can have a floor, below which no training set goes (stripes that
are always there), and it is believed up to the largest set that could have been tried: beyond that it is *not reached*.
Resampled thresholds are believed up to `EXTRAPOLATED` times that, and those beyond are infinite, so that an end of an
interval that they would decide is open; those as far below the smallest set tried are 0.

Known answers: points on a curve give back its crossing; points that are flat at 0.5 never cross 0.9; those of
1 − exp(−n / N²), which is no logistic, give crossings some 5 % off when most points lie near them, but by as much at
every N, so that the exponent is 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recombine.reproduction.intervals import Resampled

Floats = NDArray[np.float64]
Outcome = Literal["fitted", "exact", "not reached", "too few networks", "always reached"]
CPU = torch.device("cpu")

EXTRAPOLATED = 2
"""Resampled thresholds are believed up to this multiple of the largest training set."""
SLOPES = (0.3, 100.0)
"""Bounds of the slope, per factor of e in n."""
BEYOND = 3.0
"""How far outside the points' range of ln n the middle of a curve may lie."""
LOWEST_TOP = 1e-6
TINY = 1e-30
LONGEST = 0.5
"""A step's length in ln slope or mid."""
SLOPE_CELLS, MID_CELLS = 13, 36
"""Of the coarse grid."""
STEPS = 20
"""Damped steps after it."""
DAMPING, LESS, MORE = 1e-2, 0.2, 8.0
"""At first, and its factors after a step that helped and one that did not."""
TOGETHER = 1 << 13
"""Resamples fitted at a time, which bounds the memory."""


@dataclass(frozen=True)
class Curves:
    """One fitted curve, or one per resample: arrays of the same length."""

    top: Floats
    slope: Floats
    mid: Floats

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


def resampled(
    examples: ArrayLike,
    accuracy: ArrayLike,
    resamples: int,
    generator: np.random.Generator,
    device: torch.device = CPU,
) -> Curves:
    """Curves through networks drawn with replacement, as many as there are."""
    logs, points = np.log(np.asarray(examples, dtype=float)), np.asarray(accuracy, dtype=float)
    count = len(points)
    draws = generator.multinomial(count, np.full(count, 1 / count), size=resamples)
    where: NDArray[np.intp] = np.arange(resamples)
    if comb(2 * count - 1, count) < resamples:  # otherwise few are the same, and sorting takes longer than fitting
        draws, where = np.unique(draws, axis=0, return_inverse=True)
    weights = draws.astype(float)
    parts = [_search(logs, points, weights[k : k + TOGETHER], device) for k in range(0, len(weights), TOGETHER)]
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "slope", "mid"))
    return Curves(*(column[where.ravel()] for column in columns))


@dataclass(frozen=True)
class Threshold:
    """The smallest training set that reaches a target; NaN where there is none, and the outcome says why."""

    outcome: Outcome
    draws: Floats
    """The resampled thresholds; infinite or 0 beyond what is believed."""
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    top: float = np.nan
    slope: float = np.nan
    mid: float = np.nan
    unreached: float = 0.0
    """Share of the resamples whose threshold is infinite."""


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
    device: torch.device = CPU,
) -> Threshold:
    """Where the curve through the networks crosses the target, with an interval from resampling them."""
    curve, lowest, furthest = fitted(examples, accuracy), np.min(examples) / EXTRAPOLATED, EXTRAPOLATED * largest
    shape = {name: float(getattr(curve, name)[0]) for name in ("top", "slope", "mid")}
    value = max(floor, float(curve.crossing(target)[0]))
    if not lowest <= value <= largest:
        outcome: Outcome = "not reached" if value > largest else "always reached"
        return Threshold(outcome, np.full(resamples, np.nan), **shape)
    draws = np.maximum(floor, resampled(examples, accuracy, resamples, generator, device).crossing(target))
    draws = np.where(draws > furthest, np.inf, np.where(draws < lowest, 0.0, draws))
    limits = Resampled(value, tuple(draws.tolist()), np.size(accuracy)).interval(confidence)
    unreached = float(np.isinf(draws).mean())
    return Threshold("fitted", draws, value, limits.low, limits.high, unreached=unreached, **shape)


# -- the search ----------------------------------------------------------------------------------------------------


def _search(logs: Floats, accuracy: Floats, weights: Floats, device: torch.device = CPU) -> Curves:
    """The best curve for each row of weights over the networks."""
    at, points, rows = (torch.from_numpy(part).to(device) for part in (logs, accuracy, weights))
    slopes = torch.linspace(np.log(SLOPES[0]), np.log(SLOPES[1]), SLOPE_CELLS, dtype=at.dtype, device=device)
    mids = torch.linspace(logs.min() - BEYOND, logs.max() + BEYOND, MID_CELLS, dtype=at.dtype, device=device)
    grid = torch.cartesian_prod(slopes, mids)
    shape = _shape(grid, at)
    best = grid[_loss(rows @ (shape * points).T, rows @ (shape**2).T)[0].argmin(dim=1)]

    low, high = grid.amin(dim=0), grid.amax(dim=0)
    damping = torch.full((len(rows), 1), DAMPING, dtype=at.dtype, device=device)
    system = _system(best, at, points, rows)
    for _ in range(STEPS):
        tried = (best + _step(system, damping)).clamp(low, high)
        there = _system(tried, at, points, rows)
        helps = there[:, :1] < system[:, :1]
        best, system = torch.where(helps, tried, best), torch.where(helps, there, system)
        damping = torch.where(helps, damping * LESS, damping * MORE)
    return Curves(*(part.cpu().numpy() for part in (system[:, 1], best[:, 0].exp(), best[:, 1])))


def _shape(candidates: Tensor, logs: Tensor) -> Tensor:
    """The logistic of each candidate (ln slope, mid) at each network's ln n."""
    return torch.sigmoid(candidates[..., :1].exp() * (logs - candidates[..., 1:]))


def _loss(product: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error, less a constant, at the best top within its bounds; and that top.

    With s the logistic, Σ w (a − top s)² = top² Σ w s² − 2 top Σ w a s + Σ w a².
    """
    top = (product / square.clamp(min=TINY)).clamp(LOWEST_TOP, 1.0)
    return top**2 * square - 2 * top * product, top


def _system(place: Tensor, logs: Tensor, accuracy: Tensor, weights: Tensor) -> Tensor:
    """At each place (ln slope, mid) the loss, the best top, and the normal equations: three products and two sides.

    Where the top is free it follows a step, so that only the part of the derivatives at right angles to the logistic
    counts (variable projection).
    """
    slope = place[:, :1].exp()
    distance = slope * (logs - place[:, 1:])
    shape = torch.sigmoid(distance)
    weighted = weights * shape
    square = (weighted * shape).sum(dim=1)
    loss, top = _loss(weighted @ accuracy, square)
    rate = shape * (1 - shape)
    by_slope, by_mid, rest = rate * distance, -rate * slope, weights * (accuracy - top[:, None] * shape)
    length = torch.where((top < 1) & (top > LOWEST_TOP), square.clamp(min=TINY).sqrt(), torch.inf)
    along_slope, along_mid = ((weighted * part).sum(dim=1) / length for part in (by_slope, by_mid))
    products = (
        (weights * by_slope**2).sum(dim=1) - along_slope**2,
        (weights * by_mid**2).sum(dim=1) - along_mid**2,
        (weights * by_slope * by_mid).sum(dim=1) - along_slope * along_mid,
    )
    sides = ((rest * part).sum(dim=1) / top for part in (by_slope, by_mid))
    return torch.stack([loss, top, *products, *sides], dim=1)


def _step(system: Tensor, damping: Tensor) -> Tensor:
    """The damped Gauss-Newton step: the solution of two equations."""
    _, _, slopes, mids, both, slope_side, mid_side = system.unbind(dim=1)
    slopes, mids = ((part.clamp(min=0) + TINY) * (1 + damping[:, 0]) for part in (slopes, mids))
    scale = (slopes * mids - both**2).clamp(min=TINY)
    step = torch.stack([mids * slope_side - both * mid_side, slopes * mid_side - both * slope_side], dim=1)
    return (step / scale[:, None]).clamp(-LONGEST, LONGEST)
