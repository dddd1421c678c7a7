"""Remedy B: do examples of single factors make a network compose? (§4.2, App. D, Fig. 4 a, b, d, e, 7)

All 2N stripes with few bumps from the kept combinations, and as many bumps without stripes. Fig. 7b counts bumps in per
cent of the kept combinations; those too with and without stripes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recombine.papers.forced_rendering.fit import training_fit
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.stripes.conjunctions import conjunctions
from recombine.papers.forced_rendering.stripes.first_stage import band_scores, first_stage_maps, pictured_maps
from recombine.papers.forced_rendering.stripes.labels import FULL, PERCENT, PERCENT_ALONE, WITH, WITHOUT
from recombine.reproduction.measuring import (
    DRAWING,
    STAGE_DIMS,
    Batch,
    base_attributes,
    drawings,
    stage_profile,
    tabulate,
    with_positions,
)
from recombine.reproduction.preset import Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

if TYPE_CHECKING:
    import xarray

NEURONS = 8
"""First-stage neurons shown (Fig. 4e)."""
SOME, MANY = 50, 100
"""Bumps beside the stripes in Fig. 4d–e, and where bumps are proper ones (Fig. 4b, 15)."""


class Settings(BumpPreset):
    """Numbers of bumps."""

    bumps: Several = (0, 10, 50, 100, 200)
    """Bumps beside the stripes (Fig. 4b); all but 0 are also trained without stripes."""
    percents: Several = (1, 5, 20, 50)
    """Bumps with and without stripes in per cent of the kept combinations (Fig. 7b)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"bumps": (0, 10, 30), "percents": (5,)}}

    @property
    def some_bumps(self) -> int:
        """The number of bumps beside the stripes that is nearest to the paper's 50."""
        return min(self.bumps, key=lambda bumps: abs(bumps - SOME))

    @property
    def many_bumps(self) -> int:
        """The number of bumps beside the stripes that is nearest to the paper's 100."""
        return min(self.bumps, key=lambda bumps: abs(bumps - MANY))

    def striped_spec(self, bumps: int, **task: Any) -> RunSpec:
        """Stripes and so many bumps."""
        return self.spec(isolated=True, training=f"pick:{bumps}", **task)


class StripeStudy(Study[Settings]):
    """Stripes with few bumps against bumps alone."""

    name: ClassVar[str] = "stripes"
    question: ClassVar[str] = "Do examples of single factors make a network compose?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "band_position", "extreme_pixel", "features", "hits", "interior", "mean_band_index", "squared_error",
        "stage_profile", "stripe_superposition",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((WITH, bumps), preset.striped_spec(bumps)) for bumps in preset.bumps]
        arms += [Arm((WITHOUT, n), preset.spec(training=f"pick:{n}")) for n in preset.bumps if n]
        arms += [Arm((PERCENT, p), preset.spec(isolated=True, training=f"percent:{p}")) for p in preset.percents]
        arms += [Arm((PERCENT_ALONE, p), preset.spec(training=f"percent:{p}")) for p in preset.percents if p]
        return [*arms, Arm((FULL, preset.samples), preset.spec())]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        preset = trials.preset
        striped = {run.key for bumps in preset.bumps for run in trials[WITH, bumps]}
        profiled = striped | {run.key for run in trials[FULL, preset.samples]}

        def measured(batch: Batch) -> dict[str, Any]:
            values = {**batch.scores, **training_fit(batch), "drawing": drawings(batch)}
            if batch.runs[0].key in striped:
                values |= conjunctions(batch)
            if batch.runs[0].key in profiled:
                values |= {**stage_profile(batch, probes=False), **band_scores(first_stage_maps(batch), preset.width)}
            return values

        result = tabulate(trials, ("family", "bumps"), measured, {**STAGE_DIMS, "drawing": DRAWING})
        spec = trials.first.spec
        pictured = Batch([trials.pictured_run(WITH, preset.some_bumps)], trials.device)
        return with_positions(result, spec, "log_volume").drop_vars("mean_log_volume").assign(
            activation=(("neuron", "y", "x"), pictured_maps(first_stage_maps(pictured), NEURONS)),
            stripe_image=(("stripe", "row", "column"), _stripe_images(spec)),
        ).assign_attrs(base_attributes(
            trials, size=preset.size, shown=preset.some_bumps, many=preset.many_bumps, full=preset.samples,
            added=list(preset.bumps), percents=list(preset.percents),
        ))  # fmt: skip


def _stripe_images(spec: RunSpec) -> np.ndarray:
    return spec.task.render(spec.task.isolated_values()).numpy().astype(np.float32)


STUDY = StripeStudy()
