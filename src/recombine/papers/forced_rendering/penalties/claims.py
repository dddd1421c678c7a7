"""Whether penalties on rendered embeddings make a network compose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.penalties.labels import BOTH, ENTROPY, NONE, UNIT, VARIANCE
from recombine.reproduction.claims import EFFECT, Claim, Judgement
from recombine.reproduction.tables import log_ratio, per_seed

if TYPE_CHECKING:
    import xarray

BANDED = Claim("C7", "Penalties give banded embeddings of low rank (Fig. 3b, 6)", premises=(), conditions=EFFECT)
SMOOTHER = Claim("C8", "Penalties give a smoother manifold (Fig. 3c)", premises=(), conditions=EFFECT)
ABLATION = Claim(
    "C9",
    "Ablation: no penalty has the lowest ID and highest OOD error; entropy gains little; variance gains much at "
    "higher ID error; both are best OOD at low ID error (Fig. 3d)",
    premises=(),
    conditions=EFFECT,
)
CLAIMS = (BANDED, SMOOTHER, ABLATION)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """Verdicts on embeddings, manifold and ablation, with the paper's convention."""
    unit = result.sel(vectors=UNIT)
    none, both = unit.sel(arm=NONE), unit.sel(arm=BOTH)
    embeddings = {
        "both: lower effective rank than none": {"effect": per_seed(none["rank"] - both["rank"])},
        "both: higher band index than none": {"effect": per_seed(both["band"] - none["band"])},
    }
    smoother = {"effect": per_seed(none["spread"].mean("stage") - both["spread"].mean("stage"))}
    return [
        BANDED.judge(embeddings),
        SMOOTHER.judge({"both: spread of log10 dv below none's, mean over stages": smoother}),
        ABLATION.judge(_ablation(unit)),
    ]


def _ablation(result: xarray.Dataset) -> dict[str, dict[str, list[float]]]:
    """Every pairwise statement of the claim; effects are log10 of the larger error over the smaller one."""
    statements = [("id", other, NONE, f"ID: none below {other}") for other in (ENTROPY, VARIANCE, BOTH)]
    statements += [("ood", NONE, other, f"OOD: {other} below none") for other in (ENTROPY, VARIANCE, BOTH)]
    statements += [
        ("ood", ENTROPY, VARIANCE, "OOD: variance below entropy (entropy gains little)"),
        ("id", VARIANCE, BOTH, "ID: both below variance"),
        ("ood", ENTROPY, BOTH, "OOD: both below entropy"),
        ("ood", VARIANCE, BOTH, "OOD: both below variance"),
    ]
    return {
        text: {"effect": log_ratio(_mse(result, region, above), _mse(result, region, below))}
        for region, above, below, text in statements
    }


def _mse(result: xarray.Dataset, region: str, arm: str) -> xarray.DataArray:
    return result[f"{region}_mse"].sel(arm=arm)
