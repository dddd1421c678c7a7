"""Whether memorising and composing networks sit in different kernel regimes.

A composing network's kernel is taken to be closer to a single product (fewer Schmidt terms) and to have more of its
weight in single-factor terms than a memorising one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.regimes.labels import RIVALS
from recombine.reproduction.claims import EFFECT, Claim, Judgement
from recombine.reproduction.tables import per_seed

if TYPE_CHECKING:
    import xarray

DIFFERENT_REGIMES = Claim(
    "C18",
    "Memorising and composing networks sit in different kernel regimes (App. A.5)",
    premises=(),
    conditions=EFFECT,
)
CLAIMS = (DIFFERENT_REGIMES,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict, with two statements per composing arm."""
    cases = {}
    for composing, failing in RIVALS.items():
        own, other = result.sel(arm=composing), result.sel(arm=failing)
        cases[f"{composing}: fewer Schmidt terms than {failing}"] = {
            "effect": per_seed(other["schmidt_rank"] - own["schmidt_rank"])
        }
        cases[f"{composing}: more single-factor weight than {failing}"] = {
            "effect": per_seed(own["single_factor"] - other["single_factor"])
        }
    return [DIFFERENT_REGIMES.judge(cases)]
