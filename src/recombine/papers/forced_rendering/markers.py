"""Which number should one look at? (§5)

Networks that differ in decoder, depth, code, hold-out, data and remedy, some of which compose. Every diagnostic of
each, at comparable positions: `value` over (network, marker, position). How well they tell composing networks from
failing ones is scored from that (`markers_scoring`).

Kernels of stages are over every second grid value along an axis where the grid is larger than `LARGEST_SIDE`: their
spectra would cost more than all the rest. They are cosines; of outputs over the background. *Effective rank* is that of
the covariance over the grid, as `diagnose` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import (
    block_contrast,
    effective_rank,
    features,
    gram_matrix,
    interior,
    kernel_agreement,
    kernel_families,
    nonnegative_superposition,
    partial_factorization,
    peak_scores,
    schmidt_spectrum,
    superposition_scores,
)
from recombine.papers.forced_rendering import (
    attention,
    controls,
    depth,
    encoding_width,
    encodings,
    holdouts,
    mlp,
    penalties,
    stripes,
)
from recombine.papers.forced_rendering.attention import MEMORY, one_by_one
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction import tables
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks import Task

COMPOSING = 0.9
"""OOD accuracy from which on a network composes; below it, it fails."""

WHOLE_GRID = "whole grid"
"""Data of networks that were trained on the combinations that count as held out."""

FIRST, MIDDLE, LAST, OUTPUT = "first hidden stage", "middle hidden stage", "last hidden stage", "output"
MEAN, FALL = "mean over hidden stages and output", "first hidden stage less output"


FACTORIZED, VOLUME = "factorization", "volume"
NAMED = (FACTORIZED, VOLUME)
"""Families of markers that the paper names; all others are their rivals."""


class Marker(NamedTuple):
    """A diagnostic in words."""

    title: str
    family: str
    """What it measures: forms of one diagnostic are no rivals of each other."""
    sign: int = 0
    """Of composing less failing networks as the paper predicts it; 0 where it predicts none."""
    staged: bool = True
    """Whether every stage has one, not the output alone."""
    needs_targets: bool = False
    """Whether it needs to be known what is right for held-out combinations."""


FACTORIZATION, SPREAD = "factorization", "spread"
MARKERS = {
    "probe_held_out": Marker("probe R², held-out points", "probe"),
    "probe_in_sample": Marker("probe R², in sample", "probe"),
    FACTORIZATION: Marker("factorization F", FACTORIZED, 1),
    "factorization_held": Marker("F, held-out points", FACTORIZED, 1),
    "factorization_differences": Marker("F by finite differences", FACTORIZED, 1),
    SPREAD: Marker("spread of log10 dv", VOLUME, -1),
    "spread_held": Marker("spread of log10 dv, held-out points", VOLUME, -1),
    "spread_excess": Marker("spread of log10 dv, held-out less kept", VOLUME, -1),
    "contrast": Marker("mean log10 dv, held-out less kept", VOLUME),
    "roughness": Marker("roughness of log10 dv", VOLUME, -1),
    "roughness_held": Marker("roughness of log10 dv, held-out points", VOLUME, -1),
    "cross_term": Marker("cross-terms", FACTORIZED),
    "cross_term_held": Marker("cross-terms, held-out points", FACTORIZED),
    "stripe_index": Marker("stripe index of units", "tuning"),
    "localisation_index": Marker("localisation index of units", "tuning"),
    "effective_rank": Marker("effective rank", "rank"),
    "schmidt_rank": Marker("Schmidt rank of the kernel", "kernel"),
    "single_factor": Marker("PF_Coeff of the kernel", "kernel"),
    "superposed": Marker("superposition of training images, over chance", "superposition", staged=False),
    "memorised": Marker("superposition of own outputs, equal weights", "superposition", staged=False),
    "kernel_margin": Marker("OR kernel over product and radial", "kernel", staged=False),
    "kernel_binary": Marker("agreement with the binary kernel", "kernel", staged=False),
    "block_contrast": Marker("block contrast of the kernel", "kernel", staged=False),
    "several_peaks": Marker("held-out outputs with several peaks", "peaks", staged=False),
    "kernel_distance": Marker("distance of the kernel to the ideal one", "kernel", staged=False, needs_targets=True),
    "id_error": Marker("ID error", "error", staged=False),
    "training_error": Marker("training error", "error", staged=False),
}
"""By name. Probes need held-out factor values, not images; superposition needs training images."""


def predicted_sign(marker: str, position: str) -> int:
    """Of composing less failing networks as the paper predicts it there: what is kept has the smaller fall."""
    sign = MARKERS[marker].sign
    return -sign if position == FALL else sign


MARKER_METRICS = (
    "block_contrast", "effective_rank", "extreme_pixel", "features", "gram_matrix", "hits", "interior",
    "kernel_agreement", "kernel_families", "nonnegative_superposition", "partial_factorization", "peak_scores",
    "schmidt_spectrum", "squared_error", "stage_profile", "superposition_scores",
)  # fmt: skip
"""What markers are measured with."""
KERNEL_STAGES = ("effective_rank", "schmidt_rank", "single_factor")
LARGEST_SIDE = 16
"""Grids larger than this along an axis are thinned for kernels of stages."""
ALONE = ("transformer", "coordinate")
"""Decoders that are measured one network after the other: they need memory for every pixel, or pair of pixels."""


def marker_dims() -> dict[str, Sequence[str]]:
    """Dimensions of what `measured` gives, beside the networks'."""
    return {**stage_dims(), **dict.fromkeys(KERNEL_STAGES, ("stage",))}


def measured(batch: Batch) -> dict[str, Any]:
    """Scores and all markers of finished runs of one arm, those of stages by stage."""
    if batch.spec.decoder.kind in ALONE and (len(batch) > 1 or batch.memory > MEMORY):
        return one_by_one(measured, batch)
    scores, fit = batch.scores, training_fit(batch)
    values = {
        **scores,
        **fit,
        **stage_profile(batch, maps=False),
        **_kernels_of_stages(batch),
        **_of_outputs(batch.task, batch.forward(batch.task.codes(batch.task.grid.points).float()).flatten(2)),
        "id_error": scores["id_over_blank"],
        "training_error": fit["training_over_blank"],
    }
    return {name: value.cpu().numpy() if isinstance(value, Tensor) else value for name, value in values.items()}


def _kernels_of_stages(batch: Batch) -> dict[str, Tensor]:
    """Ranks and PF_Coeff of the kernel of every stage: `[member, stage]`."""
    task = batch.task
    step = 2 if max(task.grid.shape) > LARGEST_SIDE else 1
    points = task.grid.points[(task.grid.indices % step == 0).all(dim=1)].to(batch.device)
    shape = tuple(-(-count // step) for count in task.grid.shape)
    stages = [
        _kernel_of_stage(activations - task.background * (name == "output"), shape)
        for name, activations in features(batch.reader(), points, members=1, memory=batch.memory)
    ]
    return {
        key: torch.stack([stage[key].expand(len(batch)) for stage in stages], dim=1).float() for key in KERNEL_STAGES
    }


def _kernel_of_stage(activations: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    values = activations.double()
    centred = values - values.mean(dim=-2, keepdim=True)
    gram = gram_matrix(values, "cosine")
    return {
        "effective_rank": effective_rank(torch.linalg.eigvalsh(centred @ centred.mT).clamp(min=0)),
        "schmidt_rank": effective_rank(schmidt_spectrum(gram, shape).square()),
        "single_factor": partial_factorization(gram, shape),
    }


def _of_outputs(task: Task, outputs: Tensor) -> dict[str, Tensor]:
    """Superposition, kernels and peaks of outputs at every grid point: `[member, point, pixel]`."""
    device, shape = outputs.device, task.grid.shape
    drawn, held = outputs - task.background, task.held_out.to(device)
    points, inner = task.grid.points.to(device), interior(held, task.grid.shape)
    truth = task.render(task.grid.points).float().flatten(1).to(device) - task.background
    memories = nonnegative_superposition(drawn, truth, points, held, chosen=inner)
    gram, ideal = gram_matrix(drawn, "cosine"), gram_matrix(truth, "cosine")
    images = drawn.unflatten(2, task.image_shape)
    return {
        "superposed": memories["matched"] - memories["mismatched"],
        "memorised": superposition_scores(drawn, points, held)["memorised"],
        "kernel_margin": kernel_families(gram, shape, held, rows=inner).margin,
        "kernel_binary": kernel_agreement(gram, points, held, permutations=0).agreement["binary"],
        "block_contrast": block_contrast(gram, points, held),
        "several_peaks": peak_scores(images, points[:, :2], chosen=inner, dark=task.background == 1)["several"],
        "kernel_distance": (gram - ideal).norm(dim=(-2, -1)) / ideal.norm(),
    }


PLACES: dict[str, Callable[[xarray.DataArray], xarray.DataArray]] = {
    FIRST: tables.first_hidden,
    MIDDLE: tables.middle_hidden,
    LAST: tables.last_hidden,
    OUTPUT: tables.output,
    MEAN: tables.mean_after_input,
    FALL: tables.fall,
}
"""Each position, and how its value is had from those of all stages."""


def at_positions(result: xarray.Dataset) -> xarray.DataArray:
    """Markers at positions, `(…, marker, position)`, from the variables that `measured` gives."""
    rows = []
    for name, marker in MARKERS.items():
        values = result[name]
        parts = [
            place(values) if marker.staged else values.where(position == OUTPUT) for position, place in PLACES.items()
        ]
        rows.append(xarray.concat([part.reset_coords(drop=True) for part in parts], dim="position"))
    return xarray.concat(rows, dim="marker").assign_coords(marker=list(MARKERS), position=list(PLACES))


# -- arms ------------------------------------------------------------------------------------------------------------
# Networks that differ in decoder, depth, code, hold-out, data and remedy: nearly all of them are of other studies.
#
# Some are trained for this study alone, so that every decoder but the transformer has networks that compose and
# networks that fail with one code: MLPs and other CNNs with stripes, MLPs on random hold-outs, coordinate MLPs on few
# bumps. Of MLPs with stripes those without bumps compose and those with bumps fail (seen on seed 0).


FEW_BUMPS = ("pick:10", "percent:1", "percent:5")
"""Training sets of coordinate MLPs that learn them and draw little else right."""
SOME_DEPTHS = (2, 6, 8)
SOME_VARIANCES = (1, 11)
"""Of the bump code."""
SOME_MLPS = (3, 5, 7)


class Settings(
    holdouts.Settings, attention.Settings, mlp.MLPSettings, depth.Settings, encoding_width.Settings,
    stripes.StripeSettings, penalties.PenaltySettings,
):  # fmt: skip
    """Those of the studies whose networks it measures, and how many of each."""

    marker_seeds: Seeds = 8
    """Networks of each arm; never more than `seeds`."""
    marker_bumps: Count = 100
    """Bumps beside the stripes of networks that are trained for this study alone."""
    marker_variety: bool = True
    """Whether all arms are measured; else a failing and a composing one of each decoder."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {"marker_seeds": 2, "marker_bumps": 30, "marker_variety": False}
    }  # fmt: skip


def _few(preset: Settings) -> Iterator[RunSpec]:
    """A failing and a composing network of each decoder but the transformer."""
    yield from _of(controls, preset, lambda arm: arm not in controls.INITIAL)
    plain = preset.mlp_spec("bump", preset.mlp_depths[0])
    yield from (plain, _changed(plain, holdout="random"))
    coordinate = _coordinate(preset)
    yield from (coordinate, _changed(coordinate, training=FEW_BUMPS[0]))


def _varied(preset: Settings) -> Iterator[RunSpec]:
    yield from _cnns(preset)
    yield from _mlps(preset)
    yield from _of(penalties, preset, lambda arm, vectors: True)
    yield from _of(controls, preset, lambda arm: arm == controls.LOW_RANK_WHOLE)
    kept = {attention.BASE, attention.RATE, attention.CORNER, *map(attention.of_depth, preset.coordinate_depths)}
    yield from _of(attention, preset, lambda name, variant: name == attention.COORDINATE and variant in kept)
    yield from (_changed(_coordinate(preset), training=few) for few in FEW_BUMPS)
    yield from _of(attention, preset, lambda name, variant: (name, variant) == (attention.TRANSFORMER, attention.BASE))


def _cnns(preset: Settings) -> Iterator[RunSpec]:
    yield from _of(encodings, preset, lambda code, holdout: holdout in (encodings.BOX, encodings.CORNER))
    yield from _of(depth, preset, lambda code, depth: depth in SOME_DEPTHS)
    yield from _of(holdouts, preset, lambda kind, size, holdout: size == preset.size and holdout != "cross")
    yield from _of(stripes, preset, lambda family, bumps: True)
    yield from _of(encoding_width, preset, lambda variance: variance in SOME_VARIANCES)
    yield from _of(controls, preset, lambda arm: arm == controls.WHOLE)
    for number in SOME_DEPTHS:
        yield preset.striped_spec(preset.marker_bumps, decoder=preset.cnn(number))
    yield preset.striped_spec(preset.marker_bumps, encoding="onehot")
    yield preset.striped_spec(preset.marker_bumps, holdout="corner")
    yield _changed(preset.spec(encoding="rate"), region="whole")


def _mlps(preset: Settings) -> Iterator[RunSpec]:
    yield from _of(mlp, preset, lambda code, decoder, depth: decoder == mlp.MLP_ARM and depth in SOME_MLPS)
    for number in SOME_MLPS[:2]:
        plain = preset.mlp_spec("bump", number)
        yield _changed(plain, region="whole")
        for bumps in (0, preset.marker_bumps):
            yield _changed(plain, isolated=True, training=f"pick:{bumps}")
        yield from (_changed(plain, holdout=holdout) for holdout in ("random", "corner"))


def _of(study: ModuleType, preset: Settings, kept: Callable[..., bool]) -> Iterator[RunSpec]:
    """Specs of another study's arms, by their labels."""
    return (arm.spec for arm in study.STUDY.arms(preset) if kept(*arm.labels))


def _coordinate(preset: Settings) -> RunSpec:
    """The coordinate MLP on the paper's task."""
    labels = (attention.COORDINATE, attention.BASE)
    return next(_of(attention, preset, lambda *own: own == labels))


def _changed(spec: RunSpec, **task: Any) -> RunSpec:
    """The same on another task."""
    return spec.replace(task=spec.task.replace(**task))


DECODERS = {
    "cnn": "CNN", "mlp": "MLP", "low_rank": "low-rank", "coordinate": "coordinate MLP", "transformer": "transformer"
}  # fmt: skip
PENALTY_NAMES = {
    (False, False): "",
    (True, False): "entropy",
    (False, True): "variance",
    (True, True): "both penalties",
}
NO_REMEDY, ALL_KEPT = "no remedy", "all bumps"


def condition(spec: RunSpec) -> dict[str, Any]:
    """Decoder, depth, code, hold-out, data and remedy of a run, and all of them as the name of its arm."""
    task, decoder = spec.task, spec.decoder
    penalties = PENALTY_NAMES[spec.recipe.entropy > 0, spec.recipe.variance > 0]
    if penalties and getattr(decoder, "vectors", "unit") != "unit":
        penalties += " on raw vectors"
    kept = int((~task.held_out).sum())
    number = task.training.count(kept)
    some = f"{number} bumps" if number < kept else ALL_KEPT
    parts: dict[str, Any] = {
        "decoder": DECODERS.get(decoder.kind, decoder.kind),
        "depth": getattr(decoder, "depth", 0),
        "code": str(task.encoding),
        "holdout": f"{task.holdout.kind} ({task.held_out.float().mean().item():.0%})",
        "data": WHOLE_GRID if task.region == "whole" else some,
        "remedy": penalties or ("stripes" if task.isolated else NO_REMEDY),
    }
    words = [parts["decoder"], f"depth {parts['depth']}", f"N = {task.image_shape[0]}", *list(parts.values())[2:]]
    return {**parts, "arm": ", ".join(words)}


NETWORK = (
    "ood_accuracy", "ood_over_blank", "id_accuracy", "id_over_blank", "training_over_blank", "training_accuracy",
    TRAINED,
)  # fmt: skip
"""Scores that are kept of every network."""


class MarkerStudy(Study[Settings]):
    """Diagnostics of networks that compose and of networks that fail."""

    name: ClassVar[str] = "markers"
    question: ClassVar[str] = "Which number tells whether a network composes?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = MARKER_METRICS

    def arms(self, preset: Settings) -> list[Arm]:
        specs = _varied(preset) if preset.marker_variety else _few(preset)
        once, seeds = {spec.digest: spec for spec in specs}, min(preset.marker_seeds, preset.seeds)
        return [Arm((condition(spec)["arm"],), spec, seeds=seeds) for spec in once.values()]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(trials, ("arm",), measured, marker_dims())
        table = xarray.Dataset({"value": at_positions(result), **{name: result[name] for name in NETWORK}})
        stacked = table.stack(network=("arm", "seed"))
        names, seeds = (np.asarray(stacked[name].values) for name in ("arm", "seed"))
        conditions = [condition(trials[str(name)][0].spec) for name in names]
        labels: dict[str, Any] = {key: ("network", [own[key] for own in conditions]) for key in conditions[0]}
        labels |= {
            "seed": ("network", seeds),
            "title": ("marker", [marker.title for marker in MARKERS.values()]),
            "needs_targets": ("marker", [marker.needs_targets for marker in MARKERS.values()]),
        }
        return (
            stacked.drop_vars(["network", "arm", "seed"])
            .transpose("network", ...)
            .assign_coords(labels)
            .assign_attrs(base_attributes(trials, size=trials.preset.size))
        )


STUDY = MarkerStudy()
