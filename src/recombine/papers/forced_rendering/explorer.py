"""Decoders in the report's interactive explorer, by code, decoder, depth and remedy.

Decoders are ordered by priority, since there may not be room for all: first a failing network and the remedies, then
other codes, decoders and depths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from recombine.decoders import CNN
from recombine.papers.forced_rendering import attention, prospective
from recombine.papers.forced_rendering.penalties import ARMS, BOTH, ENTROPY, NONE, VARIANCE, penalised_spec
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.criteria import Fit, Learnt
from recombine.reproduction.explorer import NONE as NO_DEPTH
from recombine.reproduction.explorer import KeptDecoder
from recombine.reproduction.live_decoders import DecoderChoice, LabelledSpec, TrainingPanel
from recombine.reproduction.measuring import Batch
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.tasks import BumpTask


def _labelled(study: str, spec: RunSpec, decoder: str, depth: object, remedy: str = "none") -> LabelledSpec:
    code = getattr(spec.task.encoding, "kind", str(spec.task.encoding))
    return LabelledSpec(study, spec, {"code": code, "decoder": decoder, "depth": str(depth), "remedy": remedy})


def decoders(preset: Any) -> Iterator[LabelledSpec]:
    """Yield the decoders worth exploring among those trained by a preset's studies."""
    yield _labelled("encodings", preset.spec(), "CNN", preset.depth)
    counts = [bumps for bumps in sorted(preset.bumps, reverse=True) if bumps <= 100]  # more hardly change the outputs
    yield from (_striped(preset, bumps) for bumps in dict.fromkeys((counts[0], counts[-1])))
    yield _labelled("encodings", preset.spec(encoding="rate"), "CNN", preset.depth)
    yield from _low_rank(preset, (NONE, BOTH))
    shallow = preset.mlp_depths[0]
    yield _labelled("mlp", preset.mlp_spec("bump", shallow), "MLP", shallow)
    arms = {arm.labels: arm.spec for arm in attention.STUDY.arms(preset)}
    depths = {attention.COORDINATE: preset.coordinate_depth, attention.TRANSFORMER: preset.attention_depth}
    for decoder, depth in depths.items():
        yield _labelled("attention", arms[decoder, attention.BASE], decoder, depth)
    broadcast = prospective.shortened(preset.broadcast_spec(), 1.0)
    yield _labelled("prospective", broadcast, "spatial broadcast", preset.prospective_depth)
    # the shallowest and the deepest networks compared; rate codes first, because their networks are smaller
    for code in reversed(CODES):
        for depth in dict.fromkeys((preset.depths[0], preset.depths[-1])):
            if depth != preset.depth:
                yield _labelled("depth", preset.spec(encoding=code, decoder=preset.cnn(depth)), "CNN", depth)
    yield from (_striped(preset, bumps) for bumps in counts[1:-1])
    yield from _low_rank(preset, (ENTROPY, VARIANCE))
    for code in ("onehot", "ramp", "positional"):
        yield _labelled("encodings", preset.spec(encoding=code), "CNN", preset.depth)
    yield _labelled("mlp", preset.mlp_spec("rate", shallow), "MLP", shallow)


def _striped(preset: Any, bumps: int) -> LabelledSpec:
    remedy = f"stripes and {bumps} bumps" if bumps else "stripes, no bumps"
    return _labelled("stripes", preset.striped_spec(bumps), "CNN", preset.depth, remedy)


def _low_rank(preset: Any, arms: tuple[str, ...]) -> Iterator[LabelledSpec]:
    for arm in arms:
        spec = penalised_spec(preset, arm, size=preset.penalty_other_size)  # the same grid as the other decoders
        remedy = {NONE: "none", BOTH: "both penalties"}.get(arm, f"{ARMS[arm]} penalty")
        yield _labelled("penalties", spec, "low-rank", NO_DEPTH, remedy)


def learnt(run: Run) -> bool:
    """Return whether a network learnt its training data, according to the criterion in `samples`."""
    fit = training_fit(Batch([run], torch.device("cpu")))
    error, score = (fit[f"training_{name}"].numpy() for name in ("over_blank", "accuracy"))
    return bool(Learnt().learnt(Fit(error, score, np.ones(1, dtype=bool))).all())


def measured(decoder: KeptDecoder) -> Mapping[str, np.ndarray]:
    """Return what a page measures of a decoder."""
    from recombine.page.model import measured  # imported lazily, since it imports torch.export

    return measured(decoder)


EXPLORER = DecoderChoice(lambda preset: list(decoders(preset)), learnt, measured)

# The paper's task, with a CNN small enough to train in a browser within seconds. Trained in torch with 12 seeds,
# it places 26–41 % of held-out bumps correctly without stripes and all with them (see `tests/page/test_training.py`).
TRAINING_PANEL = TrainingPanel(
    spec=RunSpec(
        task=BumpTask(size=28, training="each"),
        decoder=CNN(width=8, depth=2),
        recipe=Recipe(steps=400, batch=16, lr=3e-3),
    ),
    text="A decoder with {parameters} weights learns on this page to draw a bump at (x, y). It sees all {kept} "
    "combinations around the box and none of the {held} in it. With <em>stripes</em> it also sees each x and each "
    "y alone: {isolated} more images, none of them a bump.",
    drawn="bump",
    isolated="stripes",
    filled=0.9,
    failed=0.6,
    section="data",
)
