"""Which metric predicts whether a network composes? (§5)

A *marker* is a metric used to predict composition; a *position* is a stage or a summary of stages. The networks differ
in decoder, depth, code, hold-out, data and remedy, and only some compose. The result contains every marker of every
network at every position (`value`). `markers_ranking` scores how well markers separate composing from failing networks.

For stage kernels, grids with a side above 16 are subsampled by two along each axis, because computing their spectra
would otherwise dominate the cost. Kernels are cosine similarities of activations (for outputs, after subtracting the
background). *Effective rank* is that of the covariance over the grid, as in `diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
import xarray
from torch import Tensor

from recombine import metrics
from recombine.papers.forced_rendering import attention, controls, depth, encoding_width, encodings, holdouts, mlp
from recombine.papers.forced_rendering.penalties import BOXED, PenaltySettings
from recombine.papers.forced_rendering.penalties import STUDY as PENALTIES
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.samples import LOW_RANK_WHOLE, WHOLE
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import STUDY as STRIPES
from recombine.papers.forced_rendering.stripes import StripeSettings
from recombine.reproduction import tables
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks import Task

FIRST, MIDDLE, LAST, OUTPUT = "first hidden stage", "middle hidden stage", "last hidden stage", "output"
MEAN, FALL = "mean over hidden stages and output", "first hidden stage less output"
PLACES: dict[str, Callable[[xarray.DataArray], xarray.DataArray]] = {
    FIRST: tables.first_hidden,
    MIDDLE: tables.middle_hidden,
    LAST: tables.last_hidden,
    OUTPUT: tables.output,
    MEAN: tables.mean_after_input,
    FALL: tables.fall,
}
"""Positions, mapped to functions that compute their values from those of all stages."""


class Marker(NamedTuple):
    """A metric used to predict composition."""

    title: str
    family: str
    """Markers of the same family are variants of one another and are not compared as rivals."""
    sign: int = 0
    """Sign predicted by the paper for composing minus failing networks, or 0 if it makes no prediction."""
    staged: bool = True
    """Whether it has a value at every stage, rather than only at the output."""
    needs_targets: bool = False
    """Whether it needs the true images of held-out combinations."""


FACTORIZATION, SPREAD = "factorization", "spread"
NAMED = ("factorization", "volume")
"""Marker families named in the paper; all others are rivals."""
MARKERS = {
    "probe_held_out": Marker("probe R², held-out points", "probe"),
    "probe_in_sample": Marker("probe R², in sample", "probe"),
    FACTORIZATION: Marker("factorization F", "factorization", 1),
    "factorization_held": Marker("F, held-out points", "factorization", 1),
    "factorization_differences": Marker("F by finite differences", "factorization", 1),
    SPREAD: Marker("spread of log10 dv", "volume", -1),
    "spread_held": Marker("spread of log10 dv, held-out points", "volume", -1),
    "spread_excess": Marker("spread of log10 dv, held-out less kept", "volume", -1),
    "contrast": Marker("mean log10 dv, held-out less kept", "volume"),
    "roughness": Marker("roughness of log10 dv", "volume", -1),
    "roughness_held": Marker("roughness of log10 dv, held-out points", "volume", -1),
    "cross_term": Marker("cross-terms", "factorization"),
    "cross_term_held": Marker("cross-terms, held-out points", "factorization"),
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
"""Markers by name. Probes need held-out factor values but no images; superposition needs training images."""


def predicted_sign(marker: str, position: str) -> int:
    """Return the predicted sign of the difference composing − failing networks, reversed for the fall over stages."""
    sign = MARKERS[marker].sign
    return -sign if position == FALL else sign


def at_positions(result: xarray.Dataset) -> xarray.DataArray:
    """Return marker values `(…, marker, position)` from the variables returned by `measured`."""
    values = result[list(MARKERS)].to_dataarray("marker")
    places = xarray.concat([place(values) for place in PLACES.values()], dim="position")
    staged = xarray.DataArray([marker.staged for marker in MARKERS.values()], dims="marker")
    places = places.assign_coords(position=list(PLACES)).transpose("marker", "position", ...)
    return places.where(staged | (places["position"] == OUTPUT))


KERNEL_STAGES = ("effective_rank", "schmidt_rank", "single_factor")


def measured(batch: Batch) -> dict[str, Any]:
    """Return scores and all markers of the finished runs of an arm (experimental condition)."""
    # The memory used by these decoders grows with the number of pixels or of pixel pairs.
    if batch.spec.decoder.kind in ("transformer", "coordinate") and (len(batch) > 1 or batch.memory > attention.MEMORY):
        return attention.one_by_one(measured, batch)
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
    """Return the ranks and PF_Coeff of every stage's kernel, `[member, stage]`."""
    task = batch.task
    step = 2 if max(task.grid.shape) > 16 else 1
    points = task.grid.points[(task.grid.indices % step == 0).all(dim=1)].to(batch.device)
    shape = tuple(-(-count // step) for count in task.grid.shape)
    stages = []
    for name, activations in metrics.features(batch.reader(), points, members=1, memory=batch.memory):
        values = (activations - task.background * (name == "output")).double()
        centred = values - values.mean(dim=-2, keepdim=True)
        gram = metrics.gram_matrix(values, "cosine")
        stage = (
            metrics.effective_rank(torch.linalg.eigvalsh(centred @ centred.mT).clamp(min=0)),
            metrics.effective_rank(metrics.schmidt_spectrum(gram, shape).square()),
            metrics.partial_factorization(gram, shape),
        )
        stages.append(torch.stack([value.expand(len(batch)) for value in stage]).float())
    return dict(zip(KERNEL_STAGES, torch.stack(stages, dim=-1), strict=True))


def _of_outputs(task: Task, outputs: Tensor) -> dict[str, Tensor]:
    """Return superposition, kernel and peak scores from outputs at every grid point, `[member, point, pixel]`."""
    device, shape = outputs.device, task.grid.shape
    drawn, held = outputs - task.background, task.held_out.to(device)
    points, inner = task.grid.points.to(device), metrics.interior(held, shape)
    truth = task.render(task.grid.points).float().flatten(1).to(device) - task.background
    memories = metrics.nonnegative_superposition(drawn, truth, points, held, chosen=inner)
    gram, ideal = metrics.gram_matrix(drawn, "cosine"), metrics.gram_matrix(truth, "cosine")
    images, dark = drawn.unflatten(2, task.image_shape), task.background == 1
    return {
        "superposed": memories["matched"] - memories["mismatched"],
        "memorised": metrics.superposition_scores(drawn, points, held)["memorised"],
        "kernel_margin": metrics.kernel_families(gram, shape, held, rows=inner).margin,
        "kernel_binary": metrics.kernel_agreement(gram, points, held, permutations=0).agreement["binary"],
        "block_contrast": metrics.block_contrast(gram, points, held),
        "several_peaks": metrics.peak_scores(images, points[:, :2], chosen=inner, dark=dark)["several"],
        "kernel_distance": (gram - ideal).norm(dim=(-2, -1)) / ideal.norm(),
    }


# Nearly all networks come from other studies. Some are trained only for this one, so that every decoder except the
# transformer has composing and failing networks with the same code: MLPs and other CNNs with stripes, MLPs with random
# hold-outs, and coordinate MLPs on few bumps. MLPs trained on stripes alone compose, and those trained on stripes and
# bumps fail (observed on seed 0).

FEW_BUMPS = ("pick:10", "percent:1", "percent:5")
"""Training sets that coordinate MLPs learn without generalising."""
SOME_DEPTHS = (2, 6, 8)
SOME_MLPS = (3, 5, 7)


class Settings(
    holdouts.Settings, attention.Settings, mlp.MLPSettings, depth.Settings, encoding_width.Settings,
    StripeSettings, PenaltySettings,
):  # fmt: skip
    marker_seeds: Seeds = 8
    """Number of networks per arm (experimental condition), at most `seeds`."""
    marker_bumps: Count = 100
    """Number of bumps added to the stripes for networks trained only for this study."""
    marker_variety: bool = True
    """Whether to measure all arms rather than one failing and one composing arm per decoder."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"marker_seeds": 2, "marker_bumps": 30, "marker_variety": False}}


def _of(study: Study[Any], preset: Settings, kept: Callable[..., bool] = lambda *labels: True) -> Iterator[RunSpec]:
    """Yield the specs of another study's arms whose labels satisfy `kept`."""
    return (arm.spec for arm in study.arms(preset) if kept(*arm.labels))


def _changed(spec: RunSpec, **task: Any) -> RunSpec:
    """Return the same run spec with a modified task."""
    return spec.replace(task=spec.task.replace(**task))


def _few(preset: Settings, coordinate: RunSpec) -> Iterator[RunSpec]:
    """Yield a failing and a composing network for each decoder except the transformer."""
    yield from _of(controls.STUDY, preset)
    plain = preset.mlp_spec("bump", preset.mlp_depths[0])
    yield from (plain, _changed(plain, holdout="random"))
    yield from (coordinate, _changed(coordinate, training=FEW_BUMPS[0]))


def _varied(preset: Settings, coordinate: RunSpec) -> Iterator[RunSpec]:
    yield from _of(encodings.STUDY, preset, lambda code, holdout: holdout in (encodings.BOX, encodings.CORNER))
    yield from _of(depth.STUDY, preset, lambda code, depth: code in CODES and depth in SOME_DEPTHS)
    omitted = ("cross", holdouts.BOTTOM_LEFT)
    yield from _of(holdouts.STUDY, preset, lambda kind, size, holdout: size == preset.size and holdout not in omitted)
    yield from _of(STRIPES, preset)
    yield from _of(encoding_width.STUDY, preset, lambda variance: variance in (1, 11))
    yield from _of(controls.STUDY, preset, lambda arm: arm == WHOLE)
    for number in SOME_DEPTHS:
        yield preset.striped_spec(preset.marker_bumps, decoder=preset.cnn(number))
    yield preset.striped_spec(preset.marker_bumps, encoding="onehot")
    yield preset.striped_spec(preset.marker_bumps, holdout="corner")
    yield _changed(preset.spec(encoding="rate"), region="whole")

    yield from _of(mlp.STUDY, preset, lambda code, decoder, depth: decoder == mlp.MLP_ARM and depth in SOME_MLPS)
    for number in SOME_MLPS[:2]:
        plain = preset.mlp_spec("bump", number)
        yield _changed(plain, region="whole")
        for bumps in (0, preset.marker_bumps):
            yield _changed(plain, isolated=True, training=f"pick:{bumps}")
        yield from (_changed(plain, holdout=holdout) for holdout in ("random", "corner"))

    yield from _of(PENALTIES, preset, lambda arm, vectors: vectors not in BOXED)
    yield from _of(controls.STUDY, preset, lambda arm: arm == LOW_RANK_WHOLE)
    kept = {attention.BASE, attention.RATE, attention.CORNER, *(f"depth {own}" for own in preset.coordinate_depths)}
    yield from _of(attention.STUDY, preset, lambda name, variant: name == attention.COORDINATE and variant in kept)
    yield from (_changed(coordinate, training=few) for few in FEW_BUMPS)
    yield from _of(attention.STUDY, preset, lambda *labels: labels == (attention.TRANSFORMER, attention.BASE))


DECODERS = {
    "cnn": "CNN", "mlp": "MLP", "low_rank": "low-rank", "coordinate": "coordinate MLP", "transformer": "transformer"
}  # fmt: skip


def condition(spec: RunSpec) -> dict[str, Any]:
    """Return a run's decoder, depth, code, hold-out, data and remedy, and its arm's name, which combines them."""
    task, decoder = spec.task, spec.decoder
    used = [penalty.kind for penalty in spec.penalties]
    penalties = "both penalties" if len(used) == 2 else "".join(used)
    if penalties and getattr(decoder, "vectors", "unit") != "unit":
        penalties += " on raw vectors"
    kept = int((~task.held_out).sum())
    number = task.training.count(kept)
    bumps = f"{number} bumps" if number < kept else "all bumps"
    parts: dict[str, Any] = {
        "decoder": DECODERS.get(decoder.kind, decoder.kind),
        "depth": getattr(decoder, "depth", 0),
        "code": str(task.encoding),
        "holdout": f"{task.holdout.kind} ({task.held_out.float().mean().item():.0%})",
        "data": WHOLE if task.region == "whole" else bumps,
        "remedy": penalties or ("stripes" if task.isolated else "no remedy"),
    }
    words = [parts["decoder"], f"depth {parts['depth']}", f"N = {task.image_shape[0]}", *list(parts.values())[2:]]
    return {**parts, "arm": ", ".join(words)}


class MarkerStudy(Study[Settings]):
    name: ClassVar[str] = "markers"
    question: ClassVar[str] = "Which metric predicts whether a network composes?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "block_contrast", "effective_rank", "extreme_pixel", "features", "gram_matrix", "hits", "interior",
        "kernel_agreement", "kernel_families", "nonnegative_superposition", "partial_factorization", "peak_scores",
        "schmidt_spectrum", "squared_error", "stage_profile", "superposition_scores",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        base = (attention.COORDINATE, attention.BASE)
        coordinate = next(_of(attention.STUDY, preset, lambda *labels: labels == base))
        specs = (_varied if preset.marker_variety else _few)(preset, coordinate)
        once, seeds = {spec.digest: spec for spec in specs}, min(preset.marker_seeds, preset.seeds)
        return [Arm((condition(spec)["arm"],), spec, seeds=seeds) for spec in once.values()]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(trials, ("arm",), measured, {**stage_dims(), **dict.fromkeys(KERNEL_STAGES, ("stage",))})
        names = ["ood_accuracy", "ood_over_blank", "id_accuracy", "id_over_blank"]
        names += ["training_over_blank", "training_accuracy", TRAINED]
        table = xarray.Dataset({"value": at_positions(result), **{name: result[name] for name in names}})
        stacked = table.stack(network=("arm", "seed")).reset_index("network").transpose("network", ...)
        conditions = [condition(trials[str(name)][0].spec) for name in stacked["arm"].values]
        labels: dict[str, Any] = {key: ("network", [own[key] for own in conditions]) for key in conditions[0]}
        for key in ("title", "needs_targets"):
            labels[key] = ("marker", [getattr(marker, key) for marker in MARKERS.values()])
        return stacked.assign_coords(labels).assign_attrs(base_attributes(trials, size=trials.preset.size))


STUDY = MarkerStudy()
