"""Limits of intervals over resampled thresholds, some of which were never reached.

A resampled threshold can lie beyond every training set that was tried, or below every one. How far is not known, so
where more resamples do than the interval leaves in that tail, they decide its limit, and the limit is open: infinite
above, 0 (thresholds) or minus infinity (exponents) below.

An exponent is a slope over ln N. A threshold beyond reach takes it up without bound at a large N and down at a small
one; an undercut threshold does the opposite. The shares of all N are added up, which is never less than the share of
resamples with any.

Known answers: with no such resample the limits are the quantiles; a share just above the tail opens a limit, the tail
itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import xarray


def threshold_limits(draws: ArrayLike, unreached: float, undercut: float, level: float) -> tuple[float, float]:
    """Of one threshold; `unreached` and `undercut` are the shares of resamples beyond and below all sets tried."""
    tail = (1 - level) / 2
    low, high = np.quantile(np.asarray(draws, dtype=float), [tail, 1 - tail])
    return 0.0 if undercut > tail else float(low), np.inf if unreached > tail else float(high)


def exponent_limits(
    draws: ArrayLike, sizes: ArrayLike, unreached: ArrayLike, undercut: ArrayLike, level: float
) -> tuple[float, float]:
    """Of the exponent over these sizes; the shares are one per size. NaN where there is no exponent."""
    tail = (1 - level) / 2
    low, high = np.quantile(np.asarray(draws, dtype=float), [tail, 1 - tail])
    if np.isnan(low):
        return np.nan, np.nan
    logs = np.log(np.asarray(sizes, dtype=float))
    small, large = logs < logs.mean(), logs > logs.mean()
    beyond, below = np.asarray(unreached, dtype=float), np.asarray(undercut, dtype=float)
    downward, upward = beyond[small].sum() + below[large].sum(), beyond[large].sum() + below[small].sum()
    return -np.inf if downward > tail else float(low), np.inf if upward > tail else float(high)


def exponent_interval(cells: xarray.Dataset, level: float) -> tuple[float, float]:
    """Of the exponent of one protocol and family of the threshold study's Dataset, from what it stores."""
    undercut = cells["undercut"].values if "undercut" in cells else np.zeros(cells.sizes["size"])
    return exponent_limits(cells["exponent_draws"], cells["size"], cells["unreached"], undercut, level)
