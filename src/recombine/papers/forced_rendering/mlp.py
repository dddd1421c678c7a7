"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)

MLPs of several depths, bump and rate codes, beside the CNN of the preset's depth.

With rate codes the published recipe (128 neurons, raw pixel units, 3150 steps) does not learn its training data: at
N = 28 no linear read-out of 128 neurons comes closer to the 495 training images than 0.057 of a blank image's error, so
that a few silent neurons are enough to miss a tenth of it. Such MLPs have as many neurons here as those with bump codes
(0.003), the code scaled to [−1, 1], and four times the steps at half the learning rate, in float32: neighbouring
values have codes that differ little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray

from recombine.decoders import MLP
from recombine.encodings import Rate
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec

CNN_ARM, MLP_ARM = "CNN", "MLP"


class Settings(BumpPreset):
    """Depths and widths of the MLP."""

    mlp_depths: Several = (3, 4, 5, 6, 7)
    """Hidden layers of the MLPs."""
    mlp_bump_width: Count = 256
    """Neurons of hidden layers, for bump codes."""
    mlp_rate_width: Count = 256
    """The paper's 128 are too few for the training images."""
    mlp_rate_steps: Count = 12600
    """Optimiser steps of rate-coded MLPs."""
    mlp_rate_lr: Positive = 5e-4
    """Learning rate of rate-coded MLPs."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "mlp_depths": (3, 5), "mlp_bump_width": 128, "mlp_rate_width": 128, "mlp_rate_steps": 1000,
            "mlp_rate_lr": 2e-3,
        }
    }  # fmt: skip

    def mlp_spec(self, code: str, depth: int) -> RunSpec:
        """An MLP that learns what it is trained on."""
        if code == "rate":
            decoder = MLP(width=self.mlp_rate_width, depth=depth)
            spec = self.spec(
                encoding=Rate(scale="unit"), decoder=decoder, steps=self.mlp_rate_steps, lr=self.mlp_rate_lr
            )
            return spec.replace(recipe=spec.recipe.replace(precision="float32"))
        return self.spec(encoding=code, decoder=MLP(width=self.mlp_bump_width, depth=depth))


class MLPStudy(Study[Settings]):
    """MLPs from shallow to deep, and a CNN."""

    name: ClassVar[str] = "mlp"
    question: ClassVar[str] = "Do MLPs fail in the same way as CNNs?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile",)

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [
            Arm((code, MLP_ARM, depth), preset.mlp_spec(code, depth)) for code in CODES for depth in preset.mlp_depths
        ]
        return arms + [Arm((code, CNN_ARM, preset.depth), preset.spec(encoding=code)) for code in CODES]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {**batch.scores, **stage_profile(batch)}

        result = keep_first(tabulate(trials, ("encoding", "decoder", "depth"), measured, stage_dims()), "log_volume")
        preset = trials.preset
        attributes = base_attributes(
            trials, size=preset.size, cnn_depth=preset.depth, mlp_depths=list(preset.mlp_depths)
        )
        return result.assign(**grid_variables(trials.first.spec)).assign_attrs(attributes)


STUDY = MLPStudy()
