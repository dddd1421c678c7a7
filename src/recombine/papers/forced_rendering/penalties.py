"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6)

The low-rank decoder is trained on one-hot codes with a corner held out, in four arms (experimental conditions): no
penalty, entropy, variance, both. The variance penalty acts on unit vectors, as in the paper. Alternatives are raw
vectors, as in the published scripts, and, for a few seeds, another image size. The same arms are also trained on the
paper's main task (centre box, narrower bump), with one-hot and with bump codes. Errors and shares of misplaced bumps
are compared in decades (log10 of their ratio), seed by seed.

One-hot codes have no derivative, so the geometry is that of finite differences. Before it is measured at the embedding,
embeddings of neighbouring values are aligned in sign (`recombine.metrics.stages`); later stages are as trained. The
unaligned embedding is an alternative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
import xarray
from torch import Tensor

from recombine.decoders import LowRank
from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import (
    band_alignment,
    band_index,
    features,
    finite_difference_metric,
    log_volume,
    matrix_effective_rank,
    roughness,
)
from recombine.metrics.stages import precision
from recombine.papers.forced_rendering.presets import Common
from recombine.remedies import Entropy, Variance
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec
from recombine.tasks import BumpTask

NONE, ENTROPY, VARIANCE, BOTH = "none", "entropy", "variance", "both"
ARMS = {NONE: "no penalty", ENTROPY: "entropy", VARIANCE: "variance", BOTH: "both"}
"""Arms, mapped to their labels in figures."""
UNIT, RAW, OTHER_SIZE = "unit vectors", "raw vectors", "unit vectors, another N"
BOX, BOX_BUMP = BOXED = "unit vectors, centre box", "unit vectors, centre box, bump code"
"""Labels of `vectors`: the paper's convention, the published scripts', and the paper's at another image size. Without
the variance penalty the first two are identical, and networks are stored under unit vectors. `BOXED` are trained on the
paper's main task."""
BOX_CODES = {BOX: "onehot", BOX_BUMP: "bump"}
PENALTIES = (Entropy(weight=0.1), Variance(weight=0.01))
"""The penalties with the weights μ1 and μ2 used by the authors."""
BAND = 0.5
"""Smallest band index at which an embedding counts as a band."""
UNALIGNED = "unaligned_roughness_held"
"""Variable for the embedding's roughness with the signs of its images as trained."""
REACH = 3
"""Number of pixels by which three 3 × 3 convolutions can shift a band or spread padding artefacts inwards."""


class PenaltySettings(Common):
    """Settings for the size and training of the low-rank decoder."""

    penalty_size: Count = 32
    """Image size N of the penalty study."""
    penalty_other_size: Count = 28
    """Image size N for a few additional networks, the same as in the other studies."""
    penalty_sigma: Positive = 1.5
    """Width of the bump in pixels."""
    penalty_epochs: Count = 1000
    """Passes over the training set."""
    penalty_lr: Positive = 1e-3
    """Learning rate."""
    penalty_box_strength: Positive = 1.0
    """Strength of the penalties relative to the published ones, with the centre box held out."""
    penalty_box_length: Positive = 2.0
    """Number of epochs relative to `penalty_epochs`, with the centre box held out."""
    penalty_box_bump_strength: Positive = 1.0
    """`penalty_box_strength` for bump codes."""
    penalty_box_bump_length: Positive = 2.0
    """`penalty_box_length` for bump codes."""
    penalty_seeds: Seeds = 72
    """Number of seeds in the penalty study; with both penalties, about one network in eight does not learn."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "penalty_size": 12, "penalty_other_size": 14, "penalty_sigma": 1.0, "penalty_epochs": 80,
            "penalty_lr": 1.5e-2, "penalty_seeds": 2, "penalty_box_length": 1.0, "penalty_box_bump_length": 1.0,
        }
    }  # fmt: skip


def penalised_spec(preset: PenaltySettings, arm: str, vectors: str = "unit", size: int | None = None) -> RunSpec:
    """Return the run spec of one ablation arm with the authors' settings; `size` defaults to the preset's."""
    task = BumpTask(
        size=size or preset.penalty_size, sigma=preset.penalty_sigma, encoding="onehot", holdout="corner",
        training="each",
    )  # fmt: skip
    return _spec(preset, arm, task, LowRank(vectors=vectors))


def boxed_spec(preset: PenaltySettings, arm: str, encoding: str) -> RunSpec:
    """Return the run spec of one ablation arm on the paper's main task."""
    task = BumpTask(size=preset.penalty_other_size, encoding=encoding, training="each")
    prefix = "penalty_box" if encoding == "onehot" else "penalty_box_bump"
    strength, length = (getattr(preset, f"{prefix}_{name}") for name in ("strength", "length"))
    return _spec(preset, arm, task, LowRank(), strength, length)


def _spec(
    preset: PenaltySettings, arm: str, task: BumpTask, decoder: LowRank, strength: float = 1, length: float = 1
) -> RunSpec:
    recipe = preset.recipe(
        epochs=max(1, round(length * preset.penalty_epochs)),
        lr=preset.penalty_lr,
        weight_decay=1e-4,
        precision="float32",  # with two channels, lower precision saves no time
    )
    penalties = [own.replace(weight=strength * own.weight) for own in PENALTIES if arm in (own.kind, BOTH)]
    return RunSpec(task=task, decoder=decoder, recipe=recipe, penalties=penalties)


class PenaltyStudy(Study[PenaltySettings]):
    """Ablation study of the two penalties."""

    name: ClassVar[str] = "penalties"
    question: ClassVar[str] = "Do penalties on rendered embeddings make a network compose?"
    settings: ClassVar[type[PenaltySettings]] = PenaltySettings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = (
        "band_alignment", "band_index", "finite_difference_metric", "log_volume", "matrix_effective_rank",
        "stage_profile",
    )  # fmt: skip

    def arms(self, preset: PenaltySettings) -> list[Arm]:
        seeds, other = preset.penalty_seeds, preset.penalty_other_size
        arms = [Arm((arm, UNIT), penalised_spec(preset, arm), seeds=seeds) for arm in ARMS]
        arms += [Arm((arm, RAW), penalised_spec(preset, arm, "raw"), seeds=seeds) for arm in (VARIANCE, BOTH)]
        arms += [Arm((arm, OTHER_SIZE), penalised_spec(preset, arm, size=other), extra=True) for arm in ARMS]
        for vectors, code in BOX_CODES.items():
            for arm in ARMS:
                judged = vectors == BOX and arm in (NONE, BOTH)  # by C8
                spec = boxed_spec(preset, arm, code)
                arms.append(Arm((arm, vectors), spec, seeds=seeds if judged else None, extra=not judged))
        return arms

    def measure(self, trials: Trials[PenaltySettings]) -> xarray.Dataset:
        preset, grid = trials.preset, trials.first.spec.task.grid.shape

        def measured(batch: Batch) -> dict[str, Any]:
            profile = stage_profile(batch, probes=False, maps=batch.task.grid.shape == grid)
            return {**batch.scores, **embedding_scores(_embeddings(batch)), **profile, **unaligned_roughness(batch)}

        dims = ("arm", "vectors")
        result = keep_first(tabulate(trials, dims, measured, stage_dims()), "log_volume").drop_vars("mean_log_volume")
        # Store only the embeddings shown in figures; those of all arms would make up most of the Dataset.
        shown = {(arm,): [trials.pictured_run(arm, UNIT)] for arm in (NONE, BOTH)}
        inner = {"embedding": ("factor", "value", "row", "column")}
        pictures = tabulate(
            Trials(preset, trials.device, shown), ("arm",), lambda batch: {"embedding": _embeddings(batch)}, inner
        )
        return result.assign(
            embedding=pictures["embedding"].isel(seed=0, drop=True), **grid_variables(trials.first.spec)
        ).assign_coords(factor=["x", "y"]).assign_attrs(base_attributes(
            trials, size=preset.penalty_size, other_size=preset.penalty_other_size, sigma=preset.penalty_sigma
        ))  # fmt: skip


def embedding_scores(images: Tensor) -> dict[str, Tensor]:
    """Return the mean effective rank, band index and alignment of embeddings `[member, factor, value, row, column]`.

    `aligned` is the share of embeddings with a band within one pixel of the row or column of their value. Every image
    has a brightest row, so only images with most of their variance along one axis count as bands. Pixels and values
    within the convolutions' reach of the border are excluded, since padding causes bands there. `aligned_any` counts
    bands of any strength; `aligned_wide` also counts bands shifted by no more than later convolutions could correct.
    """
    border = min(REACH, images.shape[-1] // 4)
    return {
        "rank": matrix_effective_rank(images).mean(dim=(1, 2)),
        "band": band_index(images).nanmean(dim=(1, 2)),
        "aligned": band_alignment(images, weakest=BAND, border=border),
        "aligned_any": band_alignment(images, border=border),
        "aligned_wide": band_alignment(images, tolerance=REACH, weakest=BAND, border=border),
    }


def unaligned_roughness(batch: Batch) -> dict[str, Tensor]:
    """Return the embedding's roughness over held-out points, with the signs of its images as trained."""
    task, reader = batch.task, batch.reader(aligned=False)
    if task.encoding.differentiable:
        return {}
    stages = features(reader, task.grid.points.to(batch.device), members=1, memory=batch.memory)
    images = next(images for name, images in stages if name == LowRank.free_signs)
    metric = finite_difference_metric(images.to(precision(batch.device)), task.grid.shape)
    return {UNALIGNED: roughness(log_volume(metric), task.grid.shape, task.held_out)}


@torch.no_grad()
def _embeddings(batch: Batch) -> Tensor:
    """Return every run's embeddings as images, `[member, factor, value, row, column]`."""
    stages = [cast("LowRankEmbedding", module.stages["embedding"]) for module in batch.modules]
    return torch.stack([torch.stack(stage.images()) for stage in stages])


STUDY = PenaltyStudy()
