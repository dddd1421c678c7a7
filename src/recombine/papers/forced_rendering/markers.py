"""Which number should one look at? (§5)

Networks that differ in decoder, depth, code, hold-out, data and remedy, some of which compose. Every diagnostic of
each, at comparable positions: `value` over (network, marker, position). How well they tell composing networks from
failing ones is scored from that (`scoring`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import xarray

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
from recombine.papers.forced_rendering.markers_measuring import (
    MARKER_METRICS,
    MARKERS,
    WHOLE_GRID,
    at_positions,
    marker_dims,
    measured,
)
from recombine.reproduction.measuring import TRAINED, base_attributes, tabulate
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

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
