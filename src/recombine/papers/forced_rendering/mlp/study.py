"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)

MLPs of several depths, bump and rate codes, beside the CNN of the preset's depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from recombine.decoders import MLP
from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.mlp.labels import CNN_ARM, MLP_ARM
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import base_attributes, grid_variables, tabulate
from recombine.reproduction.preset import Count, Several
from recombine.reproduction.profile import STAGE_DIMS, stage_profile
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first

if TYPE_CHECKING:
    import xarray


class Settings(BumpPreset):
    """Depths and widths of the MLP."""

    mlp_depths: Several = (3, 4, 5, 6, 7)
    mlp_bump_width: Count = 256
    mlp_rate_width: Count = 128

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {"mlp_depths": (3, 5), "mlp_bump_width": 128, "mlp_rate_width": 128}
    }


class MLPStudy(Study[Settings]):
    """MLPs from shallow to deep, and a CNN."""

    name: ClassVar[str] = "mlp"
    question: ClassVar[str] = "Do MLPs fail in the same way as CNNs?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile",)

    def arms(self, preset: Settings) -> list[Arm]:
        widths = {"bump": preset.mlp_bump_width, "rate": preset.mlp_rate_width}
        arms = [
            Arm((code, MLP_ARM, depth), preset.spec(encoding=code, decoder=MLP(width=width, depth=depth)))
            for code, width in widths.items()
            for depth in preset.mlp_depths
        ]
        return arms + [Arm((code, CNN_ARM, preset.depth), preset.spec(encoding=code)) for code in CODES]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {**batch.scores, **stage_profile(batch)}

        result = keep_first(tabulate(trials, ("encoding", "decoder", "depth"), measured, STAGE_DIMS), "log_volume")
        preset = trials.preset
        attributes = base_attributes(
            trials, size=preset.size, cnn_depth=preset.depth, mlp_depths=list(preset.mlp_depths)
        )
        return result.assign(**grid_variables(trials.first.spec)).assign_attrs(attributes)


STUDY = MLPStudy()
