"""Whether early stages are tuned to stripes and late ones to bumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.tuning.labels import ARMS
from recombine.reproduction.claims import EFFECT, Claim, Judgement
from recombine.reproduction.tables import per_seed, stage_slope

if TYPE_CHECKING:
    import xarray

TUNING_CHANGES = Claim(
    "C13", "Tuning is stripe-like in early and bump-like in late stages (Fig. 4e–f, 15)", premises=(), conditions=EFFECT
)
CLAIMS = (TUNING_CHANGES,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict, with two statements per arm."""
    layers = result.isel(stage=slice(1, None))  # the input code is tuned to one factor by construction
    cases = {}
    for arm in ARMS:
        own = layers.sel(arm=arm)
        cases[f"{arm}: stripe index falls along stages"] = {"effect": per_seed(-stage_slope(own["stripe_index"]))}
        cases[f"{arm}: localisation index rises along stages"] = {
            "effect": per_seed(stage_slope(own["localisation_index"]))
        }
    return [TUNING_CHANGES.judge(cases)]
