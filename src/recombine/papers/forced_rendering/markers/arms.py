"""Networks that differ in decoder, depth, code, hold-out, data and remedy: nearly all of them are of other studies.

Some are trained for this study alone, so that every decoder but the transformer has networks that compose and networks
that fail with one code: MLPs and other CNNs with stripes, MLPs on random hold-outs, coordinate MLPs on few bumps. Of
MLPs with stripes those without bumps compose and those with bumps fail (seen on seed 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from recombine.papers.forced_rendering.attention import labels as attention
from recombine.papers.forced_rendering.attention.study import STUDY as ATTENTION
from recombine.papers.forced_rendering.attention.study import Settings as AttentionSettings
from recombine.papers.forced_rendering.controls import labels as controls
from recombine.papers.forced_rendering.controls.study import STUDY as CONTROLS
from recombine.papers.forced_rendering.depth.study import STUDY as DEPTH
from recombine.papers.forced_rendering.depth.study import Settings as DepthSettings
from recombine.papers.forced_rendering.encoding_width.study import STUDY as ENCODING_WIDTH
from recombine.papers.forced_rendering.encoding_width.study import Settings as EncodingWidthSettings
from recombine.papers.forced_rendering.encodings import labels as encodings
from recombine.papers.forced_rendering.encodings.study import STUDY as ENCODINGS
from recombine.papers.forced_rendering.holdouts.study import STUDY as HOLDOUTS
from recombine.papers.forced_rendering.holdouts.study import Settings as HoldoutSettings
from recombine.papers.forced_rendering.mlp.labels import MLP_ARM
from recombine.papers.forced_rendering.mlp.study import STUDY as MLPS
from recombine.papers.forced_rendering.mlp.study import Settings as MLPSettings
from recombine.papers.forced_rendering.penalties.study import STUDY as PENALTIES
from recombine.papers.forced_rendering.penalties.study import Settings as PenaltySettings
from recombine.papers.forced_rendering.stripes.study import STUDY as STRIPES
from recombine.papers.forced_rendering.stripes.study import Settings as StripeSettings
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Study
from recombine.specs import RunSpec

FEW_BUMPS = ("pick:10", "percent:1", "percent:5")
"""Training sets of coordinate MLPs that learn them and draw little else right."""
SOME_DEPTHS = (2, 6, 8)
SOME_VARIANCES = (1, 11)
"""Of the bump code."""
SOME_MLPS = (3, 5, 7)


class Settings(
    HoldoutSettings, AttentionSettings, MLPSettings, DepthSettings, EncodingWidthSettings, StripeSettings,
    PenaltySettings,
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


def marker_specs(preset: Settings) -> list[RunSpec]:
    """What is measured, without seeds, each once."""
    specs = _varied(preset) if preset.marker_variety else _few(preset)
    return list({spec.digest: spec for spec in specs}.values())


def _few(preset: Settings) -> Iterator[RunSpec]:
    """A failing and a composing network of each decoder but the transformer."""
    depth = preset.mlp_depths[0]
    yield from _of(CONTROLS, preset, lambda arm: arm not in controls.INITIAL)
    mlp = preset.mlp_spec("bump", depth)
    yield from (mlp, _held_out(mlp, "random"))
    coordinate = _coordinate(preset)
    yield from (coordinate, _trained_on(coordinate, FEW_BUMPS[0]))


def _varied(preset: Settings) -> Iterator[RunSpec]:
    yield from _cnns(preset)
    yield from _mlps(preset)
    yield from _of(PENALTIES, preset, lambda arm, vectors: True)
    yield from _of(CONTROLS, preset, lambda arm: arm == controls.LOW_RANK_WHOLE)
    kept = {attention.BASE, attention.RATE, attention.CORNER, *map(attention.of_depth, preset.coordinate_depths)}
    yield from _of(ATTENTION, preset, lambda name, variant: name == attention.COORDINATE and variant in kept)
    yield from (_trained_on(_coordinate(preset), few) for few in FEW_BUMPS)
    yield from _of(ATTENTION, preset, lambda name, variant: (name, variant) == (attention.TRANSFORMER, attention.BASE))


def _cnns(preset: Settings) -> Iterator[RunSpec]:
    yield from _of(ENCODINGS, preset, lambda code, holdout: holdout in (encodings.BOX, encodings.CORNER))
    yield from _of(DEPTH, preset, lambda code, depth: depth in SOME_DEPTHS)
    yield from _of(HOLDOUTS, preset, lambda kind, size, holdout: size == preset.size and holdout != "cross")
    yield from _of(STRIPES, preset, lambda family, bumps: True)
    yield from _of(ENCODING_WIDTH, preset, lambda variance: variance in SOME_VARIANCES)
    yield from _of(CONTROLS, preset, lambda arm: arm == controls.WHOLE)
    for depth in SOME_DEPTHS:
        yield preset.striped_spec(preset.marker_bumps, decoder=preset.cnn(depth))
    yield preset.striped_spec(preset.marker_bumps, encoding="onehot")
    yield preset.striped_spec(preset.marker_bumps, holdout="corner")
    yield _whole(preset.spec(encoding="rate"))


def _mlps(preset: Settings) -> Iterator[RunSpec]:
    yield from _of(MLPS, preset, lambda code, decoder, depth: decoder == MLP_ARM and depth in SOME_MLPS)
    for depth in SOME_MLPS[:2]:
        mlp = preset.mlp_spec("bump", depth)
        yield from (_whole(mlp), _striped(mlp, 0), _striped(mlp, preset.marker_bumps))
        yield from (_held_out(mlp, holdout) for holdout in ("random", "corner"))


def _of(study: Study[Any], preset: Settings, kept: Callable[..., bool]) -> Iterator[RunSpec]:
    """Specs of another study's arms, by their labels."""
    return (arm.spec for arm in study.arms(preset) if kept(*arm.labels))


def _coordinate(preset: Settings) -> RunSpec:
    """The coordinate MLP on the paper's task."""
    labels = (attention.COORDINATE, attention.BASE)
    return next(_of(ATTENTION, preset, lambda *own: own == labels))


def _whole(spec: RunSpec) -> RunSpec:
    """The same with the held-out combinations in its training set."""
    return spec.replace(task=spec.task.replace(region="whole"))


def _held_out(spec: RunSpec, holdout: str) -> RunSpec:
    return spec.replace(task=spec.task.replace(holdout=holdout))


def _trained_on(spec: RunSpec, training: str) -> RunSpec:
    return spec.replace(task=spec.task.replace(training=training))


def _striped(spec: RunSpec, bumps: int) -> RunSpec:
    """The same with stripes and few bumps."""
    return spec.replace(task=spec.task.replace(isolated=True, training=f"pick:{bumps}"))
