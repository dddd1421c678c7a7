"""Where inside the network does factorization break? (§3.4, Fig. 2, 5, 10–12)

CNNs of several depths are trained on bump and rate codes. We measure their scores, and the geometry, probes and tuning
of every stage. Claims are tested on CNNs of the default depth (4 in the paper preset), with other depths as
alternatives. "Stages" are the hidden stages and the output. The poster calls the rate code a ramp code; networks with
the population form of a ramp code (a graded thermometer) are alternatives.

The published scripts take F from differences over one pixel, which is as wide as a bump. `factorization_by_step` has F
from differences over one pixel and over fractions of it, which approach the exact F.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray

from recombine.metrics import local_factorization, neighbour_metric
from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import PerSeed, Statistic, difference, measured_by
from recombine.reproduction import measuring, tables
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement, no_samples
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.preset import AnyNumber, Seeds, Several
from recombine.reproduction.study import Arm, Study, Trials

RAMP = "ramp"


class Settings(BumpPreset):
    depths: Several = (2, 3, 4, 5, 6)
    """Depths at which bump and rate codes are compared (Fig. 2)."""
    extra_depths: AnyNumber = (7, 8, 9, 10)
    """Additional depths (Fig. 10–12)."""
    deep_rate_seeds: Seeds = 72
    """Number of seeds for rate-coded networks deeper than the default; about one in eight of them does not learn."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"depths": (2, 3), "extra_depths": (), "deep_rate_seeds": 2}}


STEPS = (1.0, 0.5, 0.25, 0.125)
"""Steps of finite differences, in pixels."""


class DepthStudy(Study[Settings]):
    name: ClassVar[str] = "depth"
    question: ClassVar[str] = "Where inside the network does factorization break, and does depth help?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = ("local_factorization", "neighbour_metric", "stage_profile")

    def arms(self, preset: Settings) -> list[Arm]:
        def seeds(code: str, depth: int) -> int | None:
            return preset.deep_rate_seeds if code == "rate" and depth > preset.depth else None

        arms = [
            Arm((code, depth), preset.spec(encoding=code, decoder=preset.cnn(depth)), seeds=seeds(code, depth))
            for code in CODES
            for depth in dict.fromkeys((*preset.depths, *preset.extra_depths))
        ]
        ramps = {depth: preset.spec(encoding=RAMP, decoder=preset.cnn(depth)) for depth in preset.depths}
        return arms + [Arm((RAMP, depth), spec, extra=True) for depth, spec in ramps.items()]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        size, depths, default = trials.preset.size, trials.preset.depths, trials.preset.depth
        shown = default if default in depths else depths[-1]
        stepped = [trials.preset.cnn(depth) for depth in (min(depths), shown, max(depths))]

        def measured(batch: measuring.Batch) -> dict[str, object]:
            by_step = {"factorization_by_step": factorization_by_step(batch)} if batch.spec.decoder in stepped else {}
            own = {**measuring.stage_profile(batch), **by_step, "drawing": measuring.drawings(batch)}
            return {**batch.scores, **own}

        inner = {**measuring.stage_dims(), "factorization_by_step": ("stage", "step"), "drawing": measuring.DRAWING}
        result = measuring.tabulate(trials, ("encoding", "depth"), measured, inner).assign_coords(step=list(STEPS))
        surface = _surface(measuring.Batch([trials.pictured_run("bump", shown)], trials.device))
        result = measuring.with_positions(result, trials.first.spec, "log_volume").assign(surface=surface)
        return result.assign_attrs(measuring.base_attributes(trials, size=size, compared=list(depths), shown=shown))


def factorization_by_step(batch: measuring.Batch) -> torch.Tensor:
    """Return F from finite differences over each of the `STEPS`, `[member, stage, step]`.

    On large grids, F is averaged over every second value of each factor, since a step takes five forward passes.
    """
    grid, reader = batch.task.grid, batch.reader()
    chosen = (grid.indices % (2 if max(grid.shape) > 16 else 1) == 0).all(dim=1).nonzero().flatten()
    columns = []
    for step in STEPS:
        stages = neighbour_metric(reader, grid, chosen, batch.device, members=1, fraction=step, memory=batch.memory)
        columns.append(torch.stack([local_factorization(own).nanmean(dim=-1) for own in stages.values()], dim=1))
    return torch.stack(columns, dim=2).float()


def _surface(batch: measuring.Batch) -> tuple[tuple[str, ...], np.ndarray]:
    """Project a trained network's outputs over the grid onto their first three principal directions (Fig. 5)."""
    task = batch.task
    flat = batch.outputs(task.grid.points)[0].flatten(1).double()
    centred = flat - flat.mean(dim=0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    projected = (centred @ directions[:3].mT).reshape(*task.grid.shape, 3).permute(1, 0, 2)
    return ("y", "x", "direction"), projected.float().numpy()


STUDY = DepthStudy()


def probe_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the drop in the probe's R² on held-out points from the first to the last hidden stage."""
    probe = networks["probe_held_out"]
    return tables.first_hidden(probe) - tables.last_hidden(probe)


def factorization_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the drop in F from the first hidden stage to the output."""
    return tables.fall(networks["factorization"])


def deviation_excess(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the output's RMS deviation of log10 dv from the whole grid's mean, held-out minus kept region."""
    return tables.output(networks["deviation_excess"])


def spread_excess(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the output's spread of log10 dv around its regional mean, held-out minus kept (not held-out) region."""
    return tables.output(networks["spread_excess"])


def spread_rise(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the increase in whole-grid spread: slope per stage times the steps from first hidden stage to output."""
    own = networks["spread"].isel(stage=slice(1, None))
    return tables.stage_slope(own) * (own.notnull().sum("stage") - 1)


def late_cross_terms(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the normalised |g_xy| of the last two stages minus that of the other stages."""
    return tables.last_two_less_others(networks["cross_term"])


def by_depth(networks: xarray.Dataset) -> dict[int, xarray.Dataset]:
    """Return the trained networks for one code, keyed by depth."""
    every = {int(depth): networks.sel(depth=depth) for depth in networks["depth"].values}
    return {depth: own for depth, own in every.items() if samples.trained(own).any()}


def _coded(networks: xarray.Dataset, *codes: str) -> xarray.Dataset:
    """Return the networks with these codes, as far as they were trained."""
    return networks.sel(encoding=[code for code in codes if code in networks["encoding"]])


def _by_depth(networks: xarray.Dataset, statistic: Statistic) -> dict[str, Sample]:
    return measured_by(networks, statistic, "{encoding}, depth {depth}", "encoding", "depth")


def _at_default_depth(
    data: Data, statistic: Statistic, words: str = "", codes: tuple[str, ...] = CODES
) -> dict[str, Sample]:
    shown = _coded(data["depth"].sel(depth=data["depth"].attrs["shown"]), *codes)
    return measured_by(shown, statistic, f"{{encoding}}{words}", "encoding")


def _at_each_stage(data: Data, words: str, values: PerSeed, first: int = 1) -> dict[str, Sample]:
    """Return one sample per code and stage at the default depth, from stage `first` to the one before the output."""
    shown = _coded(data["depth"].sel(depth=data["depth"].attrs["shown"]), *CODES)
    try:
        shown = shown.assign(own=values(shown))
    except KeyError:  # of an earlier version
        return {}
    stages = int(shown["factorization"].notnull().any(["encoding", "seed"]).sum())
    numbered = shown.assign_coords(stage=np.arange(shown.sizes["stage"]))
    hidden = numbered.isel(stage=slice(first, stages - 1))
    return measured_by(hidden, "own", f"{{encoding}}, {words} {{stage}}", "encoding", "stage")


def _judged(
    criterion: Criterion, statistic: PerSeed, otherwise: Mapping[str, PerSeed], each_stage: Samples = no_samples
) -> tuple[Statement, Statement]:
    """Return a statement about the default depth, and one that the statistic is larger in failing networks.

    Alternatives of the first use other measures, single stages or other depths.
    """

    def alternatives(data: Data) -> dict[str, Sample]:
        cases: dict[str, Sample] = {}
        for words, own in otherwise.items():
            cases |= _at_default_depth(data, own, f", {words}")
        others = data["depth"].drop_sel(depth=data["depth"].attrs["shown"])
        cases |= {**each_stage(data), **_by_depth(others, statistic)}
        return {**cases, **_at_default_depth(data, statistic, codes=(RAMP,))}

    described = Statement(criterion, partial(_at_default_depth, statistic=statistic), alternatives)
    return described, samples.specific(criterion.statistic, criterion.ends[0], statistic)


def _by_step(statistic: Callable[[xarray.DataArray], xarray.DataArray]) -> dict[str, PerSeed]:
    """Return a statistic of F from finite differences over each step, by words."""

    def of(networks: xarray.Dataset, step: float) -> xarray.DataArray:
        return statistic(networks["factorization_by_step"].sel(step=step))

    return {f"finite differences over {step:g} px": partial(of, step=step) for step in STEPS}


def _sharper(data: Data, *, alternatives: bool) -> dict[str, Sample]:
    """Return the largest drop in F for the shallowest rate-coded networks of Fig. 2 minus that for deeper networks."""
    result = data["depth"]
    depths = tables.listed_attribute(result, "compared")
    shallow, deep = min(depths), max(depths)
    if shallow == deep:
        return {}
    drop = partial(tables.largest_drop, from_input=True)

    def exact(networks: xarray.Dataset) -> xarray.DataArray:
        return drop(networks["factorization"])

    def less(words: str, depth: int, statistic: PerSeed = exact, other: str = "rate") -> dict[str, Sample]:
        pair = (result.sel(encoding=code, depth=own) for code, own in (("rate", shallow), (other, depth)))
        return samples.case(words, partial(difference, statistic, *pair))

    if not alternatives:
        return less(f"rate, depth {shallow} less depth {deep}", deep)
    otherwise: dict[str, PerSeed] = {
        **_by_step(drop),
        "ratio of means": lambda own: drop(own["factorization_of_means"]),
        "from the first hidden stage on": lambda own: tables.largest_drop(own["factorization"]),
    }
    cases: dict[str, Sample] = {}
    for words, own in otherwise.items():
        cases |= less(f"rate, {words}", deep, own)
    cases |= less(f"depth {shallow}, rate less bump", shallow, other="bump")
    deepest = max(by_depth(result.sel(encoding="rate")))
    for depth in [own for own in depths if shallow < own < deep] + ([deepest] if deepest > deep else []):
        cases |= less(f"rate, depth {shallow} less depth {depth}", depth)
    return cases


_claim = partial(Claim, studies=("depth",), beside=("controls",))
CLAIMS = (
    _claim(
        "C4",
        "Linear probes read the factors worse, the deeper the stage",
        "§3.4, Fig. 2a–b",
        _judged(
            effect("fall of held-out probe R², first to last hidden stage", 0.1),
            probe_fall,
            {"to the output": lambda own: tables.fall(own["probe_held_out"])},
        ),
    ),
    _claim(
        "C5",
        "Factorization decays with depth; shallow rate-coded networks drop sharper",
        "§3.4, Fig. 2c–d",
        (
            *_judged(
                effect("fall of factorization F, first hidden stage to output", 0.02),
                factorization_fall,
                {
                    **_by_step(tables.fall),
                    "ratio of means": lambda own: tables.fall(own["factorization_of_means"]),
                },
                partial(
                    _at_each_stage,
                    words="to stage",
                    values=lambda own: tables.first_hidden(own["factorization"]) - own["factorization"],
                    first=2,
                ),
            ),
            Statement(
                effect("largest drop of factorization F from one stage to the next, shallow less deep networks", 0.02),
                partial(_sharper, alternatives=False),
                partial(_sharper, alternatives=True),
            ),
        ),
    ),
    _claim(
        "C6",
        "The volume element is distorted with depth, most in the held-out region",
        "§3.4, Fig. 2e–f",
        _judged(
            effect(
                "RMS deviation of log10 dv from its mean over the grid, at the output, held-out less kept region", 0.1
            ),
            deviation_excess,
            {
                "about each region's own mean": spread_excess,
                "rise of the whole grid's spread along stages": spread_rise,
            },
            partial(_at_each_stage, words="stage", values=lambda own: own["deviation_excess"]),
        ),
    ),
    _claim(
        "C16",
        "CNNs of every depth fail to compose",
        "App. E.3, Fig. 10–12",
        samples.held_out_statements(
            samples.FAILS, lambda data, score: _by_depth(_coded(data["depth"], *CODES), f"ood_{score}")
        ),
        beside=(),
    ),
    _claim(
        "C20",
        "Cross-terms between factors are largest near the output",
        "§3.4",
        _judged(
            effect("normalised cross-term |g_xy|, last two stages less the others", 0.02),
            late_cross_terms,
            {
                "held-out points": lambda own: tables.last_two_less_others(own["cross_term_held"]),
                "over g_xx + g_yy": lambda own: tables.last_two_less_others(1 - own["factorization"]),
            },
        ),
    ),
)
