"""Does a broader population code compose better? (extra)

The bump code's variance s² from 1 to 11 squared neuron spacings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray

from recombine.encodings import Bump
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.measuring import DRAWING, Batch, base_attributes, drawings, tabulate, with_positions
from recombine.reproduction.preset import Several
from recombine.reproduction.study import Arm, Study, Trials


class Settings(BumpPreset):
    """Widths of the code."""

    variances: Several = (1, 3, 5, 7, 9, 11)
    """s² of the bump code."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"variances": (1, 5, 11)}}


class EncodingWidthStudy(Study[Settings]):
    """Bump codes from narrow to broad."""

    name: ClassVar[str] = "encoding_width"
    question: ClassVar[str] = "Does a broader population code compose better?"
    settings: ClassVar[type[Settings]] = Settings

    def arms(self, preset: Settings) -> list[Arm]:
        return [Arm((v,), preset.spec(encoding=Bump(variance=v)), extra=True) for v in preset.variances]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            return {**batch.scores, "drawing": drawings(batch)}

        result = tabulate(trials, ("variance",), measured, {"drawing": DRAWING})
        return with_positions(result, trials.first.spec).assign_attrs(base_attributes(trials, size=trials.preset.size))


STUDY = EncodingWidthStudy()
