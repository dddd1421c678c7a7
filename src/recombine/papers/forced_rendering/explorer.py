"""Decoders of the report's explorer: by code, decoder, depth and remedy, as the studies train them.

In the order in which they are kept while there is space: first one that fails and the remedies, then other codes,
decoders and depths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import xarray

from recombine.decoders import CNN
from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering.attention import BASE, COORDINATE, TRANSFORMER
from recombine.papers.forced_rendering.attention import STUDY as ATTENTION
from recombine.papers.forced_rendering.penalties import ARMS, BOTH, ENTROPY, NONE, VARIANCE, penalised_spec
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.explorer import NONE as NONE_SUCH
from recombine.reproduction.explorer import DecoderChoice, LabelledSpec, TrainingPanel
from recombine.reproduction.measuring import Batch
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.tasks import BumpTask

MOST_BUMPS = 100
"""Beside the stripes; with more there is nothing new to see."""
NO_REMEDY = "none"


def _labelled(
    study: str, spec: RunSpec, decoder: str, depth: int | None = None, remedy: str = NO_REMEDY
) -> LabelledSpec:
    code = getattr(spec.task.encoding, "kind", str(spec.task.encoding))
    labels = {"code": code, "decoder": decoder, "depth": NONE_SUCH if depth is None else str(depth), "remedy": remedy}
    return LabelledSpec(study, spec, labels)


def decoders(preset: Any) -> Iterator[LabelledSpec]:
    """The decoders that a preset's studies train and that are worth a look."""
    yield _labelled("encodings", preset.spec(), "CNN", preset.depth)
    for bumps in sorted(preset.bumps, reverse=True):
        if bumps <= MOST_BUMPS:
            remedy = f"stripes and {bumps} bumps" if bumps else "stripes, no bumps"
            yield _labelled("stripes", preset.striped_spec(bumps), "CNN", preset.depth, remedy)
    yield _labelled("encodings", preset.spec(encoding="rate"), "CNN", preset.depth)
    yield from _low_rank(preset, (NONE, BOTH))
    shallow = preset.mlp_depths[0]
    yield _labelled("mlp", preset.mlp_spec("bump", shallow), "MLP", shallow)
    arms = {arm.labels: arm.spec for arm in ATTENTION.arms(preset)}
    yield _labelled("attention", arms[COORDINATE, BASE], COORDINATE, preset.coordinate_depth)
    yield _labelled("attention", arms[TRANSFORMER, BASE], TRANSFORMER, preset.attention_depth)
    # The shallowest and the deepest of those that are compared; rate codes first, whose networks are smaller.
    for code in reversed(CODES):
        for depth in dict.fromkeys((preset.depths[0], preset.depths[-1])):
            if depth != preset.depth:
                yield _labelled("depth", preset.spec(encoding=code, decoder=preset.cnn(depth)), "CNN", depth)
    yield from _low_rank(preset, (ENTROPY, VARIANCE))
    for code in ("onehot", "ramp", "positional"):
        yield _labelled("encodings", preset.spec(encoding=code), "CNN", preset.depth)
    yield _labelled("mlp", preset.mlp_spec("rate", shallow), "MLP", shallow)


def _low_rank(preset: Any, arms: tuple[str, ...]) -> Iterator[LabelledSpec]:
    """On the grid of the other decoders, where the study has such networks."""
    for arm in arms:
        spec = penalised_spec(preset, arm, size=preset.penalty_other_size)
        words = {NONE: NO_REMEDY, BOTH: "both penalties"}.get(arm, f"{ARMS[arm]} penalty")
        yield _labelled("penalties", spec, "low-rank", remedy=words)


def learnt(run: Run) -> bool:
    """Whether a network learnt what it was trained on, by the criterion of `samples`."""
    fit = training_fit(Batch([run], torch.device("cpu")))
    return bool(samples.learnt(xarray.Dataset({name: ("network", value) for name, value in fit.items()})).all())


EXPLORER = DecoderChoice(lambda preset: list(decoders(preset)), learnt)

# The paper's task with its CNN at a width and length that a browser trains in seconds. Over 12 seeds torch puts 26–41 %
# of held-out bumps in place without stripes, and all with them (`tests/page/test_training.py` repeats some).
TRAINING_PANEL = TrainingPanel(
    spec=RunSpec(
        task=BumpTask(size=28, training="each"),
        decoder=CNN(width=8, depth=2),
        recipe=Recipe(steps=400, batch=16, lr=3e-3),
    ),
    text="A decoder of {parameters} weights learns in this page to draw a bump at (x, y). It sees all {kept} "
    "combinations around the box and none of the {held} in it. With <em>stripes</em> it also sees each x and each "
    "y alone: {isolated} more images, none of them a bump.",
    drawn="bump",
    isolated="stripes",
    filled=0.9,
    failed=0.6,
    section="data",
)
