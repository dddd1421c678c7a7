"""Fitted curves of accuracy against training-set size, and where they cross a target.

The curve is a(n) = top · logistic(slope · (ln n − mid)), fitted by least squares with one point per network. It levels
off at top ≤ 1, so networks that plateau below the target are not extrapolated beyond it. Uncertainty comes from a
bootstrap over networks. For a given slope and mid, the best top has a closed form. A coarse grid over slope and mid
avoids the need for a starting point, and damped Gauss-Newton steps refine the best cell for all resamples at once.

A threshold is where the curve crosses the target. It cannot lie below a floor (the stripes that are always in the
training set) and is *not reached* if it lies above the largest affordable training set. Resampled thresholds more than
`EXTRAPOLATED` times as large as that set become infinite, which makes the interval unbounded; those below the smallest
set tried by more than that factor become 0.

Known answers: for points on such a curve, the result is its crossing; a constant accuracy of 0.5 never crosses 0.9.
For points on 1 − exp(−n / N²), which is not logistic, crossings are off by the same factor at every N.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recombine.reproduction.intervals import Resampled

Floats = NDArray[np.float64]
Outcome = Literal["fitted", "exact", "not reached", "too few networks", "always reached"]
CPU = torch.device("cpu")

EXTRAPOLATED = 2
"""Factor by which a resampled threshold may lie outside the range of training-set sizes."""
LOWEST_TOP = 1e-6
TINY = 1e-30


class Curves(NamedTuple):
    """Parameters of fitted curves, as arrays of equal length."""

    top: Floats
    slope: Floats
    mid: Floats

    def crossing(self, target: float) -> Floats:
        """Return the training-set size at which each curve reaches the target; infinite if it never does."""
        reaches = self.top > target
        share = np.where(reaches, target / self.top, 0.5)
        log_size = self.mid + np.log(share / (1 - share)) / self.slope
        return np.where(reaches, np.exp(np.minimum(log_size, 700.0)), np.inf)  # e^700 is nearly the largest float


def fitted(
    examples: ArrayLike, accuracy: ArrayLike, weights: Floats | None = None, device: torch.device = CPU
) -> Curves:
    """Fit one curve per row of per-network weights; by default, fit one curve with equal weights."""
    logs, reached = np.log(np.asarray(examples, dtype=float)), np.asarray(accuracy, dtype=float)
    weights = np.ones((1, len(logs))) if weights is None else weights
    at, points, rows = (torch.from_numpy(part).to(device) for part in (logs, reached, weights))
    slopes = torch.linspace(np.log(0.3), np.log(100.0), 13, dtype=at.dtype, device=device)
    mids = torch.linspace(logs.min() - 3, logs.max() + 3, 36, dtype=at.dtype, device=device)
    grid = torch.cartesian_prod(slopes, mids)
    shape = torch.sigmoid(grid[:, :1].exp() * (at - grid[:, 1:]))
    best = grid[_loss(rows @ (shape * points).T, rows @ (shape**2).T)[0].argmin(dim=1)]

    low, high = grid.amin(dim=0), grid.amax(dim=0)
    damping = torch.full((len(rows), 1), 0.01, dtype=at.dtype, device=device)
    system = _system(best, at, points, rows)
    for _ in range(20):
        tried = (best + _step(system, damping)).clamp(low, high)
        there = _system(tried, at, points, rows)
        helps = there[:, :1] < system[:, :1]
        best, system = torch.where(helps, tried, best), torch.where(helps, there, system)
        damping = torch.where(helps, damping * 0.2, damping * 8.0)
    return Curves(*(part.cpu().numpy() for part in (system[:, 1], best[:, 0].exp(), best[:, 1])))


@dataclass(frozen=True)
class Threshold:
    """Size of the smallest training set that reaches a target, or NaN with the reason in `outcome`."""

    outcome: Outcome
    draws: Floats
    """Resampled thresholds, infinite above and 0 below the valid range."""
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    top: float = np.nan
    slope: float = np.nan
    mid: float = np.nan
    unreached: float = 0.0
    """Share of resampled thresholds that are infinite."""


def threshold(
    examples: ArrayLike,
    accuracy: ArrayLike,
    target: float,
    generator: np.random.Generator,
    *,
    largest: float,
    floor: float = 0.0,
    resamples: int = 2000,
    device: torch.device = CPU,
) -> Threshold:
    """Return where the curve fitted to the networks crosses the target, with a bootstrap interval."""
    curve, lowest, furthest = fitted(examples, accuracy), np.min(examples) / EXTRAPOLATED, EXTRAPOLATED * largest
    shape = {name: float(own[0]) for name, own in curve._asdict().items()}
    value = max(floor, float(curve.crossing(target)[0]))
    if not lowest <= value <= largest:
        outcome: Outcome = "not reached" if value > largest else "always reached"
        return Threshold(outcome, np.full(resamples, np.nan), **shape)
    networks = np.size(accuracy)
    counts = generator.multinomial(networks, np.full(networks, 1 / networks), size=resamples)
    where: NDArray[np.intp] = np.arange(resamples)
    if comb(2 * networks - 1, networks) < resamples:  # with so few networks, most resamples coincide
        counts, where = np.unique(counts, axis=0, return_inverse=True)
    crossings = fitted(examples, accuracy, counts.astype(float), device).crossing(target)
    draws = np.maximum(floor, crossings[where.ravel()])
    draws = np.where(draws > furthest, np.inf, np.where(draws < lowest, 0.0, draws))
    limits = Resampled(value, tuple(draws.tolist()), networks).interval()
    unreached = float(np.isinf(draws).mean())
    return Threshold("fitted", draws, value, limits.low, limits.high, unreached=unreached, **shape)


def _loss(product: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared error, up to a constant, at the best top within its bounds, and that top.

    With s the logistic, Σ w (a − top s)² = top² Σ w s² − 2 top Σ w a s + Σ w a².
    """
    top = (product / square.clamp(min=TINY)).clamp(LOWEST_TOP, 1.0)
    return top**2 * square - 2 * top * product, top


def _system(place: Tensor, logs: Tensor, accuracy: Tensor, weights: Tensor) -> Tensor:
    """Return loss, best top and normal equations (three products, two right-hand sides) at each (ln slope, mid).

    If the top is not at a bound, it is refitted after each step, so only the component of the derivatives orthogonal
    to the logistic matters (variable projection; Golub and Pereyra, 1973).
    """
    slope = place[:, :1].exp()
    distance = slope * (logs - place[:, 1:])
    shape = torch.sigmoid(distance)
    weighted = weights * shape
    square = (weighted * shape).sum(dim=1)
    loss, top = _loss(weighted @ accuracy, square)
    rate = shape * (1 - shape)
    by_slope, by_mid, residual = rate * distance, -rate * slope, weights * (accuracy - top[:, None] * shape)
    length = torch.where((top < 1) & (top > LOWEST_TOP), square.clamp(min=TINY).sqrt(), torch.inf)
    along_slope, along_mid = ((weighted * part).sum(dim=1) / length for part in (by_slope, by_mid))
    products = (
        (weights * by_slope**2).sum(dim=1) - along_slope**2,
        (weights * by_mid**2).sum(dim=1) - along_mid**2,
        (weights * by_slope * by_mid).sum(dim=1) - along_slope * along_mid,
    )
    sides = ((residual * part).sum(dim=1) / top for part in (by_slope, by_mid))
    return torch.stack([loss, top, *products, *sides], dim=1)


def _step(system: Tensor, damping: Tensor) -> Tensor:
    """Return the damped Gauss-Newton step in (ln slope, mid) that solves the 2 × 2 system, clipped to ±0.5 in each."""
    _, _, slopes, mids, both, slope_side, mid_side = system.unbind(dim=1)
    slopes, mids = ((part.clamp(min=0) + TINY) * (1 + damping[:, 0]) for part in (slopes, mids))
    determinant = (slopes * mids - both**2).clamp(min=TINY)
    step = torch.stack([mids * slope_side - both * mid_side, slopes * mid_side - both * slope_side], dim=1)
    return (step / determinant[:, None]).clamp(-0.5, 0.5)
