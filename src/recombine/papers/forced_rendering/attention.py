"""Do decoders that render each pixel from code and coordinate compose with no remedy? (E.3; ours)

Coordinate MLP and transformer read the code beside every pixel's position; only the transformer lets pixels attend to
each other. Both on the paper's task, and with other depths, codes, hold-outs, and widths at which they have as many
parameters or operations as the CNN; the CNN beside them. Of a few networks on the paper's task, every stage's metrics
and what the superposition study measures.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from torch.utils.flop_counter import FlopCounterMode

from recombine.decoders import CoordinateMLP, DecoderSpec, Transformer
from recombine.decoders.base import Interface
from recombine.encodings import Rate
from recombine.panels import COLORS, band, bar_groups, divided, held_out_drawing, seed_count, styled
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, FAILING_ERROR, measured_by
from recombine.papers.forced_rendering.superposition import (
    COSINE,
    FAMILIES,
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    SUPERPOSITION_METRICS,
    superposition_scores_of,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import (
    DRAWING,
    TRAINED,
    Batch,
    Measured,
    base_attributes,
    drawings,
    stage_dims,
    stage_profile,
    tabulate,
    with_positions,
)
from recombine.reproduction.preset import AnyNumber, Count
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

COORDINATE, TRANSFORMER, PLAIN = "coordinate MLP", "transformer", "CNN"
ARCHITECTURES = (COORDINATE, TRANSFORMER)
"""Decoders that render each pixel from code and coordinate."""
BASE = "the paper's task"
"""Bump code, box held out, usual depth and width."""
RATE, ONE_HOT = "rate code in [−1, 1]", "one-hot code"
CORNER, CROSS = "corner held out", "cross held out"
SAME_PARAMETERS, SAME_OPERATIONS = "the CNN's parameters", "the CNN's operations"


def of_depth(depth: int) -> str:
    """A variant that differs in depth."""
    return f"depth {depth}"


Size = Callable[[DecoderSpec, Interface], int]
STEP = 4
"""Widths of pixel tokens are multiples of this."""
MOST_STEPS = 1 << 12
"""Of them, in the widest that is tried: decoders have a largest width."""


@cache
def parameters(decoder: DecoderSpec, interface: Interface) -> int:
    """Numbers that are trained."""
    with torch.device("meta"):
        module = decoder.build(interface)
    return sum(parameter.numel() for parameter in module.parameters())


@cache
def operations(decoder: DecoderSpec, interface: Interface) -> int:
    """Floating-point operations for one image, counted on no device at all."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        decoder.build(interface)(torch.zeros(1, interface.code_size))
    return counter.get_total_flops()


def matched(of_width: Callable[[int], DecoderSpec], other: DecoderSpec, interface: Interface, count: Size) -> int:
    """The width, a multiple of `STEP`, whose count (`parameters` or `operations`) is nearest to another decoder's.

    The count must grow with the width.
    """
    target = count(other, interface)

    def counted(steps: int) -> int:
        return count(of_width(steps * STEP), interface)

    enough = bisect_left(range(MOST_STEPS), target, lo=1, key=counted)
    return STEP * min(max(1, enough - 1), enough, key=lambda steps: abs(counted(steps) - target))


MEMORY = 1 << 28
"""Bytes of a network's stages that are measured at a time; attention needs many times as much beside them."""


class Settings(BumpPreset):
    """Sizes, depths and length of training."""

    attention_size: Count = 28
    """N of this study."""
    coordinate_width: Count = 128
    """Size of a token of the coordinate MLP."""
    coordinate_depth: Count = 3
    """Its layers."""
    coordinate_depths: AnyNumber = (2, 4, 6)
    """Other depths of the coordinate MLP."""
    coordinate_steps: Count = 1500
    """Its optimiser steps."""
    attention_width: Count = 64
    """Size of a token of the transformer."""
    attention_depth: Count = 2
    """Its layers."""
    attention_depths: AnyNumber = (3,)
    """Other depths of the transformer."""
    attention_steps: Count = 2500
    """Training of transformers; at N = 28 none has learnt after 1000 steps, nearly all after 2000."""
    attention_variants: bool = True
    """Whether other codes, hold-outs and widths are trained too."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "attention_size": 10, "attention_width": 16, "attention_depth": 1, "attention_depths": (),
            "attention_steps": 150, "coordinate_width": 32, "coordinate_depth": 2, "coordinate_depths": (),
            "coordinate_steps": 300, "attention_variants": False,
        }
    }  # fmt: skip


class AttentionStudy(Study[Settings]):
    """Decoders that know where each pixel is."""

    name: ClassVar[str] = "attention"
    question: ClassVar[str] = "Do decoders that know where each pixel is compose?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile", *SUPERPOSITION_METRICS)

    def arms(self, preset: Settings) -> list[Arm]:
        plain = preset.spec(size=preset.attention_size)

        def coordinate(width: int = preset.coordinate_width, depth: int = preset.coordinate_depth) -> CoordinateMLP:
            return CoordinateMLP(width=width, depth=depth)

        def transformer(width: int = preset.attention_width, depth: int = preset.attention_depth) -> Transformer:
            return Transformer(width=width, depth=depth, feedforward=4 * width)

        return [
            *_arms(preset, COORDINATE, coordinate, preset.coordinate_depths, preset.coordinate_steps),
            *_arms(preset, TRANSFORMER, transformer, preset.attention_depths, preset.attention_steps),
            Arm((PLAIN, BASE), plain, extra=True),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> Measured:
            return {**batch.scores, "drawing": drawings(batch)}

        def looked_into(batch: Batch) -> dict[str, np.ndarray]:
            return {**stage_profile(batch, maps=False), **superposition_scores_of(batch)}

        result = tabulate(trials, ("decoder", "variant"), measured, {"drawing": DRAWING})
        few = {labels: trials[labels][: trials.preset.extra_seeds] for labels in trials if labels[1] == BASE}
        found = tabulate(
            Trials(trials.preset, trials.device, few), ("decoder", "variant"), partial(one_by_one, looked_into),
            {**SUPERPOSITION_DIMS, **stage_dims()},
        ).isel(variant=0, drop=True)  # fmt: skip
        attributes = base_attributes(trials, size=trials.preset.attention_size)
        merged = result.merge(found.drop_vars(TRAINED), join="left").assign_coords(SUPERPOSITION_COORDS)
        return with_positions(merged, trials.first.spec).assign_attrs(attributes)


def _arms(
    preset: Settings, name: str, decoder: Callable[..., DecoderSpec], depths: tuple[int, ...], steps: int
) -> Iterator[Arm]:
    """The paper's task, other depths and, if asked for, other codes, hold-outs and widths."""
    task: Callable[..., RunSpec] = partial(preset.spec, size=preset.attention_size, steps=steps)
    yield Arm((name, BASE), task(decoder=decoder()))
    for depth in depths:
        yield Arm((name, of_depth(depth)), task(decoder=decoder(depth=depth)), extra=True)
    if not preset.attention_variants:
        return
    yield Arm((name, RATE), task(decoder=decoder(), encoding=Rate(scale="unit")), extra=True)
    yield Arm((name, ONE_HOT), task(decoder=decoder(), encoding="onehot"), extra=True)
    yield Arm((name, CORNER), task(decoder=decoder(), holdout="corner"), extra=True)
    yield Arm((name, CROSS), task(decoder=decoder(), holdout="cross", allow_unseen=True), extra=True)
    interface = task(decoder=decoder()).interface
    for label, count in ((SAME_PARAMETERS, parameters), (SAME_OPERATIONS, operations)):
        width = matched(decoder, preset.cnn(preset.depth), interface, count)
        yield Arm((name, label), task(decoder=decoder(width)), extra=True)


def one_by_one(measure: Callable[[Batch], Mapping[str, np.ndarray]], batch: Batch) -> dict[str, np.ndarray]:
    """A measurement of one network after the other: attention needs memory for every pair of pixels."""
    rows = [measure(Batch([run], batch.device, min(batch.memory, MEMORY))) for run in batch.runs]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


STUDY = AttentionStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


def _by_decoder(data: Data, score: str) -> dict[str, Sample]:
    base = data["attention"].sel(decoder=list(ARCHITECTURES), variant=BASE)
    return measured_by(base, score, "{decoder}", "decoder")


def _variants(data: Data, score: str) -> dict[str, Sample]:
    others = data["attention"].sel(decoder=list(ARCHITECTURES)).drop_sel(variant=BASE)
    return measured_by(others, score, "{decoder}, {variant}", "decoder", "variant")


CLAIMS = (
    Claim(
        "C25",
        "Decoders that render each pixel from code and coordinate compose with no remedy at all",
        "E.3",
        statements=(
            Statement(
                above("held-out accuracy", COMPOSING_ACCURACY),
                lambda data: _by_decoder(data, "ood_accuracy"),
                lambda data: _variants(data, "ood_accuracy"),
            ),
            Statement(
                below("held-out error over blank", FAILING_ERROR),
                lambda data: _by_decoder(data, "ood_over_blank"),
                lambda data: _variants(data, "ood_over_blank"),
            ),
        ),
        studies=("attention",),
        ours=True,
    ),
)


# -- figure ----------------------------------------------------------------------------------------------------------


DECODERS = (*ARCHITECTURES, PLAIN)
ROWS = 3
"""Drawings of each decoder."""


def attention_figure(result: xarray.Dataset) -> Figure:
    """Drawings on the paper's task, accuracies of every variant, factorization and volume by stage."""
    with styled():
        figure = pyplot.figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[1, 2.4])
        _drawings(left, result)
        top, bottom = divided(right, 2, 1, height_ratios=[1.5, 1])
        _accuracies(top.subplots(), result)
        axes = bottom.subplots(1, 3)
        for ax, name, title in zip(
            axes, ("factorization", "spread"), ("factorization", "spread of log10 dv"), strict=False
        ):
            for decoder, color in zip(DECODERS, COLORS, strict=False):
                band(ax, result[name].sel(decoder=decoder), decoder, color)
            ax.set_title(f"{title} by stage", loc="left")
        axes[0].legend(fontsize=6)
        _kernels(axes[2], result)
    return figure


def _kernels(ax: Axes, result: xarray.Dataset) -> None:
    """Agreement of the outputs' similarities with families of kernels."""
    for k, (decoder, color) in enumerate(zip(DECODERS, COLORS, strict=False)):
        own = result.sel(decoder=decoder, similarity=COSINE)
        for family, name in enumerate(FAMILIES):
            seen = own[f"kernel_{name}"].dropna("seed").values
            place = family + 0.25 * (k - 1)
            ax.plot([place] * len(seen), seen, "o", markersize=3, alpha=0.6, color=color, markeredgewidth=0)
    ax.set_xticks(range(len(FAMILIES)), ["OR", *FAMILIES[1:]])
    ax.set_title("kernel families, correlation", loc="left")


def _drawings(figure: SubFigure, result: xarray.Dataset) -> None:
    axes = figure.subplots(ROWS, len(DECODERS), squeeze=False)
    for column, decoder in enumerate(DECODERS):
        own = result.sel(decoder=decoder, variant=BASE)
        for row in range(ROWS):
            held_out_drawing(axes[row, column], own["drawing"].isel(sample=row).values, result, row)
        axes[0, column].set_title(decoder, fontsize=8)
        axes[-1, column].set_xlabel(f"{own['ood_over_blank'].mean().item():.2f} blank", fontsize=8)


def _accuracies(ax: Axes, result: xarray.Dataset) -> None:
    """Held-out accuracy of every arm that was trained."""
    arms = [(decoder, str(variant)) for decoder in DECODERS for variant in result["variant"].values]
    values = {
        f"{decoder},\n{variant}": result["ood_accuracy"].sel(decoder=decoder, variant=variant).values
        for decoder, variant in arms
        if bool(result["ood_accuracy"].sel(decoder=decoder, variant=variant).notnull().any())
    }
    bar_groups(ax, list(values), values, COLORS)
    ax.set_xticks(range(len(values)), list(values), rotation=40, ha="right", fontsize=5.5)
    ax.set_ylim(0, 1.05)
    ax.set_title("held-out accuracy", loc="left")


def attention_caption(result: xarray.Dataset) -> str:
    """Errors by decoder."""
    base = result.sel(variant=BASE)
    words = []
    for decoder in DECODERS:
        own = base.sel(decoder=decoder).mean("seed")
        words.append(
            f"{decoder} {own['ood_over_blank'].item():.2f} (kept: {own['id_over_blank'].item():.3f}; accuracy "
            f"{100 * own['ood_accuracy'].item():.0f} %; best sum of training images that share x or y less one that "
            f"shares neither {(own['matched'] - own['mismatched']).item():.2f})"
        )
    return (
        f"Left, drawings at three held-out places of the first seed's networks, bump code, box held out, "
        f"N = {result.attrs['size']}; below, the held-out error over blank. Right, accuracy in the hold-out of every "
        "decoder and variant, a dot for each network; factorization and spread of log10 dv by stage (0: input); and "
        "how well families of kernels agree with the cosine similarity of held-out and kept outputs, "
        f"{seed_count(result['factorization'])}. Held-out error over blank, mean over networks: {'; '.join(words)}."
    )


FIGURES = (
    FigureSpec(
        "attention", "Decoders that know where each pixel is", ("attention",), attention_figure, attention_caption
    ),
)
