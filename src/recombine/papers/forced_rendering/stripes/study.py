"""Remedy B: do examples of single factors make a network compose? (§4.2, Fig. 4 a, b, d, e, 7)

All 2N stripes with few bumps from the kept combinations, and as many bumps without stripes. Fig. 7b counts bumps in per
cent of the kept combinations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recombine.metrics import features
from recombine.metrics.stages import INPUT
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.stripes.labels import FULL, PERCENT, WITH, WITHOUT
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import DRAWING, base_attributes, drawings, tabulate, with_positions
from recombine.reproduction.preset import Several
from recombine.reproduction.profile import STAGE_DIMS, stage_profile
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

if TYPE_CHECKING:
    import xarray

NEURONS = 8
"""First-stage neurons shown (Fig. 4e)."""


class Settings(BumpPreset):
    """Numbers of bumps."""

    bumps: Several = (0, 10, 50, 100)
    """Bumps beside the stripes (Fig. 4b); all but 0 are also trained without stripes."""
    percents: Several = (1, 5, 20, 50)
    """Bumps beside the stripes in per cent of the kept combinations (Fig. 7b)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"bumps": (0, 30), "percents": (10,)}}

    @property
    def pictured_bumps(self) -> int:
        """The number of bumps beside the stripes that pictures are of."""
        return self.bumps[min(2, len(self.bumps) - 1)]

    def striped_spec(self, bumps: int, **task: Any) -> RunSpec:
        """Stripes and so many bumps."""
        return self.spec(isolated=True, training=f"pick:{bumps}", **task)


class StripeStudy(Study[Settings]):
    """Stripes with few bumps against bumps alone."""

    name: ClassVar[str] = "stripes"
    question: ClassVar[str] = "Do examples of single factors make a network compose?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("features", "stage_profile")

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((WITH, bumps), preset.striped_spec(bumps)) for bumps in preset.bumps]
        arms += [Arm((WITHOUT, n), preset.spec(training=f"pick:{n}")) for n in preset.bumps if n]
        arms += [
            Arm((PERCENT, p), preset.spec(isolated=True, training=f"percent:{p}"), extra=True) for p in preset.percents
        ]
        return [*arms, Arm((FULL, preset.samples), preset.spec())]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        preset = trials.preset
        profiled = {(WITH, bumps) for bumps in preset.bumps} | {(FULL, preset.samples)}
        keys = {run.key for arm in profiled for run in trials[arm]}

        def measured(batch: Batch) -> dict[str, Any]:
            profile = stage_profile(batch, probes=False) if batch.runs[0].key in keys else {}
            return {**batch.scores, "drawing": drawings(batch), **profile}

        result = tabulate(trials, ("family", "bumps"), measured, {**STAGE_DIMS, "drawing": DRAWING})
        spec = trials.first.spec
        activations = _first_stage(Batch([trials.pictured_run(WITH, preset.pictured_bumps)], trials.device))
        return with_positions(result, spec, "log_volume").assign(
            activation=(("neuron", "y", "x"), activations),
            stripe_image=(("stripe", "row", "column"), _stripe_images(spec)),
        ).assign_attrs(base_attributes(
            trials, size=preset.size, shown=preset.pictured_bumps, full=preset.samples, added=list(preset.bumps),
            percents=list(preset.percents),
        ))  # fmt: skip


def _stripe_images(spec: RunSpec) -> np.ndarray:
    return spec.task.render(spec.task.isolated_values()).numpy().astype(np.float32)


def _first_stage(batch: Batch) -> np.ndarray:
    """Activation over the grid of the most varying first-stage neurons."""
    task = batch.task
    stages = features(batch.reader(), task.grid.points.to(batch.device), members=1, memory=batch.memory)
    first = next(stage[0] for name, stage in stages if name != INPUT)
    chosen = first.var(dim=0).argsort(descending=True)[:NEURONS]
    return first[:, chosen].T.reshape(-1, *task.grid.shape).transpose(1, 2).cpu().numpy().astype(np.float32)


STUDY = StripeStudy()
