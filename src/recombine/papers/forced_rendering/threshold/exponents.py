"""Exponents of the data threshold in N from a table of thresholds, or why there is none."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from recombine.papers.forced_rendering.threshold.labels import FAMILIES, TARGET
from recombine.papers.forced_rendering.threshold.limits import exponent_interval
from recombine.papers.forced_rendering.threshold.psychometric import exponent
from recombine.reproduction.intervals import CONFIDENCE

if TYPE_CHECKING:
    import xarray

FEWEST_SIZES = 3
"""Sizes that an exponent needs."""
DIMS = ("protocol", "family")


def with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """The table with exponents and intervals from the resampled thresholds, or why there is none."""
    pairs = list(product(result["protocol"].values, FAMILIES))
    reasons = np.array([_reason(result.sel(protocol=protocol, family=family)) for protocol, family in pairs])
    reasons = reasons.reshape(-1, len(FAMILIES))
    defined = reasons == ""
    sizes = result["size"].values
    if len(sizes) < FEWEST_SIZES:
        values, draws = np.full(defined.shape, np.nan), np.full((*defined.shape, result.sizes["resample"]), np.nan)
    else:
        values = exponent(sizes, result["threshold"].transpose(*DIMS, "size").values).round(9)  # that of 2N is 1
        draws = exponent(sizes, result["draws"].transpose(*DIMS, "resample", "size").values)
    values, draws = np.where(defined, values, np.nan), np.where(defined[..., None], draws, np.nan)
    result = result.assign(
        exponent=(DIMS, values), reason=(DIMS, reasons),
        exponent_draws=((*DIMS, "resample"), draws.astype(np.float32)),
    )  # fmt: skip
    limits = [exponent_interval(result.sel(protocol=protocol, family=family), CONFIDENCE) for protocol, family in pairs]
    low, high = np.array(limits).T.reshape(2, *defined.shape)
    return result.assign(exponent_low=(DIMS, low), exponent_high=(DIMS, high))


def _reason(cells: xarray.Dataset) -> str:
    """Why a protocol has no exponent; empty if it has one."""
    if cells.sizes["size"] < FEWEST_SIZES:
        return f"fewer than {FEWEST_SIZES} sizes"
    target = f"{100 * TARGET:.0f} %"
    phrases = {
        "not reached": f"{target} not reached with the largest set",
        "unsure": f"{target} not surely reached",
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
