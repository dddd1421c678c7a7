"""Whether examples of single factors make a network compose."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.stripes.labels import FULL, WITH, WITHOUT
from recombine.reproduction.claims import EFFECT, Claim, Condition, Judgement
from recombine.reproduction.tables import listed_attribute, log_ratio, per_seed

if TYPE_CHECKING:
    import xarray

STRIPES_COMPOSE = Claim(
    "C10",
    "Stripes alone compose without a single bump; a few bumps make proper bumps (§4.2, Fig. 4b, 7b)",
    premises=(),
    conditions=(Condition("ood_accuracy", "above", 0.9), *EFFECT),
    one_condition_per_case=True,
)
STRIPES_SMOOTH = Claim(
    "C12", "Stripes keep the manifold smooth across the held-out region (Fig. 4d)", premises=(), conditions=EFFECT
)
CLAIMS = (STRIPES_COMPOSE, STRIPES_SMOOTH)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """Verdicts on errors and accuracy, and on the volume element."""
    return [STRIPES_COMPOSE.judge(_composition(result)), STRIPES_SMOOTH.judge(_smoothness(result))]


def _composition(result: xarray.Dataset) -> dict[str, dict[str, list[float]]]:
    """Stripes without a bump are in place; more bumps are better than fewer, and better than bumps alone."""
    added, striped = listed_attribute(result, "added"), result.sel(family=WITH)
    cases = {
        f"stripes and {added[0]} bumps: in place": {
            "ood_accuracy": per_seed(striped["ood_accuracy"].sel(bumps=added[0]))
        }
    }
    for fewer, more in pairwise(added):
        ratio = log_ratio(striped["ood_mse"].sel(bumps=fewer), striped["ood_mse"].sel(bumps=more))
        cases[f"{more} bumps: OOD error below that of {fewer}"] = {"effect": ratio}
    for bumps in added:
        if bumps:
            alone = result["ood_mse"].sel(family=WITHOUT, bumps=bumps)
            ratio = log_ratio(alone, striped["ood_mse"].sel(bumps=bumps))
            cases[f"{bumps} bumps: OOD error below that of {bumps} without stripes"] = {"effect": ratio}
    return cases


def _smoothness(result: xarray.Dataset) -> dict[str, dict[str, list[float]]]:
    """Against the network trained on all bumps."""
    full = result.sel(family=FULL, bumps=result.attrs["full"])["spread_held"].mean("stage")
    spread = result["spread_held"].sel(family=WITH).mean("stage")
    return {
        f"stripes and {bumps} bumps: spread of log10 dv in the held-out region below bumps alone": {
            "effect": per_seed(full - spread.sel(bumps=bumps))
        }
        for bumps in listed_attribute(result, "added")
    }
