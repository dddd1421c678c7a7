"""Whether every encoding fails to compose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.claims import FAILS, LEARNT
from recombine.papers.forced_rendering.encodings.labels import BOX
from recombine.reproduction.claims import Claim, Judgement
from recombine.reproduction.tables import per_seed

if TYPE_CHECKING:
    import xarray

EVERY_ENCODING_FAILS = Claim(
    "C1",
    "Every disentangled encoding fails to compose, although it learns what it is trained on (§3.2, Fig. 1)",
    premises=LEARNT,
    conditions=FAILS,
)
CLAIMS = (EVERY_ENCODING_FAILS,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict, with one case per encoding, against the box."""
    boxed, claim = result.sel(holdout=BOX), EVERY_ENCODING_FAILS
    cases = {
        str(encoding): {name: per_seed(boxed[name].sel(encoding=encoding)) for name in claim.scores}
        for encoding in result["encoding"].values
    }
    return [claim.judge(cases)]
