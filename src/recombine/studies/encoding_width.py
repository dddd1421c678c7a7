"""Does a broader population code compose better? (extra)

The bump code's variance s² from 1 to 11 squared neuron spacings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from recombine.encodings import Bump
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import answers, base_attributes, grid_variables, keep_first, sample_points, tabulate

if TYPE_CHECKING:
    import xarray


@register
class EncodingWidthStudy(Study):
    """Bump codes from narrow to broad."""

    name: ClassVar[str] = "encoding_width"
    question: ClassVar[str] = "Does a broader population code compose better?"

    def arms(self, preset: Preset) -> list[Arm]:
        return [Arm((v,), preset.spec(encoding=Bump(variance=v)), extra=True) for v in preset.variances]

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, object]:
            return {**run.scores, "drawing": answers(run, sample_points(run.spec), trials.device).numpy()}

        result = tabulate(trials, ("variance",), measured, {"drawing": ("sample", "row", "column")})
        spec = next(iter(trials.items()))[1][0].spec
        return keep_first(result, "drawing").drop_vars("mean_drawing").assign(
            place=(("sample", "axis"), sample_points(spec).numpy()), **grid_variables(spec)
        ).assign_attrs(base_attributes(trials))  # fmt: skip
