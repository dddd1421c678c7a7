"""Why do pixel-wise decoders compose? (ours)

A coordinate MLP composes and a CNN does not. Between them lie four changes: the image's full size from the first
convolution on, coordinates as input, a broadcast code, and 1×1 kernels. They are made one at a time (`RUNGS`), each is
a comparison of two decoders that differ in nothing else (`STEPS`), for several codes and hold-outs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.decoders import CoordinateMLP, DecoderSpec
from recombine.decoders.ladder import LadderDecoder
from recombine.panels import group_dots, seed_count, styled
from recombine.papers.forced_rendering.attention import Settings as AttentionSettings
from recombine.papers.forced_rendering.palette import ARCHITECTURES, architecture
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, difference, sample
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import base_attributes, tabulate
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials

CNN_ARM, SEED, PLACED = "CNN", "full size", "coordinates"
BROADCAST, PIXELWISE, MLP_ARM = "broadcast code", "1×1 kernels", "coordinate MLP"
SEED_PIXELWISE, UNSHARED = "1×1 kernels, 7×7 seed", "1×1 kernels, own weights"
CODES, HOLDOUTS = ("bump", "onehot"), ("center", "corner")
FIELDS: Mapping[str, Mapping[str, Any]] = {
    SEED: {"start": "seed", "coordinates": False},
    PLACED: {"start": "seed"},
    BROADCAST: {},
    PIXELWISE: {"pixelwise": True},
    SEED_PIXELWISE: {"start": "seed", "pixelwise": True},
    UNSHARED: {"pixelwise": True, "shared": False},
}
"""Settings of `LadderDecoder` on every rung that has one."""
RUNGS = (CNN_ARM, SEED, PLACED, BROADCAST, PIXELWISE, MLP_ARM, SEED_PIXELWISE, UNSHARED)
STEPS = {
    "full size": (SEED, CNN_ARM),
    "coordinates": (PLACED, SEED),
    "broadcast code": (BROADCAST, PLACED),
    "1×1 kernels": (PIXELWISE, BROADCAST),
    "1×1 kernels, with a seed": (SEED_PIXELWISE, PLACED),
    "broadcast code, with 1×1 kernels": (PIXELWISE, SEED_PIXELWISE),
}
"""Single changes: the rung with it, and the one without."""
OTHERS = ("full size", "coordinates", "1×1 kernels", "1×1 kernels, with a seed")
"""Changes other than the code's."""


class Settings(AttentionSettings):
    ladder_size: Count = 28
    """Image side length N in the study of pixel-wise decoders."""
    ladder_width: Count = 64
    """Channels of the decoders between CNN and coordinate MLP."""
    ladder_depth: Count = 4
    """Their hidden convolutions."""
    ladder_steps: Count = 1500
    """Optimiser steps."""
    ladder_seeds: Seeds = 56
    """Number of seeds of every rung in a claim, at most `seeds`."""
    ladder_variants: bool = True
    """Whether to train with all codes and hold-outs, or only with the first of each."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "ladder_size": 10,
            "ladder_width": 24,
            "ladder_depth": 2,
            "ladder_steps": 350,
            "ladder_seeds": 1,
            "ladder_variants": False,
        }
    }


class LadderStudy(Study[Settings]):
    name: ClassVar[str] = "ladder"
    question: ClassVar[str] = "Why do pixel-wise decoders compose?"
    settings: ClassVar[type[Settings]] = Settings

    def arms(self, preset: Settings) -> list[Arm]:
        ladder = {name: LadderDecoder(width=preset.ladder_width, depth=preset.ladder_depth, **own)
                  for name, own in FIELDS.items()}  # fmt: skip
        coordinate = CoordinateMLP(width=preset.coordinate_width, depth=preset.coordinate_depth)
        decoders: dict[str, DecoderSpec] = {CNN_ARM: preset.cnn(preset.depth), **ladder, MLP_ARM: coordinate}
        number, arms = len(CODES) if preset.ladder_variants else 1, []
        for code, holdout, rung in product(CODES[:number], HOLDOUTS[:number], RUNGS):
            if rung == UNSHARED and holdout != HOLDOUTS[0]:
                continue  # a network with weights of its own at every pixel takes 50 MB
            spec = preset.spec(
                size=preset.ladder_size, encoding=code, holdout=holdout, decoder=decoders[rung],
                steps=preset.ladder_steps,
            )  # fmt: skip
            seeds = preset.extra_seeds if rung in (MLP_ARM, UNSHARED) else preset.ladder_seeds
            arms.append(Arm((code, holdout, rung), spec, seeds=min(seeds, preset.seeds)))
        return arms

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(trials, ("code", "holdout", "rung"), lambda batch: batch.scores)
        return result.assign_attrs(base_attributes(trials, size=trials.preset.ladder_size))


STUDY = LadderStudy()
ACCURACY = "ood_accuracy"


def _by_condition(data: Data) -> dict[str, xarray.Dataset]:
    """Return the networks of every code and hold-out."""
    result = data["ladder"]
    return {
        f"{code}, {holdout}": result.sel(code=code, holdout=holdout)
        for code, holdout in product(result["code"].values, result["holdout"].values)
    }


def gains(data: Data, step: str, words: str = "") -> dict[str, Sample]:
    """Return held-out accuracy with a change less without it."""
    pairs = {case: [own.sel(rung=rung) for rung in STEPS[step]] for case, own in _by_condition(data).items()}
    return {f"{case}{words}": difference(ACCURACY, *pair) for case, pair in pairs.items()}


def gain_less_others(data: Data) -> dict[str, Sample]:
    """Return the accuracy gained by the broadcast code less the largest gain of any other change."""
    cases = {}
    for case, own in _by_condition(data).items():
        rungs = dict.fromkeys(rung for step in ("broadcast code", *OTHERS) for rung in STEPS[step])
        gained = {step: own[ACCURACY].sel(rung=more, drop=True) - own[ACCURACY].sel(rung=less, drop=True)
                  for step, (more, less) in STEPS.items()}  # fmt: skip
        largest = np.max([gained[step].values for step in OTHERS], axis=0)
        cases[case] = sample(gained["broadcast code"] - largest, *(own.sel(rung=rung) for rung in rungs))
    return cases


def _alternatives(data: Data) -> dict[str, Sample]:
    return gains(data, "broadcast code, with 1×1 kernels", ", with 1×1 kernels")


CLAIMS = (
    Claim(
        "C37",
        "Pixel-wise decoders compose because the same weights bring the code to every pixel: a broadcast code carries "
        "the effect, and no other single change does",
        "E.3",
        statements=(
            Statement(
                effect("held-out accuracy, broadcast code less 7 × 7 seed with weights of its own for every position",
                       0.1, word="described"),
                lambda data: gains(data, "broadcast code"),
                _alternatives,
            ),
            Statement(
                effect("held-out accuracy gained by the broadcast code, less the largest gain of any other change",
                       0.1, word="specific"),
                gain_less_others,
            ),
        ),
        studies=("ladder",),
        ours=True,
    ),
)  # fmt: skip


def draw(result: xarray.Dataset) -> Figure:
    """Plot the held-out accuracy of every rung, for each code and hold-out."""
    rungs = [str(rung) for rung in result["rung"].values]
    conditions = _by_condition({"ladder": result})
    with styled():
        figure, axes = pyplot.subplots(
            1, len(conditions), figsize=(10.4, 2.8), sharey=True, layout="constrained", squeeze=False
        )
        for ax, (title, own) in zip(axes[0], conditions.items(), strict=True):
            values = {rung: own[ACCURACY].sel(rung=rung).values for rung in rungs}
            group_dots(ax, values, [ARCHITECTURES[architecture(rung)] for rung in rungs])
            ax.axvline(COMPOSING_ACCURACY, color="0.7", linewidth=0.8, zorder=0)
            ax.set(xlim=(0, 1.05), xlabel="held-out accuracy")
            ax.set_title(title, loc="left")
    return figure


def caption(result: xarray.Dataset) -> str:
    return (
        "From a CNN to a coordinate MLP, one change at a time: convolutions at the image's full size, coordinates as "
        "input, the same code at every pixel in place of a 7 × 7 seed with weights of its own for every position, 1×1 "
        "kernels, and sinusoidal positions; beside them, 1×1 kernels on the seed, and with weights of their own at "
        f"every pixel ({seed_count(result[ACCURACY])}; black lines are medians, the grey one marks composing networks)."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    conditions = _by_condition({"ladder": result})
    rows = []
    for step, (more, less) in STEPS.items():
        means = (own[ACCURACY].sel(rung=[more, less]).mean("seed").values for own in conditions.values())
        rows.append([step, *(f"{with_it - without:+.2f}" for with_it, without in means)])
    return [["mean gain in accuracy", *conditions], *rows]


FIGURES = (FigureSpec("ladder", "From a CNN to a pixel-wise decoder", ("ladder",), draw, caption, table),)
