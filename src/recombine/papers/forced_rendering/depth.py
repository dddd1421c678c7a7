"""Where inside the network does factorization break? (§3.4, Fig. 2, 5, 10–12)

CNNs of several depths, bump and rate codes: scores, and geometry, probes and tuning of every stage.

Tests are on CNNs of the usual depth (4 in the paper preset), bump and rate code; other depths are alternatives. Stages
are the hidden ones and the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray

from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import (
    PerSeed,
    Statistic,
    difference,
    less_controls,
    measured_by,
    sample,
    trained,
)
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement, no_samples
from recombine.reproduction.criteria import Criterion, above, below, effect
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
from recombine.reproduction.tables import (
    fall,
    first_hidden,
    largest_drop,
    last_hidden,
    last_two_less_others,
    listed_attribute,
    stage_slope,
)
from recombine.reproduction.tables import output as at_output


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


# -- claims ----------------------------------------------------------------------------------------------------------


def networks_of(data: Data, code: str, depth: int) -> xarray.Dataset:
    """The part of one code and depth."""
    return data["depth"].sel(encoding=code, depth=depth)


def trained_depths(data: Data, code: str) -> list[int]:
    """Depths that were trained with this code."""
    own = data["depth"].sel(encoding=code)
    return [int(depth) for depth in own["depth"].values if bool(trained(own.sel(depth=depth)).any())]


def by_depth(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code and depth."""
    return measured_by(data["depth"], statistic, "{encoding}, depth {depth}", "encoding", "depth")


def at_usual_depth(data: Data, statistic: Statistic, words: str = "") -> dict[str, Sample]:
    """By code, at the depth that tests are about; with the measure in words."""
    usual = data["depth"].sel(depth=data["depth"].attrs["shown"])
    return measured_by(usual, statistic, f"{{encoding}}{words}", "encoding")


def at_other_depths(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code and depth, at all but the usual depth."""
    usual = data["depth"].attrs["shown"]
    return by_depth({"depth": data["depth"].drop_sel(depth=usual)}, statistic)


def at_each_stage(
    data: Data, words: str, number: Callable[[xarray.Dataset, int], xarray.DataArray], first: int = 1
) -> dict[str, Sample]:
    """By code and stage, at the usual depth: all stages from the first on but the output."""
    cases = {}
    for code in CODES:
        networks = networks_of(data, code, int(data["depth"].attrs["shown"]))
        stages = int(networks["factorization"].notnull().any("seed").sum())
        for stage in range(first, stages - 1):
            cases[f"{code}, {words} {stage}"] = sample(number(networks, stage), networks)
    return cases


# -- C4: probes, C5: factorization -------------------------------------------------------------------------------------


def probe_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Fall of R² on held-out points over the hidden stages."""
    probe = networks["probe_held_out"]
    return first_hidden(probe) - last_hidden(probe)


def factorization_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Fall of F, first hidden stage to output."""
    return fall(networks["factorization"])


def _fall_to(networks: xarray.Dataset, stage: int) -> xarray.DataArray:
    return first_hidden(networks["factorization"]) - networks["factorization"].isel(stage=stage, drop=True)


def _sharper(data: Data, shallow: int, deep: int, name: str = "factorization") -> Sample:
    """Largest drop of a shallow rate-coded network less that of a deep one of the same seed."""
    pair = (networks_of(data, "rate", depth) for depth in (shallow, deep))
    return difference(lambda own: largest_drop(own[name]), *pair)


def sharper_cases(data: Data) -> dict[str, Sample]:
    """The rate code, shallowest less deepest of the depths that Fig. 2 compares."""
    depths = listed_attribute(data["depth"], "compared")
    shallow, deep = min(depths), max(depths)
    return {f"rate, depth {shallow} less depth {deep}": _sharper(data, shallow, deep)} if shallow < deep else {}


def sharper_alternatives(data: Data) -> dict[str, Sample]:
    """Other conventions and depths, and the shallowest rate-coded networks less bump-coded ones."""
    depths = listed_attribute(data["depth"], "compared")
    shallow, deep, deepest = min(depths), max(depths), max(trained_depths(data, "rate"))
    if shallow == deep:
        return {}
    rate, bump = (networks_of(data, code, shallow) for code in ("rate", "bump"))
    others = [depth for depth in depths if shallow < depth < deep] + ([deepest] if deepest > deep else [])
    return {
        "rate, finite differences": _sharper(data, shallow, deep, "factorization_differences"),
        "rate, ratio of means": _sharper(data, shallow, deep, "factorization_of_means"),
        f"depth {shallow}, rate less bump": difference(lambda own: largest_drop(own["factorization"]), rate, bump),
        **{f"rate, depth {shallow} less depth {depth}": _sharper(data, shallow, depth) for depth in others},
    }


# -- C6: volume, C20: cross-terms --------------------------------------------------------------------------------------


def spread_excess(networks: xarray.Dataset) -> xarray.DataArray:
    """Spread of log10 dv about its own region's mean at the output, held-out less kept."""
    return at_output(networks["spread_excess"])


def spread_rise(networks: xarray.Dataset) -> xarray.DataArray:
    """Rise of the spread over the whole grid: its slope over stages, times the steps from first hidden to output."""
    own = networks["spread"].isel(stage=slice(1, None))
    return stage_slope(own) * (own.notnull().sum("stage") - 1)


def late_cross_terms(networks: xarray.Dataset) -> xarray.DataArray:
    """Normalised |g_xy|, last two stages less the others."""
    return last_two_less_others(networks["cross_term"])


def _judged(
    criterion: Criterion, statistic: PerSeed, otherwise: Mapping[str, PerSeed], each_stage: Samples = no_samples
) -> Statement:
    """A number at the usual depth; beside it other measures in words, single stages, other depths, and controls."""

    def alternatives(data: Data) -> dict[str, Sample]:
        cases: dict[str, Sample] = {}
        for words, own in otherwise.items():
            cases |= at_usual_depth(data, own, f", {words}")
        return {**cases, **each_stage(data), **at_other_depths(data, statistic)}

    usual, controls = partial(at_usual_depth, statistic=statistic), partial(less_controls, statistic=statistic)
    return Statement(criterion, usual, alternatives, controls)


_claim = partial(Claim, studies=("depth",), beside=("controls",))
CLAIMS = (
    _claim(
        "C4",
        "Linear probes read the factors worse, the deeper the stage",
        "§3.4, Fig. 2a–b",
        (
            _judged(
                effect("fall of held-out probe R², first to last hidden stage", 0.1),
                probe_fall,
                {"to the output": lambda own: fall(own["probe_held_out"])},
            ),
        ),
    ),
    _claim(
        "C5",
        "Factorization decays with depth; shallow rate-coded networks drop sharper",
        "§3.4, Fig. 2c–d",
        (
            _judged(
                effect("fall of factorization F, first hidden stage to output", 0.02),
                factorization_fall,
                {
                    "finite differences": lambda own: fall(own["factorization_differences"]),
                    "ratio of means": lambda own: fall(own["factorization_of_means"]),
                },
                lambda data: at_each_stage(data, "to stage", _fall_to, first=2),
            ),
            Statement(
                effect("largest one-layer drop of factorization F, shallow less deep networks", 0.02),
                sharper_cases,
                sharper_alternatives,
            ),
        ),
    ),
    _claim(
        "C6",
        "The volume element is distorted with depth, most in the held-out region",
        "§3.4, Fig. 2e–f",
        (
            _judged(
                effect("spread of log10 dv at the output, held-out less kept region (decades)", 0.1),
                spread_excess,
                {"rise of the whole grid's spread along stages": spread_rise},
                lambda data: at_each_stage(
                    data, "stage", lambda own, stage: own["spread_excess"].isel(stage=stage, drop=True)
                ),
            ),
        ),
    ),
    _claim(
        "C16",
        "CNNs of every depth fail to compose",
        "App. E.3, Fig. 10–12",
        (
            Statement(above("held-out error over blank", 0.5), partial(by_depth, statistic="ood_over_blank")),
            Statement(below("held-out accuracy", 0.9), partial(by_depth, statistic="ood_accuracy")),
        ),
        beside=(),
    ),
    _claim(
        "C20",
        "Cross-terms between factors are largest near the output",
        "§3.4",
        (
            _judged(
                effect("normalised cross-term |g_xy|, last two stages less the others", 0.02),
                late_cross_terms,
                {
                    "held-out points": lambda own: last_two_less_others(own["cross_term_held"]),
                    "over g_xx + g_yy": lambda own: last_two_less_others(1 - own["factorization"]),
                },
            ),
        ),
    ),
)
