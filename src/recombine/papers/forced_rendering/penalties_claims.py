"""Claims about penalties on rendered embeddings (§4.1, Fig. 3, 6).

There is no separate test that networks without a penalty have the highest held-out error, since this follows from the
gains of entropy (above 0), variance (above 0.5) and both (above 0.1).

Smoothness (C8) is measured as for stripes (C12): the median absolute Laplacian of log10 dv over held-out points, as
log10 of without over with the remedy, averaged over hidden stages and output after the logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import xarray

from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering.penalties import (
    BOTH,
    BOX,
    BOX_BUMP,
    ENTROPY,
    NONE,
    OTHER_SIZE,
    RAW,
    UNALIGNED,
    UNIT,
    VARIANCE,
)
from recombine.papers.forced_rendering.samples import PerSeed
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement, no_samples
from recombine.reproduction.criteria import Criterion, above, below, effect, within
from recombine.reproduction.intervals import Resampled
from recombine.reproduction.tables import mean_log_after_input

EMBEDDING = 1
STAGES = {EMBEDDING: "embedding", 2: "first convolution", 3: "second convolution", 4: "output"}
"""Stages of the low-rank decoder after the input code."""
PUBLISHED, CENTRE_BOX = "the published settings", "centre box"
"""Cases of C8."""
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

    def alternatives(data: Data) -> dict[str, Sample]:
        cases = {name: own(_networks(data, UNIT)) for name, own in (before or {}).items()}
        cases |= _by_convention(data, compare)
        cases |= {name: own(_networks(data, UNIT)) for name, own in (after or {}).items()}
        return {f"{prefix}{name}": own for name, own in cases.items()}

    return Statement(criterion, lambda data: {case: compare(_networks(data, UNIT))}, alternatives, controls)


def _networks(data: Data, convention: str) -> Networks:
    unit = (NONE, ENTROPY) if convention == RAW else ()  # identical without the variance penalty
    return lambda arm: data["penalties"].sel(arm=arm, vectors=UNIT if arm in unit else convention)


def _by_convention(data: Data, compare: Comparison, *omitted: str) -> dict[str, Sample]:
    """Return a comparison under every measured convention other than the paper's."""
    names = {
        RAW: RAW, OTHER_SIZE: f"N = {data['penalties'].attrs['other_size']}", BOX: CENTRE_BOX,
        BOX_BUMP: f"{CENTRE_BOX}, bump code",
    }  # fmt: skip
    measured = [own for own in names if own in data["penalties"]["vectors"] and own not in omitted]
    return {names[convention]: compare(_networks(data, convention)) for convention in measured}


def _rank_ratio(arm: str) -> Comparison:
    return lambda arms: samples.sample(arms(arm)["rank"] / arms(NONE)["rank"], arms(arm), arms(NONE))


def _alignment_gain(arm: str, name: str = "aligned") -> Comparison:
    return lambda arms: samples.difference(name, arms(arm), arms(NONE))


def log_roughness(networks: xarray.Dataset, name: str = "roughness_held", stage: int | None = None) -> xarray.DataArray:
    """Return log10 of the median absolute Laplacian of log10 dv over held-out points, at a stage or averaged."""
    return mean_log_after_input(networks[name]) if stage is None else _log10(networks[name].isel(stage=stage))


def _smoothing(networks: Networks, statistic: PerSeed = log_roughness) -> Sample:
    """Return how much rougher networks are without penalties than with both, in decades."""
    return samples.difference(statistic, networks(NONE), networks(BOTH))


def _smoothing_cases(data: Data) -> dict[str, Sample]:
    cases, measured = {PUBLISHED: UNIT, CENTRE_BOX: BOX}, data["penalties"]["vectors"]
    return {case: _smoothing(_networks(data, own)) for case, own in cases.items() if own in measured}


def _other_smoothing(data: Data) -> dict[str, Sample]:
    """Return other conventions, single stages, the embedding as trained, other points, and other statistics."""
    networks, result = _networks(data, UNIT), data["penalties"]
    cases = _by_convention(data, _smoothing, BOX)
    for k, name in STAGES.items():
        cases[f"{name} alone"] = _smoothing(networks, partial(log_roughness, stage=k))
    cases["stages after the embedding"] = _smoothing(networks, _after_embedding)
    if UNALIGNED in result:
        cases["embedding not aligned in sign"] = _smoothing(networks, _unaligned)
    if BOX in result["vectors"] and UNALIGNED in result:
        cases[f"{CENTRE_BOX}, embedding not aligned in sign"] = _smoothing(_networks(data, BOX), _unaligned)
    others: dict[str, tuple[str, PerSeed]] = {
        "kept points": ("roughness of kept points", partial(log_roughness, name="roughness_kept")),
        "whole grid": ("roughness of the whole grid", partial(log_roughness, name="roughness")),
        "whole grid, arithmetic mean over convolutions and output": (
            "mean roughness of the whole grid after the embedding",
            lambda own: _log10(own["roughness"].isel(stage=slice(EMBEDDING + 1, None)).mean("stage")),
        ),
        "spread of log10 dv": ("spread of log10 dv over held-out points", partial(log_roughness, name="spread_held")),
    }
    for case, (words, statistic) in others.items():
        measures = f"{words} without penalties over that with both, decades"
        cases[case] = replace(_smoothing(networks, statistic), measures=measures)
    return cases


def _after_embedding(networks: xarray.Dataset) -> xarray.DataArray:
    return mean_log_after_input(networks["roughness_held"].drop_isel(stage=EMBEDDING))


def _unaligned(networks: xarray.Dataset) -> xarray.DataArray:
    aligned = networks["roughness_held"]
    is_embedding = xarray.DataArray(np.arange(aligned.sizes["stage"]) == EMBEDDING, dims="stage")
    return mean_log_after_input(aligned.where(~is_embedding, networks[UNALIGNED]).transpose(*aligned.dims))


def _log10(values: xarray.DataArray) -> xarray.DataArray:
    return samples.decades(values, xarray.ones_like(values))


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
            Statement(
                effect(
                    "roughness of log10 dv over held-out points, without penalties over that with both, decades",
                    0.05,
                    stage="hidden stages and output",
                    cases=(PUBLISHED, CENTRE_BOX),
                ),
                _smoothing_cases,
                _other_smoothing,
                lambda data: samples.controlled(
                    data,
                    log_roughness,
                    {
                        "no penalty over whole grid": (samples.UNPENALISED, samples.LOW_RANK_WHOLE),
                        "no penalty over untrained": (samples.UNPENALISED, samples.LOW_RANK_UNTRAINED),
                    },
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
