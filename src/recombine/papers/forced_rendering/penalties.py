"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6)

The low-rank decoder on one-hot codes with a corner held out, four arms: no penalty, entropy, variance, both. The same
with the published scripts' convention (variance of the raw vectors), and, for a few seeds, with images of another size.

Primary tests are of the paper's convention, the variance penalty on unit vectors; the published scripts', on raw ones,
stands beside them. Errors are compared in decades: log10 of one over the other, seed by seed. So are shares of bumps
out of place, which are what accuracy comes to in that unit.

That none has the highest held-out error has no tests of its own: it follows from the gains of entropy (above 0), of
variance (above 0.5) and of both (above 0.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.decoders import LowRank
from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import band_alignment, band_index, matrix_effective_rank
from recombine.papers.forced_rendering.presets import Common
from recombine.papers.forced_rendering.samples import (
    LOW_RANK_UNTRAINED,
    LOW_RANK_WHOLE,
    UNPENALISED,
    controlled,
    difference,
    measured,
    ratio,
    sample,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, above, below, effect, within
from recombine.reproduction.intervals import Resampled
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


class PenaltySettings(Common):
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


def penalised_spec(preset: PenaltySettings, arm: str, vectors: str = "unit", size: int | None = None) -> RunSpec:
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


class PenaltyStudy(Study[PenaltySettings]):
    """The ablation of the two penalties."""

    name: ClassVar[str] = "penalties"
    question: ClassVar[str] = "Do penalties on rendered embeddings make a network compose?"
    settings: ClassVar[type[PenaltySettings]] = PenaltySettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("band_alignment", "band_index", "matrix_effective_rank", "stage_profile")

    def arms(self, preset: PenaltySettings) -> list[Arm]:
        seeds, raw = preset.penalty_seeds, (VARIANCE, BOTH)
        arms = [Arm((arm, UNIT), penalised_spec(preset, arm), seeds=seeds) for arm in ARMS]
        arms += [Arm((arm, RAW), penalised_spec(preset, arm, "raw"), seeds=seeds) for arm in ARMS if arm in raw]
        other = preset.penalty_other_size
        return arms + [Arm((arm, OTHER_SIZE), penalised_spec(preset, arm, size=other), extra=True) for arm in ARMS]

    def measure(self, trials: Trials[PenaltySettings]) -> xarray.Dataset:
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


# -- claims ----------------------------------------------------------------------------------------------------------


STAGES = {1: "embedding", 2: "first convolution", 3: "second convolution", 4: "output"}
"""Of the low-rank decoder, after the input code."""
RESAMPLES = 4000
BEST = 0.1
"""Decades by which the best arm must be better than another."""
FEWEST_MISSES = 1e-3
"""Shares of bumps out of place below this count as this: less than one of the held-out ones."""


def networks(data: Data, arm: str, convention: str = UNIT) -> xarray.Dataset:
    """An arm of the ablation; without the variance penalty raw vectors are unit vectors."""
    same = convention == RAW and arm in (NONE, ENTROPY)
    return data["penalties"].sel(arm=arm, vectors=UNIT if same else convention)


def conventions(data: Data) -> dict[str, str]:
    """The conventions beside the paper's, by what they are called."""
    return {RAW: RAW, f"N = {data['penalties'].attrs['other_size']}": OTHER_SIZE}


# -- C7: embeddings ----------------------------------------------------------------------------------------------------


def _rank_ratio(data: Data, arm: str, convention: str) -> Sample:
    own, none = networks(data, arm, convention), networks(data, NONE, convention)
    return sample(own["rank"] / none["rank"], own, none)


def _alignment_gain(data: Data, arm: str, convention: str, name: str = "aligned") -> Sample:
    return difference(name, networks(data, arm, convention), networks(data, NONE, convention))


# -- C8: a smoother manifold -------------------------------------------------------------------------------------------


SMOOTHER = {
    "no penalty over whole grid": (UNPENALISED, LOW_RANK_WHOLE),
    "no penalty over untrained": (UNPENALISED, LOW_RANK_UNTRAINED),
}
"""Networks without penalties against ones that saw the whole grid, and against untrained ones."""


def mean_roughness(own: xarray.Dataset, name: str = "roughness") -> xarray.DataArray:
    """Median absolute Laplacian of log10 dv, mean over the convolutions and the output."""
    return own[name].isel(stage=slice(2, None)).mean("stage")


def smoothing_otherwise(data: Data) -> dict[str, Sample]:
    """Spread instead, each stage by itself, and other conventions."""
    none, both = networks(data, NONE), networks(data, BOTH)
    by_stage = {
        f"{name} alone": ratio("roughness", none.isel(stage=stage), both.isel(stage=stage))
        for stage, name in STAGES.items()
        if stage < data["penalties"].sizes["stage"]
    }
    others = {name: _smoothing(data, convention, "roughness") for name, convention in conventions(data).items()}
    return {"spread of log10 dv": _smoothing(data, UNIT, "spread"), **by_stage, **others}


def _smoothing(data: Data, convention: str, name: str) -> Sample:
    none, both = (networks(data, arm, convention) for arm in (NONE, BOTH))
    return ratio(lambda own: mean_roughness(own, name), none, both)


# -- C9: the ablation --------------------------------------------------------------------------------------------------


def compared(criterion: Criterion, region: str, larger: str, smaller: str) -> Statement:
    """One arm's error over another's in decades; beside it conventions, medians, and for held-out points misses.

    All networks that count put their training bumps in place, so that accuracy there tells nothing.
    """

    def alternatives(data: Data) -> Mapping[str, Sample]:
        pair = f"{larger} over {smaller}"
        pair_of_arms = networks(data, larger), networks(data, smaller)
        missed = ratio(lambda own: (1 - own["ood_accuracy"]).clip(min=FEWEST_MISSES), *pair_of_arms)
        return {
            f"{pair}, medians": _with_median(_decades(data, UNIT, region, larger, smaller)),
            **({f"{pair}, bumps out of place": missed} if region == "ood" else {}),
            **{
                f"{pair}, {name}": _decades(data, convention, region, larger, smaller)
                for name, convention in conventions(data).items()
            },
        }

    return Statement(criterion, lambda data: {"": _decades(data, UNIT, region, larger, smaller)}, alternatives)


def median(values: np.ndarray) -> Resampled:
    """The median over networks, with a bootstrap from a fixed random stream."""
    if not len(values):
        return Resampled(np.nan, (np.nan,), 0)
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    return Resampled(float(np.median(values)), tuple(np.median(values[draws], axis=1).tolist()), len(values))


def _decades(data: Data, convention: str, region: str, larger: str, smaller: str) -> Sample:
    return ratio(f"{region}_mse", networks(data, larger, convention), networks(data, smaller, convention))


def _with_median(usual: Sample) -> Sample:
    return Sample(usual.values, usual.learnt, usual.trained, median)


def _accuracy(data: Data, convention: str) -> Sample:
    return measured(networks(data, BOTH, convention), "ood_accuracy")


_claim = partial(Claim, studies=("penalties",))
CLAIMS = (
    _claim(
        "C7",
        "Penalties give embeddings of low rank, banded at the coordinate",
        "§4.1, Fig. 3b, 6, App. C",
        (
            Statement(
                below("effective rank of embeddings, with penalties over without", 0.5),
                lambda data: {"both penalties": _rank_ratio(data, BOTH, UNIT)},
                lambda data: {
                    **{name: _rank_ratio(data, BOTH, own) for name, own in conventions(data).items()},
                    "variance only": _rank_ratio(data, VARIANCE, UNIT),
                },
            ),
            Statement(
                effect(
                    "share of embeddings whose band lies within 1 px of their coordinate, with less without penalties",
                    0.3,
                ),
                lambda data: {"both penalties": _alignment_gain(data, BOTH, UNIT)},
                lambda data: {
                    **{name: _alignment_gain(data, BOTH, own) for name, own in conventions(data).items()},
                    "variance only": _alignment_gain(data, VARIANCE, UNIT),
                    "bands of any strength": _alignment_gain(data, BOTH, UNIT, "aligned_any"),
                    "within 3 px": _alignment_gain(data, BOTH, UNIT, "aligned_wide"),
                },
            ),
        ),
    ),
    _claim(
        "C8",
        "Penalties give a smoother manifold",
        "§4.1, Fig. 3c",
        (
            Statement(
                effect("roughness of log10 dv without penalties over that with both, decades", 0.05),
                lambda data: {"both penalties": _smoothing(data, UNIT, "roughness")},
                smoothing_otherwise,
                lambda data: controlled(data, mean_roughness, SMOOTHER, ratio),
            ),
        ),
        beside=("controls",),
    ),
    _claim(
        "C9",
        "Ablation: no penalty has the lowest training and the highest held-out error; entropy improves it marginally, "
        "variance much at higher training error; both are best, and succeed",
        "§4.1, Fig. 3d",
        (
            *(
                compared(effect(f"training error, {arm} over none, decades", 0.0), "id", arm, NONE)
                for arm in (ENTROPY, VARIANCE, BOTH)
            ),
            compared(
                within("marginal gain: held-out error, none over entropy, decades", 0.0, 0.3), "ood", NONE, ENTROPY
            ),
            compared(effect("large gain: held-out error, none over variance, decades", 0.5), "ood", NONE, VARIANCE),
            *(
                compared(effect(f"both are best: held-out error, {arm} over both, decades", BEST), "ood", arm, BOTH)
                for arm in (NONE, ENTROPY, VARIANCE)
            ),
            Statement(
                above("held-out accuracy with both penalties", 0.9),
                lambda data: {"both penalties": _accuracy(data, UNIT)},
                lambda data: {
                    "median": _with_median(_accuracy(data, UNIT)),
                    **{name: _accuracy(data, convention) for name, convention in conventions(data).items()},
                },
            ),
        ),
    ),
)
