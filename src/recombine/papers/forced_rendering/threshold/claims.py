"""Whether the data needed grows as N³ with bumps and as N with stripes.

Scores: `exponent_bumps`, `exponent_stripes`: of the data threshold in N, with an interval from resampling networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recombine.papers.forced_rendering.threshold.labels import CLAIMED, FAMILIES
from recombine.papers.forced_rendering.threshold.limits import exponent_interval
from recombine.reproduction.claims import Claim, Condition, Judgement
from recombine.reproduction.intervals import CONFIDENCE, Absent, Interval

if TYPE_CHECKING:
    import xarray

GROWTH = Claim(
    "C11",
    "Data needed for 90 % accuracy grows as N³ with bumps and as N with stripes (Fig. 4c)",
    premises=(),
    conditions=tuple(
        condition
        for family, (_, (low, high)) in CLAIMED.items()
        for condition in (
            Condition(f"exponent_{family}", "above", low),
            Condition(f"exponent_{family}", "below", high),
        )
    ),
)
CLAIMS = (GROWTH,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict, with one case per protocol."""
    level = 1 - (1 - CONFIDENCE) / result.sizes["protocol"]
    cases = {
        str(protocol): {
            f"exponent_{family}": _score(result.sel(protocol=protocol, family=family), level) for family in FAMILIES
        }
        for protocol in result["protocol"].values
    }
    return [GROWTH.judge(cases)]


def _score(cells: xarray.Dataset, level: float) -> Interval | Absent:
    """The exponent at a level of confidence; its seeds are the networks at the size that has fewest."""
    if not np.isfinite(cells["exponent"]):
        return Absent(cells["reason"].item())
    return Interval(cells["exponent"].item(), *exponent_interval(cells, level), int(cells["networks"].min()))
