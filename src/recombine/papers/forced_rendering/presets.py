"""Settings that studies of this paper share. The defaults are the paper's, with 56 seeds wherever a claim is judged.

`quick` is for two CPU cores and minutes: small images and networks, few seeds. A study's own are in its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from recombine.decoders import CNN, DecoderSpec
from recombine.reproduction.preset import Count, Positive, Preset, Seeds
from recombine.specs import Precision, RunSpec
from recombine.tasks import BumpTask


class Common(Preset):
    """Settings of every study."""

    name: str = "paper"
    """What it is called, as `--preset` takes it."""
    seeds: Seeds = 56
    """Seeds where a claim is judged."""
    extra_seeds: Seeds = 12
    """Seeds of extras that no claim rests on; never more than `seeds`."""
    first_seed: Count = 100
    """The first of the seeds; the criteria were written with results of seeds 0 to 31 in view."""
    precision: Precision = "bf16"
    """Arithmetic of training; measurements are always in float32."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {"seeds": 3, "extra_seeds": 1, "first_seed": 0, "precision": "float32"}
    }


class WithDepth(Common):
    """Settings of a study whose CNN has the usual depth."""

    depth: Count = 4
    """Depth of the CNN where it is not varied."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"depth": 2}}


class WithLearningRate(Common):
    """Settings of a study that trains at the usual learning rate."""

    lr: Positive = 1e-3
    """Learning rate."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"lr": 6e-3}}


class BumpPreset(WithDepth, WithLearningRate):
    """Settings of a study of bumps on the usual grid."""

    size: Count = 28
    """N, pixels a side."""
    width: Count = 64
    """Channels of the CNN."""
    samples: Count = 2000
    """Draws with replacement in a training set."""
    steps: Count = 3150
    """Optimiser steps of every network on bumps or stripes (the paper's 50 epochs of 63)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"size": 14, "width": 12, "samples": 600, "steps": 500}}

    def spec(
        self,
        *,
        decoder: DecoderSpec | str | None = None,
        steps: int | None = None,
        lr: float | None = None,
        **task: Any,
    ) -> RunSpec:
        """A bump run of this preset's size, of seed 0; `task` are fields of the task."""
        fields: dict[str, Any] = {"size": self.size, "training": f"draws:{self.samples}", **task}
        return RunSpec(
            task=BumpTask(**fields),
            decoder=decoder if decoder is not None else self.cnn(self.depth),
            recipe=self.recipe(steps=steps or self.steps, lr=lr or self.lr),
        )

    def cnn(self, depth: int) -> CNN:
        """The CNN at a depth."""
        return CNN(width=self.width, depth=depth)


CODES = ("bump", "rate")
"""The two encodings that the paper compares."""
ALL_CODES = ("bump", "onehot", "rate", "ramp", "positional")
"""Every encoding of a position that the studies compare."""


def kept_combinations(spec: RunSpec) -> int:
    """Combinations that are not held out; small grids have fewer than there are bumps."""
    return int((~spec.task.held_out).sum())


def whole_grid(spec: RunSpec) -> RunSpec:
    """The same run with the held-out combinations in its training set, and as many steps."""
    recipe = spec.recipe.replace(steps=spec.total_steps)
    return spec.replace(task=spec.task.replace(region="whole"), recipe=recipe)
