"""Does the other direction, image to code, compose? (extra)

A convolutional encoder from bumps to their bump or rate code, the same box held out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from recombine.decoders import ConvEncoder
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import base_attributes, grid_map, grid_variables, tabulate

if TYPE_CHECKING:
    import xarray


@register
class EncoderStudy(Study):
    """Image to code."""

    name: ClassVar[str] = "encoder"
    question: ClassVar[str] = "Does the other direction, from image to code, compose?"

    def arms(self, preset: Preset) -> list[Arm]:
        return [
            Arm((e,), preset.spec(encoding=e, direction="encode", decoder=ConvEncoder(), lr=1e-3), extra=True)
            for e in ("bump", "rate")
        ]

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, object]:
            return {**run.scores, "error": grid_map(run, "error") / grid_map(run, "blank").mean()}

        result = tabulate(trials, ("encoding",), measured, {"error": ("y", "x")})
        spec = trials["bump"][0].spec
        return result.assign(error=result["error"].mean("seed"), **grid_variables(spec)).assign_attrs(
            base_attributes(trials)
        )
