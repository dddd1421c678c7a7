"""Does the other direction, image to code, compose? (extra)

A convolutional encoder from bumps to their bump or rate code, the same box held out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from recombine.decoders import ConvEncoder
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials

if TYPE_CHECKING:
    import xarray


class EncoderStudy(Study[BumpPreset]):
    """Image to code."""

    name: ClassVar[str] = "encoder"
    question: ClassVar[str] = "Does the other direction, from image to code, compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset

    def arms(self, preset: BumpPreset) -> list[Arm]:
        return [
            Arm((e,), preset.spec(encoding=e, direction="encode", decoder=ConvEncoder(), lr=1e-3), extra=True)
            for e in ("bump", "rate")
        ]

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            blank = grid_maps(batch, "blank").mean(axis=(1, 2), keepdims=True)
            return {**batch.scores, "error": grid_maps(batch, "error") / blank}

        result = tabulate(trials, ("encoding",), measured, {"error": ("y", "x")})
        return result.assign(error=result["error"].mean("seed"), **grid_variables(trials.first.spec)).assign_attrs(
            base_attributes(trials, size=trials.preset.size)
        )


STUDY = EncoderStudy()
