"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6)

The low-rank decoder on one-hot codes with a corner held out, four arms: no penalty, entropy, variance, both. The same
with the published scripts' convention (variance of the raw vectors), and, for a few seeds, with images of another size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
import xarray
from torch import Tensor

from recombine.decoders import LowRank
from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import band_alignment, band_index, matrix_effective_rank
from recombine.papers.forced_rendering.presets import Common
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec
from recombine.tasks import BumpTask

NONE, ENTROPY, VARIANCE, BOTH = "none", "entropy", "variance", "both"
ARMS = {NONE: "no penalty", ENTROPY: "entropy", VARIANCE: "variance", BOTH: "both"}
"""Each arm, and what it is called in a figure."""
UNIT, RAW, OTHER_SIZE = "unit vectors", "raw vectors", "unit vectors, another N"
"""What the variance penalty is of, along `vectors`: the paper's convention, the published scripts', and the paper's
with images of another size. Without the variance penalty unit and raw vectors are the same, and are there as unit."""


ENTROPY_WEIGHT, VARIANCE_WEIGHT = 0.1, 0.01
"""μ1 and μ2 of the authors."""
BAND = 0.5
"""Band index from which on an embedding is a band."""
REACH = 3
"""Pixels that three convolutions of 3 × 3 can shift a band, or carry the padding of the border inwards."""


class Settings(Common):
    """Size and training of the low-rank decoder."""

    penalty_size: Count = 32
    """N of this study."""
    penalty_other_size: Count = 28
    """N of a few networks beside: that of the other studies."""
    penalty_sigma: Positive = 1.5
    """Width of the bump in pixels."""
    penalty_epochs: Count = 1000
    """Passes over the training set."""
    penalty_lr: Positive = 1e-3
    """Learning rate."""
    penalty_seeds: Seeds = 72
    """Seeds of this study: with both penalties about one network in eight does not learn."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "penalty_size": 12,
            "penalty_other_size": 14,
            "penalty_sigma": 1.0,
            "penalty_epochs": 80,
            "penalty_lr": 1.5e-2,
            "penalty_seeds": 3,
        }
    }


def penalised_spec(preset: Settings, arm: str, vectors: str = "unit", size: int | None = None) -> RunSpec:
    """One arm of the ablation, in the authors' settings at the preset's size or another."""
    return RunSpec(
        task=BumpTask(
            size=size or preset.penalty_size,
            sigma=preset.penalty_sigma,
            encoding="onehot",
            holdout="corner",
            training="each",
        ),
        decoder=LowRank(vectors=vectors),
        recipe=preset.recipe(
            epochs=preset.penalty_epochs,
            lr=preset.penalty_lr,
            weight_decay=1e-4,
            precision="float32",  # two channels: nothing that matrix units could speed up
            entropy=ENTROPY_WEIGHT if arm in (ENTROPY, BOTH) else 0.0,
            variance=VARIANCE_WEIGHT if arm in (VARIANCE, BOTH) else 0.0,
        ),
    )


class PenaltyStudy(Study[Settings]):
    """The ablation of the two penalties."""

    name: ClassVar[str] = "penalties"
    question: ClassVar[str] = "Do penalties on rendered embeddings make a network compose?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("band_alignment", "band_index", "matrix_effective_rank", "stage_profile")

    def arms(self, preset: Settings) -> list[Arm]:
        seeds, raw = preset.penalty_seeds, (VARIANCE, BOTH)
        arms = [Arm((arm, UNIT), penalised_spec(preset, arm), seeds=seeds) for arm in ARMS]
        arms += [Arm((arm, RAW), penalised_spec(preset, arm, "raw"), seeds=seeds) for arm in ARMS if arm in raw]
        other = preset.penalty_other_size
        return arms + [Arm((arm, OTHER_SIZE), penalised_spec(preset, arm, size=other), extra=True) for arm in ARMS]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        grid = trials.first.spec.task.grid.shape

        def measured(batch: Batch) -> dict[str, Any]:
            profile = stage_profile(batch, probes=False, maps=batch.task.grid.shape == grid)
            return {**batch.scores, **embedding_scores(_embeddings(batch)), **profile}

        dims = ("arm", "vectors")
        result = keep_first(tabulate(trials, dims, measured, stage_dims()), "log_volume").drop_vars("mean_log_volume")
        inner = {"embedding": ("factor", "value", "row", "column")}
        # those that figures show: the images of all arms would be most of the Dataset
        shown = {(arm,): [trials.pictured_run(arm, UNIT)] for arm in (NONE, BOTH)}
        drawn = Trials(trials.preset, trials.device, shown)
        pictures = tabulate(drawn, ("arm",), lambda batch: {"embedding": _embeddings(batch)}, inner)
        preset = trials.preset
        return result.assign(
            embedding=pictures["embedding"].isel(seed=0, drop=True), **grid_variables(trials.first.spec)
        ).assign_coords(factor=["x", "y"]).assign_attrs(base_attributes(
            trials, size=preset.penalty_size, other_size=preset.penalty_other_size, sigma=preset.penalty_sigma
        ))  # fmt: skip


def embedding_scores(images: Tensor) -> dict[str, Tensor]:
    """Means over all embeddings of runs, `[member, factor, value, row, column]`.

    Effective rank, band index, and the share whose band lies within a pixel of the value's own row or column. An image
    that is no band has some brightest row too, so only images with most of their variance along one axis have one. Left
    out are pixels and values within the convolutions' reach of the border, where padding leaves bands of its own. For
    comparison: bands of any strength, and bands as far off as the convolutions behind could shift them.
    """
    border = min(REACH, images.shape[-1] // 4)
    return {
        "rank": matrix_effective_rank(images).mean(dim=(1, 2)),
        "band": band_index(images).nanmean(dim=(1, 2)),
        "aligned": band_alignment(images, weakest=BAND, border=border),
        "aligned_any": band_alignment(images, border=border),
        "aligned_wide": band_alignment(images, tolerance=REACH, weakest=BAND, border=border),
    }


@torch.no_grad()
def _embeddings(batch: Batch) -> Tensor:
    """Every run's embeddings as images: `[member, factor, value, row, column]`."""
    stages = [cast("LowRankEmbedding", module.stages["embedding"]) for module in batch.modules]
    return torch.stack([torch.stack(stage.images()) for stage in stages])


STUDY = PenaltyStudy()
