"""Does the other direction, image to code, compose? (ours)

A convolutional encoder from bumps to their bump or rate code, the same box held out. Result: scores per seed, also by
distance from the kept region, a linear read-out of the last hidden stage, and error maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from recombine.decoders import ConvEncoder
from recombine.papers.forced_rendering.distances import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.papers.forced_rendering.encoder.readout import readout_errors
from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.measuring import Batch, Measured, base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials

if TYPE_CHECKING:
    import xarray


class EncoderStudy(Study[BumpPreset]):
    """Image to code."""

    name: ClassVar[str] = "encoder"
    question: ClassVar[str] = "Does the other direction, from image to code, compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("ensemble_reader", "features", *DISTANCE_METRICS)

    def arms(self, preset: BumpPreset) -> list[Arm]:
        return [
            Arm((code,), preset.spec(encoding=code, direction="encode", decoder=ConvEncoder(), lr=1e-3))
            for code in CODES
        ]

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: Batch) -> Measured:
            blank = grid_maps(batch, "blank").mean(axis=(1, 2), keepdims=True)
            error = grid_maps(batch, "error") / blank
            return {**batch.scores, **errors_by_distance(batch), **readout_errors(batch), "error": error}

        result = tabulate(trials, ("encoding",), measured, {"error": ("y", "x"), **DISTANCE_DIMS})
        return result.assign(error=result["error"].mean("seed"), **grid_variables(trials.first.spec)).assign_coords(
            distance=1 + np.arange(result.sizes["distance"])
        ).assign_attrs(base_attributes(trials, size=trials.preset.size))  # fmt: skip


STUDY = EncoderStudy()
