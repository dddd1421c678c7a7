"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14; claim C17)

MLPs of several depths, bump and rate codes, beside the CNN of the preset's depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from recombine.claims import CLAIMS, Judgement
from recombine.decoders import MLP
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import (
    STAGE_DIMS,
    all_depths,
    base_attributes,
    grid_variables,
    keep_first,
    listed_attribute,
    per_seed,
    stage_profile,
    tabulate,
)

if TYPE_CHECKING:
    import xarray

ENCODINGS = ("bump", "rate")
CNN_ARM, MLP_ARM = "CNN", "MLP"


@register
class MLPStudy(Study):
    """MLPs from shallow to deep, and a CNN."""

    name: ClassVar[str] = "mlp"
    question: ClassVar[str] = "Do MLPs fail in the same way as CNNs?"
    claims: ClassVar[tuple[str, ...]] = ("C17",)

    def arms(self, preset: Preset) -> list[Arm]:
        widths = {"bump": preset.mlp_bump_width, "rate": preset.mlp_rate_width}
        arms = [
            Arm((encoding, MLP_ARM, depth), preset.spec(encoding=encoding, decoder=MLP(width=width, depth=depth)))
            for encoding, width in widths.items()
            for depth in preset.mlp_depths
        ]
        return arms + [Arm((e, CNN_ARM, preset.depth), preset.spec(encoding=e)) for e in ENCODINGS]

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, Any]:
            return {**run.scores, **stage_profile(run, trials.device)}

        result = keep_first(tabulate(trials, ("encoding", "decoder", "depth"), measured, STAGE_DIMS), "log_volume")
        spec = trials["bump", CNN_ARM, trials.preset.depth][0].spec
        return result.assign(**grid_variables(spec)).assign_attrs(
            {**base_attributes(trials), "cnn_depth": trials.preset.depth, "mlp_depths": list(trials.preset.mlp_depths)}
        )

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        cases = {}
        for encoding in ENCODINGS:
            own = result.sel(encoding=encoding)
            cnn = own.sel(decoder=CNN_ARM, depth=result.attrs["cnn_depth"])
            mlp = own.sel(decoder=MLP_ARM, depth=listed_attribute(result, "mlp_depths"))
            layers = slice(1, None)
            warps = [part["contrast"].isel(stage=layers).mean("stage") for part in (cnn, mlp)]
            cases[f"{encoding}: held-out contrast of log10 dv has the other sign"] = {
                "effect": per_seed(-warps[0] * all_depths(warps[1]))
            }
            falls = [_fall(part["factorization"]) for part in (cnn, mlp)]
            cases[f"{encoding}: MLPs lose more factorization"] = {"effect": per_seed(all_depths(falls[1]) - falls[0])}
            sharpest = [_sharpest(part["factorization"]) for part in (cnn, mlp)]
            cases[f"{encoding}: MLPs lose it more evenly over stages"] = {
                "effect": per_seed(sharpest[0] - all_depths(sharpest[1]))
            }
        return [CLAIMS["C17"].judge(cases)]


def _fall(values: xarray.DataArray) -> xarray.DataArray:
    """From the input to the lowest stage."""
    return values.isel(stage=0) - values.min("stage")


def _sharpest(values: xarray.DataArray) -> xarray.DataArray:
    """The largest fall between neighbouring stages, as a share of all falls."""
    falls = (-values.diff("stage")).clip(min=0)
    total = falls.sum("stage")
    return falls.max("stage") / total.where(total > 0)
