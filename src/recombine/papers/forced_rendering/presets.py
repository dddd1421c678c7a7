"""Settings shared by this paper's studies; defaults follow the paper, with 56 seeds for networks used in claims.

The `quick` preset uses small images, small networks and few seeds, and runs in minutes on two CPU cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from recombine.decoders import CNN, DecoderSpec
from recombine.reproduction.preset import Count, Positive, Preset, Seeds
from recombine.specs import Precision, RunSpec
from recombine.tasks import BumpTask


class Common(Preset):
    name: str = "paper"
    """Name of the preset, as passed to `--preset`."""
    seeds: Seeds = 56
    """Number of seeds per experimental condition used to judge a claim."""
    extra_seeds: Seeds = 12
    """Number of seeds per experimental condition not used in any claim, at most `seeds`."""
    first_seed: Count = 1000
    """First seed. Lower seeds are avoided, because their results were known when the criteria were written."""
    precision: Precision = "bf16"
    """Numerical precision in training; measurements always use float32."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {"seeds": 2, "extra_seeds": 1, "first_seed": 0, "precision": "float32"}
    }


class WithDepth(Common):
    depth: Count = 4
    """Depth of CNNs, except where depth is varied."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"depth": 2}}


class WithLearningRate(Common):
    lr: Positive = 1e-3
    """Learning rate."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"lr": 6e-3}}


class BumpPreset(WithDepth, WithLearningRate):
    """Settings for studies that use bump images on the default grid."""

    size: Count = 28
    """Image side length N in pixels."""
    width: Count = 64
    """Channels of the CNN."""
    samples: Count = 2000
    """Number of training examples, drawn with replacement."""
    steps: Count = 3150
    """Optimiser steps on bumps or stripes (50 epochs of 63 steps in the paper)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"size": 14, "width": 12, "samples": 600, "steps": 350}}

    def spec(
        self, *, decoder: DecoderSpec | None = None, steps: int | None = None, lr: float | None = None, **task: Any
    ) -> RunSpec:
        """Return a run spec on bumps with seed 0; `task` overrides fields of its task."""
        return RunSpec(
            task=BumpTask(**{"size": self.size, "training": f"draws:{self.samples}", **task}),
            decoder=decoder or self.cnn(self.depth),
            recipe=self.recipe(steps=steps or self.steps, lr=lr or self.lr),
        )

    def cnn(self, depth: int) -> CNN:
        """Return the CNN of a given depth."""
        return CNN(width=self.width, depth=depth)


CODES = ("bump", "rate")
"""The two encodings compared in the paper."""
ALL_CODES = ("bump", "onehot", "rate", "ramp", "positional")
"""All position encodings that are compared."""


def kept_combinations(spec: RunSpec) -> int:
    """Return the number of combinations that are not held out."""
    return int((~spec.task.held_out).sum())


def whole_grid(spec: RunSpec) -> RunSpec:
    """Return the same run, with the same number of steps, but with the held-out combinations in the training set."""
    recipe = spec.recipe.replace(steps=spec.total_steps)
    return spec.replace(task=spec.task.replace(region="whole"), recipe=recipe)
