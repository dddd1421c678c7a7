"""Exponents of the data threshold in N, from a table of thresholds and from resampled ones.

The exponent is the least-squares slope of ln threshold on ln N. A resampled threshold beyond what is believed is
infinite, one below it 0, and slopes follow from that: infinite upward where it is a large N that is never reached,
downward where it is a small one, and undefined (NaN) where both pull. An undefined one counts at both ends of an
interval, so that it can only widen it.

The *local* exponent is the slope, at the largest N, of a parabola through ln threshold over ln N: what the growth comes
to where images are large. The parabola's second derivative is the *curvature*: 0 for a power of N, whatever the power.

A protocol in which some N never reaches the target has no exponent: leaving that N out would bias it.

Known answers: N³ has exponent and local exponent 3 and curvature 0; exp((ln N)²) has curvature 2 and local exponent
2 ln N at the largest N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recombine.papers.forced_rendering.threshold.labels import FAMILIES, TARGET
from recombine.reproduction.intervals import CONFIDENCE, Resampled

if TYPE_CHECKING:
    import xarray

FEWEST_SIZES = 3
"""Sizes that an exponent or a parabola needs."""
DIMS = ("protocol", "family")
DECIMALS = 3
"""Of stored resamples, which are in order: they take little space so."""
EXPONENT, LOCAL, CURVATURE = "exponent", "local_exponent", "curvature"


def exponent(sizes: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """Slope of ln threshold on ln size, along the last axis of the thresholds.

    >>> exponent([20, 28, 36], [20**3, 28**3, 36**3]).round(6).item()
    3.0
    """
    logs = np.log(np.asarray(sizes, dtype=float))
    return _combined(thresholds, np.linalg.pinv(np.stack([logs**0, logs], axis=1))[1])


def parabola(sizes: ArrayLike, thresholds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope at the largest size, and second derivative, of a parabola through ln threshold over ln size."""
    logs = np.log(np.asarray(sizes, dtype=float))
    from_last = logs - logs.max()
    coefficients = np.linalg.pinv(np.stack([from_last**0, from_last, from_last**2], axis=1))
    return _combined(thresholds, coefficients[1]), _combined(thresholds, 2 * coefficients[2])


def _combined(thresholds: ArrayLike, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted sums of ln threshold; those of infinities of both signs are NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(np.asarray(thresholds, dtype=float)) * weights).sum(axis=-1))


def with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """The table with exponents, local exponents and curvatures, resamples of exponents, and why there are none."""
    sizes, protocols = result["size"].values, result["protocol"].values
    cells = [[result.sel(protocol=protocol, family=family) for family in FAMILIES] for protocol in protocols]
    reasons = np.array([[_reason(cell) for cell in row] for row in cells])
    known = reasons == ""
    thresholds = result["threshold"].transpose(*DIMS, "size").values
    draws = result["draws"].transpose(*DIMS, "resample", "size").values
    variables: dict[str, Any] = {}
    for name, slopes in _slopes(sizes, thresholds).items():
        variables[name] = (DIMS, np.where(known, slopes.round(9), np.nan))  # that of 2N is 1
    for name, slopes in _slopes(sizes, draws).items():
        if name == CURVATURE:
            continue
        ordered = np.sort(np.where(known[..., None], slopes, np.nan), axis=-1).round(DECIMALS)
        variables[f"{name}_draws"] = ((*DIMS, "resample"), ordered.astype(np.float32))
    return result.assign(variables).assign(reason=(DIMS, reasons))


def _slopes(sizes: np.ndarray, thresholds: np.ndarray) -> dict[str, np.ndarray]:
    """All three of a table; NaN with too few sizes."""
    names = (EXPONENT, LOCAL, CURVATURE)
    if len(sizes) < FEWEST_SIZES:
        return dict.fromkeys(names, np.full(thresholds.shape[:-1], np.nan))
    return dict(zip(names, (exponent(sizes, thresholds), *parabola(sizes, thresholds)), strict=True))


def estimated_exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Resampled:
    """An exponent of one protocol and family with its resamples; without one, nothing is known of it.

    Parameters
    ----------
    cells
        One protocol and family of the study's Dataset.
    name
        `EXPONENT`, or `LOCAL` for that at the largest N.

    Returns
    -------
    Resampled
        Its networks are those that learnt at the size that has fewest.
    """
    networks = int(cells["networks"].min())
    if not np.isfinite(cells[name].item()):
        return Resampled(np.nan, (-np.inf, np.inf), networks)
    draws = cells[f"{name}_draws"].values.astype(float)
    undefined = int(np.isnan(draws).sum())
    ends = [np.full(undefined, -np.inf), draws[~np.isnan(draws)], np.full(undefined, np.inf)]
    return Resampled(cells[name].item(), tuple(np.concatenate(ends).tolist()), networks)


def exponent_interval(cells: xarray.Dataset, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exponent's interval; an end that resamples without a threshold would decide is infinite."""
    interval = estimated_exponent(cells).interval(confidence)
    return interval.low, interval.high


def _reason(cells: xarray.Dataset) -> str:
    """Why a protocol has no exponent; empty if it has one."""
    if cells.sizes["size"] < FEWEST_SIZES:
        return f"fewer than {FEWEST_SIZES} sizes"
    target = f"{100 * TARGET:.0f} %"
    phrases = {
        "not reached": f"{target} not reached with the largest set",
        "too few networks": "too few networks that learnt",
        "always reached": f"{target} reached with the smallest set",
    }
    reasons = []
    for outcome, phrase in phrases.items():
        where = cells.isel(size=cells["outcome"].values == outcome)
        if where.sizes["size"]:
            everywhere = where.sizes["size"] == cells.sizes["size"]
            sizes = "at any N" if everywhere else f"at N = {', '.join(str(size) for size in where['size'].values)}"
            best = 100 * where["accuracy"].max("network")
            low, high = f"{float(best.min()):.0f}", f"{float(best.max()):.0f}"
            reasons.append(f"{phrase} {sizes} (best network: {low if low == high else f'{low} to {high}'} %)")
    return " and ".join(reasons)
