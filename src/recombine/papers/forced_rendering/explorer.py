"""Decoders in the report's explorer, by code, decoder, depth and remedy.

They are in order of priority, since not all of them may fit: first one that fails and the remedies, then other codes,
decoders and depths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import xarray

from recombine.papers.forced_rendering import attention, samples
from recombine.papers.forced_rendering.penalties import ARMS, BOTH, ENTROPY, NONE, VARIANCE, penalised_spec
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.explorer import NONE as NO_DEPTH
from recombine.reproduction.explorer import DecoderChoice, LabelledSpec
from recombine.reproduction.measuring import Batch
from recombine.specs import RunSpec
from recombine.store import Run

MOST_BUMPS = 100
"""Largest number of bumps added to the stripes; with more, outputs look the same."""
NO_REMEDY = "none"


def _labelled(study: str, spec: RunSpec, decoder: str, depth: object, remedy: str = NO_REMEDY) -> LabelledSpec:
    code = getattr(spec.task.encoding, "kind", str(spec.task.encoding))
    return LabelledSpec(study, spec, {"code": code, "decoder": decoder, "depth": str(depth), "remedy": remedy})


def decoders(preset: Any) -> Iterator[LabelledSpec]:
    """Yield the decoders worth exploring among those that a preset's studies train."""
    yield _labelled("encodings", preset.spec(), "CNN", preset.depth)
    for bumps in sorted(preset.bumps, reverse=True):
        if bumps <= MOST_BUMPS:
            remedy = f"stripes and {bumps} bumps" if bumps else "stripes, no bumps"
            yield _labelled("stripes", preset.striped_spec(bumps), "CNN", preset.depth, remedy)
    yield _labelled("encodings", preset.spec(encoding="rate"), "CNN", preset.depth)
    yield from _low_rank(preset, (NONE, BOTH))
    shallow = preset.mlp_depths[0]
    yield _labelled("mlp", preset.mlp_spec("bump", shallow), "MLP", shallow)
    arms = {arm.labels: arm.spec for arm in attention.STUDY.arms(preset)}
    depths = {attention.COORDINATE: preset.coordinate_depth, attention.TRANSFORMER: preset.attention_depth}
    for decoder, depth in depths.items():
        yield _labelled("attention", arms[decoder, attention.BASE], decoder, depth)
    # the shallowest and the deepest that are compared; rate codes first, whose networks are smaller
    for code in reversed(CODES):
        for depth in dict.fromkeys((preset.depths[0], preset.depths[-1])):
            if depth != preset.depth:
                yield _labelled("depth", preset.spec(encoding=code, decoder=preset.cnn(depth)), "CNN", depth)
    yield from _low_rank(preset, (ENTROPY, VARIANCE))
    for code in ("onehot", "ramp", "positional"):
        yield _labelled("encodings", preset.spec(encoding=code), "CNN", preset.depth)
    yield _labelled("mlp", preset.mlp_spec("rate", shallow), "MLP", shallow)


def _low_rank(preset: Any, arms: tuple[str, ...]) -> Iterator[LabelledSpec]:
    for arm in arms:
        spec = penalised_spec(preset, arm, size=preset.penalty_other_size)  # the other decoders' grid
        remedy = {NONE: NO_REMEDY, BOTH: "both penalties"}.get(arm, f"{ARMS[arm]} penalty")
        yield _labelled("penalties", spec, "low-rank", NO_DEPTH, remedy)


def learnt(run: Run) -> bool:
    """Whether a network learnt its training data, by the criterion of `samples`."""
    fit = training_fit(Batch([run], torch.device("cpu")))
    return bool(samples.learnt(xarray.Dataset({name: ("network", value) for name, value in fit.items()})).all())


EXPLORER = DecoderChoice(lambda preset: list(decoders(preset)), learnt)
