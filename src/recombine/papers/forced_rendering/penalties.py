"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6)

The low-rank decoder is trained on one-hot codes with a corner held out, in four arms (experimental conditions): no
penalty, entropy, variance, both. The variance penalty acts on unit vectors, as in the paper. Alternatives are raw
vectors, as in the published scripts, and, for a few seeds, another image size. Errors and shares of misplaced bumps are
compared in decades (log10 of their ratio), seed by seed.

There is no separate test that networks without a penalty have the highest held-out error, since this follows from the
gains of entropy (above 0), variance (above 0.5) and both (above 0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.decoders import LowRank
from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import band_alignment, band_index, matrix_effective_rank
from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering.presets import Common
from recombine.remedies import Entropy, Variance
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement, no_samples
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
"""Arms, mapped to their labels in figures."""
UNIT, RAW, OTHER_SIZE = "unit vectors", "raw vectors", "unit vectors, another N"
"""Labels of `vectors`: the paper's convention, the published scripts', and the paper's at another image size. Without
the variance penalty the first two are identical, and networks are stored under unit vectors."""
PENALTIES = (Entropy(weight=0.1), Variance(weight=0.01))
"""The penalties with the weights μ1 and μ2 used by the authors."""
BAND = 0.5
"""Smallest band index at which an embedding counts as a band."""
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
    penalty_seeds: Seeds = 72
    """Number of seeds in the penalty study; with both penalties, about one network in eight does not learn."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "penalty_size": 12, "penalty_other_size": 14, "penalty_sigma": 1.0, "penalty_epochs": 80,
            "penalty_lr": 1.5e-2, "penalty_seeds": 3,
        }
    }  # fmt: skip


def penalised_spec(preset: PenaltySettings, arm: str, vectors: str = "unit", size: int | None = None) -> RunSpec:
    """Return the run spec of one ablation arm with the authors' settings; `size` defaults to the preset's."""
    return RunSpec(
        task=BumpTask(
            size=size or preset.penalty_size, sigma=preset.penalty_sigma, encoding="onehot", holdout="corner",
            training="each",
        ),
        decoder=LowRank(vectors=vectors),
        recipe=preset.recipe(
            epochs=preset.penalty_epochs,
            lr=preset.penalty_lr,
            weight_decay=1e-4,
            precision="float32",  # with two channels, lower precision saves no time
        ),
        penalties=[own for own in PENALTIES if arm in (own.kind, BOTH)],
    )  # fmt: skip


class PenaltyStudy(Study[PenaltySettings]):
    """Ablation study of the two penalties."""

    name: ClassVar[str] = "penalties"
    question: ClassVar[str] = "Do penalties on rendered embeddings make a network compose?"
    settings: ClassVar[type[PenaltySettings]] = PenaltySettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("band_alignment", "band_index", "matrix_effective_rank", "stage_profile")

    def arms(self, preset: PenaltySettings) -> list[Arm]:
        seeds, other = preset.penalty_seeds, preset.penalty_other_size
        arms = [Arm((arm, UNIT), penalised_spec(preset, arm), seeds=seeds) for arm in ARMS]
        arms += [Arm((arm, RAW), penalised_spec(preset, arm, "raw"), seeds=seeds) for arm in (VARIANCE, BOTH)]
        return arms + [Arm((arm, OTHER_SIZE), penalised_spec(preset, arm, size=other), extra=True) for arm in ARMS]

    def measure(self, trials: Trials[PenaltySettings]) -> xarray.Dataset:
        preset, grid = trials.preset, trials.first.spec.task.grid.shape

        def measured(batch: Batch) -> dict[str, Any]:
            profile = stage_profile(batch, probes=False, maps=batch.task.grid.shape == grid)
            return {**batch.scores, **embedding_scores(_embeddings(batch)), **profile}

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


@torch.no_grad()
def _embeddings(batch: Batch) -> Tensor:
    """Return every run's embeddings as images, `[member, factor, value, row, column]`."""
    stages = [cast("LowRankEmbedding", module.stages["embedding"]) for module in batch.modules]
    return torch.stack([torch.stack(stage.images()) for stage in stages])


STUDY = PenaltyStudy()


# -- claims ----------------------------------------------------------------------------------------------------------

STAGES = {1: "embedding", 2: "first convolution", 3: "second convolution", 4: "output"}
"""Stages of the low-rank decoder after the input code."""
AFTER_EMBEDDING = slice(2, None)
RESAMPLES = 4000
FEWEST_MISSES = 1e-3
"""Lower bound on shares of misplaced bumps in ratios, which is less than one held-out bump."""
Networks = Callable[[str], xarray.Dataset]
"""Function that returns the networks of an arm under one convention."""
Comparison = Callable[[Networks], Sample]


def _statement(
    criterion: Criterion,
    case: str,
    compare: Comparison,
    before: Mapping[str, Comparison] | None = None,
    after: Mapping[str, Comparison] | None = None,
    controls: Samples = no_samples,
    prefix: str = "",
) -> Statement:
    """Return a statement on a comparison under the paper's convention, with others as alternatives."""

    def networks(data: Data, convention: str) -> Networks:
        unit = (NONE, ENTROPY) if convention == RAW else ()  # identical without the variance penalty
        return lambda arm: data["penalties"].sel(arm=arm, vectors=UNIT if arm in unit else convention)

    def alternatives(data: Data) -> dict[str, Sample]:
        conventions = {RAW: RAW, f"N = {data['penalties'].attrs['other_size']}": OTHER_SIZE}
        cases = {name: own(networks(data, UNIT)) for name, own in (before or {}).items()}
        cases |= {name: compare(networks(data, convention)) for name, convention in conventions.items()}
        cases |= {name: own(networks(data, UNIT)) for name, own in (after or {}).items()}
        return {f"{prefix}{name}": own for name, own in cases.items()}

    return Statement(criterion, lambda data: {case: compare(networks(data, UNIT))}, alternatives, controls)


def _rank_ratio(arm: str) -> Comparison:
    return lambda arms: samples.sample(arms(arm)["rank"] / arms(NONE)["rank"], arms(arm), arms(NONE))


def _alignment_gain(arm: str, name: str = "aligned") -> Comparison:
    return lambda arms: samples.difference(name, arms(arm), arms(NONE))


def mean_roughness(own: xarray.Dataset, name: str = "roughness", stages: slice = AFTER_EMBEDDING) -> xarray.DataArray:
    """Return the median absolute Laplacian of log10 dv, averaged over the convolutions and the output."""
    return own[name].isel(stage=stages).mean("stage")


def _smoothing(**chosen: Any) -> Comparison:
    return lambda arms: samples.ratio(partial(mean_roughness, **chosen), arms(NONE), arms(BOTH))


def _median(compare: Comparison) -> Comparison:
    """Return the same comparison using the median across networks, bootstrapped with a fixed seed."""

    def estimated(values: np.ndarray) -> Resampled:
        if not len(values):
            return Resampled(np.nan, (np.nan,), 0)
        draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
        return Resampled(float(np.median(values)), tuple(np.median(values[draws], axis=1).tolist()), len(values))

    return lambda arms: replace(compare(arms), estimated=estimated)


def _errors(criterion: Criterion, region: str, larger: str, smaller: str) -> Statement:
    """Compare the errors of two arms in decades; alternatives are medians and, for held-out points, misplaced bumps.

    Misplaced training bumps are not compared, because networks that learnt have hardly any.
    """

    def errors(arms: Networks) -> Sample:
        return samples.ratio(f"{region}_mse", arms(larger), arms(smaller))

    def misses(arms: Networks) -> Sample:
        return samples.ratio(lambda own: (1 - own["ood_accuracy"]).clip(min=FEWEST_MISSES), arms(larger), arms(smaller))

    others = {"medians": _median(errors), **({"bumps out of place": misses} if region == "ood" else {})}
    return _statement(criterion, "", errors, others, prefix=f"{larger} over {smaller}, ")


def _accuracy(arms: Networks) -> Sample:
    return samples.measured(arms(BOTH), "ood_accuracy")


_claim = partial(Claim, studies=("penalties",))
CLAIMS = (
    _claim(
        "C7",
        "Penalties give embeddings of low rank, banded at the coordinate",
        "§4.1, Fig. 3b, 6, App. C",
        (
            _statement(
                below("effective rank of embeddings, with penalties over without", 0.5),
                "both penalties",
                _rank_ratio(BOTH),
                after={"variance only": _rank_ratio(VARIANCE)},
            ),
            _statement(
                effect(
                    "share of embeddings whose band lies within 1 px of their coordinate, with less without penalties",
                    0.3,
                ),
                "both penalties",
                _alignment_gain(BOTH),
                after={
                    "variance only": _alignment_gain(VARIANCE),
                    "bands of any strength": _alignment_gain(BOTH, "aligned_any"),
                    "within 3 px": _alignment_gain(BOTH, "aligned_wide"),
                },
            ),
        ),
    ),
    _claim(
        "C8",
        "Penalties give a smoother manifold",
        "§4.1, Fig. 3c",
        (
            _statement(
                effect("roughness of log10 dv without penalties over that with both, decades", 0.05),
                "both penalties",
                _smoothing(),
                {
                    "spread of log10 dv": _smoothing(name="spread"),
                    **{f"{name} alone": _smoothing(stages=slice(k, k + 1)) for k, name in STAGES.items()},
                },
                controls=lambda data: samples.controlled(
                    data,
                    mean_roughness,
                    {
                        "no penalty over whole grid": (samples.UNPENALISED, samples.LOW_RANK_WHOLE),
                        "no penalty over untrained": (samples.UNPENALISED, samples.LOW_RANK_UNTRAINED),
                    },
                    samples.ratio,
                ),
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
                _errors(effect(f"training error, {arm} over none, decades", 0.0), "id", arm, NONE)
                for arm in (ENTROPY, VARIANCE, BOTH)
            ),
            _errors(
                within("marginal gain: held-out error, none over entropy, decades", 0.0, 0.3), "ood", NONE, ENTROPY
            ),
            _errors(effect("large gain: held-out error, none over variance, decades", 0.5), "ood", NONE, VARIANCE),
            *(
                _errors(effect(f"both are best: held-out error, {arm} over both, decades", 0.1), "ood", arm, BOTH)
                for arm in (NONE, ENTROPY, VARIANCE)
            ),
            _statement(
                above("held-out accuracy with both penalties", 0.9),
                "both penalties",
                _accuracy,
                {"median": _median(_accuracy)},
            ),
        ),
    ),
)
