"""Whether a gap in rotation is filled by linear blending.

Scores: `closer_to_blend`: log10 of distance to truth over distance to blend; `gap_speed`: how much faster a stage moves
per degree inside the gap than outside, at the stage where that is largest, the input left out: it is 1 there whatever
the network does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.claims import FITTED
from recombine.papers.forced_rendering.rotation.labels import INPUT, ONE
from recombine.reproduction.claims import Claim, Condition, Judgement
from recombine.reproduction.tables import per_seed

if TYPE_CHECKING:
    import xarray

BLENDED = Claim(
    "C15",
    "A gap in rotation is filled by linear blending, while stages stay smooth (Fig. 9)",
    premises=FITTED,
    conditions=(Condition("closer_to_blend", "above", 0.0), Condition("gap_speed", "below", 3.0)),
)
CLAIMS = (BLENDED,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict on one digit."""
    scores = {name: per_seed(result[name]) for name in ("id_over_blank", "closer_to_blend")}
    return [BLENDED.judge({ONE: {**scores, "gap_speed": per_seed(gap_speed(result))}})]


def gap_speed(result: xarray.Dataset) -> xarray.DataArray:
    """The largest ratio, over the network's own stages, of the speed inside the gap to that outside."""
    return result["stage_speed"].sel(stage=result["stage"] != INPUT).max("stage")
