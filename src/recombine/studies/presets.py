"""Presets: every number that a study's size depends on, in one record.

`quick` is for two CPU cores and minutes: small images and networks, few seeds. `paper` has the paper's settings and at
least 32 seeds wherever a claim is judged, for one GPU. Any field can be changed (`recombine reproduce --set width=8`);
the report lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from recombine.decoders import CNN, DecoderSpec
from recombine.errors import InvalidValue, listed
from recombine.frozen import Frozen
from recombine.specs import Precision, Recipe, RunSpec
from recombine.tasks import BumpTask

Count = Annotated[int, Field(ge=0, le=10**9)]


def _split(value: Any) -> Any:
    """A list written as text; no text is an empty list."""
    return tuple(part for part in value.split(",") if value) if isinstance(value, str) else value


def _some(value: tuple[int, ...], info: Any) -> tuple[int, ...]:
    if not value:
        raise InvalidValue(str(info.field_name), value, "at least one whole number, or several with commas between")
    return value


AnyNumber = Annotated[tuple[Count, ...], BeforeValidator(_split)]
Several = Annotated[AnyNumber, AfterValidator(_some)]


class Preset(Frozen):
    """The size of a reproduction. The defaults are the paper's settings."""

    name: str = "paper"
    seeds: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Seeds where a claim is judged."""
    extra_seeds: Annotated[int, Field(ge=1, le=100_000)] = 4
    """Seeds of extras that no claim rests on; never more than `seeds`."""
    precision: Precision = "bf16"
    """Arithmetic of training; measurements are always in float32."""
    size: Count = 28
    """N, pixels a side."""
    width: Count = 64
    """Channels of the CNN."""
    depth: Count = 4
    """Depth of the CNN where it is not varied."""
    samples: Count = 2000
    """Draws with replacement in a training set."""
    steps: Count = 3150
    """Optimiser steps of every network on bumps or stripes (the paper's 50 epochs of 63)."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    depths: Several = (2, 3, 4, 5, 6)
    """Depths compared between bump and rate codes (Fig. 2)."""
    extra_depths: AnyNumber = (7, 8, 9, 10)
    """Further depths, for the bump code (Fig. 10–12)."""
    mlp_depths: Several = (3, 4, 5, 6, 7)
    mlp_bump_width: Count = 256
    mlp_rate_width: Count = 128
    bumps: Several = (0, 10, 50, 100)
    """Bumps beside the stripes (Fig. 4b); all but 0 are also trained without stripes."""
    percents: Several = (1, 5, 20, 50)
    """Bumps beside the stripes in per cent of the kept combinations (Fig. 7b)."""
    tuning_depth: Count = 4
    """Depth of the network whose neurons are shown (Fig. 15)."""
    penalty_size: Count = 32
    """N of the low-rank study."""
    penalty_sigma: Annotated[float, Field(gt=0)] = 1.5
    penalty_epochs: Count = 1000
    penalty_lr: Annotated[float, Field(gt=0)] = 1e-3
    threshold_sizes: Several = (20, 28, 36, 44, 52)
    """N of the data-threshold study."""
    threshold_width: Count = 16
    threshold_depth: Count = 3
    threshold_steps: Count = 1000
    """Steps under the fixed-steps protocol."""
    threshold_epochs: Count = 25
    """Epochs under the fixed-epochs protocol."""
    threshold_protocols: Count = 8
    """How many of the eight protocols are run; the first is: whole grid, integer centres, fixed steps."""
    threshold_first: Count = 8
    """Networks, over as many sizes of training set, that bracket a threshold."""
    threshold_rest: Count = 24
    """Networks inside the bracket."""
    threshold_alone: Count = 32
    """Networks trained on stripes without a bump."""
    angles: Count = 1000
    """Angles of the rotation study."""
    rotation_size: Count = 28
    rotation_width: Count = 128
    rotation_steps: Count = 5600
    rotation_lr: Annotated[float, Field(gt=0)] = 1e-3
    digits: Count = 10
    """Digits of the many-digit variant of the rotation study."""
    attention_size: Count = 16
    attention_width: Count = 128
    attention_depths: Several = (2, 3, 4, 5)
    coordinate_depths: Several = (2, 3, 4, 5)
    attention_steps: Count = 1000
    variances: Several = (1, 3, 5, 7, 9, 11)
    """s² of the bump code in the encoding-width study."""
    holdout_sizes: Several = (14, 28)
    holdout_percents: Several = (20, 40, 60, 80)
    """Side of the held-out box in per cent of N, in the hold-out-size study."""

    def spec(
        self,
        *,
        decoder: DecoderSpec | str | None = None,
        steps: int | None = None,
        lr: float | None = None,
        **task: Any,
    ) -> RunSpec:
        """A bump run of this preset's size: fields of the task, and a decoder other than the CNN if given."""
        fields: dict[str, Any] = {"size": self.size, "training": f"draws:{self.samples}", **task}
        return RunSpec(
            task=BumpTask(**fields),
            decoder=decoder if decoder is not None else CNN(width=self.width, depth=self.depth),
            recipe=self.recipe(steps=steps or self.steps, lr=lr or self.lr),
        )

    def recipe(self, **fields: Any) -> Recipe:
        """A recipe, in this preset's precision unless another is given."""
        return Recipe(**{"precision": self.precision, **fields})

    def cnn(self, depth: int) -> CNN:
        """The CNN at another depth."""
        return CNN(width=self.width, depth=depth)

    def changed(self, changes: Sequence[str]) -> Preset:
        """The preset with some fields set, each given as `name=value`."""
        fields: dict[str, Any] = {}
        for change in changes:
            name, equals, value = change.partition("=")
            if not equals or name not in type(self).model_fields or name == "name":
                known = listed(field for field in type(self).model_fields if field != "name")
                raise InvalidValue("set", change, f"NAME=VALUE with NAME one of {known}")
            fields[name] = value
        return self.replace(**fields) if fields else self


QUICK = Preset(
    name="quick",
    seeds=3,
    extra_seeds=1,
    precision="float32",
    size=14,
    width=12,
    depth=2,
    samples=600,
    steps=500,
    lr=6e-3,
    depths=(2, 3),
    extra_depths=(),
    mlp_depths=(3, 5),
    mlp_bump_width=128,
    mlp_rate_width=128,
    bumps=(0, 30),
    percents=(10,),
    tuning_depth=2,
    penalty_size=12,
    penalty_sigma=1.0,
    penalty_epochs=80,
    penalty_lr=5e-3,
    threshold_sizes=(8, 11, 14),
    threshold_width=12,
    threshold_depth=2,
    threshold_steps=250,
    threshold_epochs=50,
    threshold_protocols=1,
    threshold_first=4,
    threshold_rest=2,
    threshold_alone=3,
    angles=120,
    rotation_size=14,
    rotation_width=16,
    rotation_steps=300,
    rotation_lr=5e-3,
    digits=3,
    attention_size=10,
    attention_width=32,
    attention_depths=(2,),
    coordinate_depths=(2,),
    attention_steps=150,
    variances=(1, 5, 11),
    holdout_sizes=(14,),
    holdout_percents=(30, 80),
)

PRESETS: Mapping[str, Preset] = {"quick": QUICK, "paper": Preset()}


def preset_named(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise InvalidValue("preset", name, listed(PRESETS))
    return PRESETS[name]
