"""Whether MLPs fail in another way than CNNs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.mlp.labels import CNN_ARM, MLP_ARM
from recombine.reproduction.claims import EFFECT, Claim, Judgement
from recombine.reproduction.tables import all_depths, listed_attribute, per_seed

if TYPE_CHECKING:
    import xarray

OTHER_WAY = Claim(
    "C17",
    "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically "
    "(Fig. 13, 14)",
    premises=(),
    conditions=EFFECT,
)
CLAIMS = (OTHER_WAY,)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """The verdict, with three statements per code."""
    cases = {}
    for code in CODES:
        own = result.sel(encoding=code)
        cnn = own.sel(decoder=CNN_ARM, depth=result.attrs["cnn_depth"])
        mlp = own.sel(decoder=MLP_ARM, depth=listed_attribute(result, "mlp_depths"))
        warps = [part["contrast"].isel(stage=slice(1, None)).mean("stage") for part in (cnn, mlp)]
        cases[f"{code}: held-out contrast of log10 dv has the other sign"] = {
            "effect": per_seed(-warps[0] * all_depths(warps[1]))
        }
        falls = [_fall(part["factorization"]) for part in (cnn, mlp)]
        cases[f"{code}: MLPs lose more factorization"] = {"effect": per_seed(all_depths(falls[1]) - falls[0])}
        sharpest = [_sharpest(part["factorization"]) for part in (cnn, mlp)]
        cases[f"{code}: MLPs lose it more evenly over stages"] = {
            "effect": per_seed(sharpest[0] - all_depths(sharpest[1]))
        }
    return [OTHER_WAY.judge(cases)]


def _fall(values: xarray.DataArray) -> xarray.DataArray:
    """The fall from the input to the lowest stage."""
    return values.isel(stage=0) - values.min("stage")


def _sharpest(values: xarray.DataArray) -> xarray.DataArray:
    """The largest fall between neighbouring stages, as a share of all falls."""
    falls = (-values.diff("stage")).clip(min=0)
    total = falls.sum("stage")
    return falls.max("stage") / total.where(total > 0)
