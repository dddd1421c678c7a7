"""Where inside the network does factorization break? (§3.4, Fig. 2, 5, 10–12)

CNNs of several depths, bump and rate codes: scores, and geometry, probes and tuning of every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import xarray

from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.reproduction.measuring import (
    DRAWING,
    Batch,
    base_attributes,
    drawings,
    stage_dims,
    stage_profile,
    tabulate,
    with_positions,
)
from recombine.reproduction.preset import AnyNumber, Seeds, Several
from recombine.reproduction.study import Arm, Study, Trials


class Settings(BumpPreset):
    """Depths of the CNN."""

    depths: Several = (2, 3, 4, 5, 6)
    """Depths compared between bump and rate codes (Fig. 2)."""
    extra_depths: AnyNumber = (7, 8, 9, 10)
    """Further depths (Fig. 10–12)."""
    deep_rate_seeds: Seeds = 72
    """Seeds of rate-coded networks beyond the usual depth, of which about one in eight does not learn."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {"depths": (2, 3), "extra_depths": (), "deep_rate_seeds": 3}
    }  # fmt: skip

    @property
    def pictured_depth(self) -> int:
        """The depth that pictures are of."""
        return self.depth if self.depth in self.depths else self.depths[-1]


class DepthStudy(Study[Settings]):
    """CNNs from shallow to deep."""

    name: ClassVar[str] = "depth"
    question: ClassVar[str] = "Where inside the network does factorization break, and does depth help?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile",)

    def arms(self, preset: Settings) -> list[Arm]:
        def seeds(code: str, depth: int) -> int | None:
            return preset.deep_rate_seeds if code == "rate" and depth > preset.depth else None

        return [
            Arm((code, depth), preset.spec(encoding=code, decoder=preset.cnn(depth)), seeds=seeds(code, depth))
            for code in CODES
            for depth in dict.fromkeys((*preset.depths, *preset.extra_depths))
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            return {**batch.scores, **stage_profile(batch), "drawing": drawings(batch)}

        result = tabulate(trials, ("encoding", "depth"), measured, {**stage_dims(), "drawing": DRAWING})
        preset = trials.preset
        surface = _surface(Batch([trials.pictured_run("bump", preset.pictured_depth)], trials.device))
        attributes = base_attributes(
            trials, size=preset.size, compared=list(preset.depths), shown=preset.pictured_depth
        )
        return with_positions(result, trials.first.spec, "log_volume").assign(surface=surface).assign_attrs(attributes)


def _surface(batch: Batch) -> tuple[tuple[str, ...], np.ndarray]:
    """Fig. 5 from a real network: its outputs over the grid, along their three largest directions."""
    task = batch.task
    flat = batch.outputs(task.grid.points)[0].flatten(1).double()
    centred = flat - flat.mean(dim=0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    projected = (centred @ directions[:3].mT).reshape(*task.grid.shape, 3).permute(1, 0, 2)
    return ("y", "x", "direction"), projected.float().numpy()


STUDY = DepthStudy()
