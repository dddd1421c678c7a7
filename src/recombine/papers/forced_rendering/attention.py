"""Do decoders that render each pixel from the code and the pixel's coordinates compose without a remedy? (E.3; ours)

The coordinate MLP and the transformer both take the code together with each pixel's position, but only the transformer
lets pixels attend to each other. Both are trained on the paper's task, with every combination of three codes and three
hold-outs, with other depths, and at widths that match the CNN's number of parameters or operations. With the cross held
out, some values of x and y are never trained on, so their one-hot codes are new. A CNN is trained for comparison. For a
few networks on the paper's task, we also compute all stage metrics and those of the superposition study.
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
from recombine.panels import band, divided, group_dots, held_out_drawing, seed_count, styled
from recombine.papers.forced_rendering import superposition
from recombine.papers.forced_rendering.palette import ARCHITECTURES as COLORS
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.samples import COMPOSES, held_out_statements, measured_by
from recombine.reproduction import measuring
from recombine.reproduction.claims import Claim, Data, Sample
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, tabulate
from recombine.reproduction.preset import AnyNumber, Count
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

COORDINATE, TRANSFORMER, PLAIN = "coordinate MLP", "transformer", "CNN"
ARCHITECTURES = (COORDINATE, TRANSFORMER)
"""Decoders that render each pixel from the code and the pixel's coordinates."""
BASE = "the paper's task"
"""Label of the variant with the bump code, a held-out box, and default depth and width."""
RATE, ONE_HOT = "rate code in [−1, 1]", "one-hot code"
CORNER, CROSS = "corner held out", "cross held out"
COMBINATIONS = {
    ", ".join(filter(None, (code, place))) or BASE: (code, place)
    for code in ("", RATE, ONE_HOT) for place in ("", CORNER, CROSS)
}  # fmt: skip
"""Variants by code and hold-out; an empty string means that of the paper's task."""
FIELDS: dict[str, dict[str, Any]] = {
    "": {}, RATE: {"encoding": Rate(scale="unit")}, ONE_HOT: {"encoding": "onehot"}, CORNER: {"holdout": "corner"},
    CROSS: {"holdout": "cross", "allow_unseen": True},
}  # fmt: skip
"""Changes of the paper's task."""
SAME_PARAMETERS, SAME_OPERATIONS = "the CNN's parameters", "the CNN's operations"
MEMORY = 1 << 28
"""Bytes of activations measured at a time; attention itself needs many times more memory."""
WIDTHS = range(4, 1 << 14, 4)
"""Candidate token widths."""


@cache
def costs(decoder: DecoderSpec, interface: Interface) -> dict[str, int]:
    """Return the number of trainable parameters and the number of floating-point operations per image."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        module = decoder.build(interface)
        module(torch.zeros(1, interface.code_size))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return {SAME_PARAMETERS: parameters, SAME_OPERATIONS: counter.get_total_flops()}


def matched(decoder: Callable[..., DecoderSpec], other: DecoderSpec, interface: Interface, cost: str) -> int:
    """Return the width at which a decoder's cost (a key of `costs`) is closest to that of another decoder."""
    target = costs(other, interface)[cost]

    def cost_of(width: int) -> int:
        return costs(decoder(width=width), interface)[cost]

    enough = bisect_left(WIDTHS, target, key=cost_of)  # valid because cost increases with width
    return min(WIDTHS[max(0, enough - 1) : enough + 1], key=lambda width: abs(cost_of(width) - target))


class Settings(BumpPreset):
    attention_size: Count = 28
    """Image side length N in the attention study."""
    coordinate_width: Count = 128
    """Token width of the coordinate MLP."""
    coordinate_depth: Count = 3
    """Number of layers of the coordinate MLP."""
    coordinate_depths: AnyNumber = (2, 4, 6)
    """Additional depths of the coordinate MLP."""
    coordinate_steps: Count = 1500
    """Optimiser steps for the coordinate MLP."""
    attention_width: Count = 64
    """Token width of the transformer."""
    attention_depth: Count = 2
    """Number of layers of the transformer."""
    attention_depths: AnyNumber = (3,)
    """Additional depths of the transformer."""
    attention_steps: Count = 2500
    """Optimiser steps for the transformer. At N = 28, no network learns in 1000 steps, but nearly all learn in 2000."""
    attention_variants: bool = True
    """Whether to also train with other codes, hold-outs and widths."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "attention_size": 10, "attention_width": 16, "attention_depth": 1, "attention_depths": (),
            "attention_steps": 150, "coordinate_width": 32, "coordinate_depth": 2, "coordinate_depths": (),
            "coordinate_steps": 300, "attention_variants": False,
        }
    }  # fmt: skip


class AttentionStudy(Study[Settings]):
    name: ClassVar[str] = "attention"
    question: ClassVar[str] = "Do decoders that are given each pixel's position compose?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile", *superposition.SUPERPOSITION_METRICS)

    def arms(self, preset: Settings) -> list[Arm]:
        def transformer(width: int = preset.attention_width, depth: int = preset.attention_depth) -> Transformer:
            return Transformer(width=width, depth=depth, feedforward=4 * width)

        coordinate = partial(CoordinateMLP, width=preset.coordinate_width, depth=preset.coordinate_depth)
        return [
            *_arms(preset, COORDINATE, coordinate, preset.coordinate_depths, preset.coordinate_steps),
            *_arms(preset, TRANSFORMER, transformer, preset.attention_depths, preset.attention_steps),
            Arm((PLAIN, BASE), preset.spec(size=preset.attention_size), extra=True),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def profiled(batch: Batch) -> dict[str, np.ndarray]:
            return {**measuring.stage_profile(batch, maps=False), **superposition.superposition_scores_of(batch)}

        result = tabulate(
            trials, ("decoder", "variant"), lambda batch: {**batch.scores, "drawing": measuring.drawings(batch)},
            {"drawing": measuring.DRAWING},
        )  # fmt: skip
        few = {labels: trials[labels][: trials.preset.extra_seeds] for labels in trials if labels[1] == BASE}
        profiles = tabulate(
            Trials(trials.preset, trials.device, few), ("decoder", "variant"), partial(one_by_one, profiled),
            {**superposition.SUPERPOSITION_DIMS, **measuring.stage_dims()},
        ).isel(variant=0, drop=True).assign_coords(superposition.SUPERPOSITION_COORDS)  # fmt: skip
        merged = result.merge(profiles.drop_vars(measuring.TRAINED), join="left")
        attributes = measuring.base_attributes(trials, size=trials.preset.attention_size)
        return measuring.with_positions(merged, trials.first.spec).assign_attrs(attributes)


def _arms(
    preset: Settings, name: str, decoder: Callable[..., DecoderSpec], depths: tuple[int, ...], steps: int
) -> Iterator[Arm]:
    """Yield experimental arms: the paper's task, other depths and, if enabled, other codes, hold-outs and widths."""
    task: Callable[..., RunSpec] = partial(preset.spec, size=preset.attention_size, steps=steps)
    base = task(decoder=decoder())
    yield Arm((name, BASE), base)
    others = {f"depth {depth}": task(decoder=decoder(depth=depth)) for depth in depths}
    if preset.attention_variants:
        for variant, (code, place) in COMBINATIONS.items():
            if variant != BASE:
                others[variant] = task(decoder=decoder(), **FIELDS[code], **FIELDS[place])
        for cost in (SAME_PARAMETERS, SAME_OPERATIONS):
            width = matched(decoder, preset.cnn(preset.depth), base.interface, cost)
            others[cost] = task(decoder=decoder(width=width))
    for variant, spec in others.items():
        yield Arm((name, variant), spec, extra=True)


def one_by_one(measure: Callable[[Batch], Mapping[str, np.ndarray]], batch: Batch) -> dict[str, np.ndarray]:
    """Measure one network at a time, because attention memory is quadratic in the number of pixels."""
    rows = [measure(Batch([run], batch.device, min(batch.memory, MEMORY))) for run in batch.runs]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


STUDY = AttentionStudy()


def by_decoder(data: Data, score: str, words: str = "{decoder}") -> dict[str, Sample]:
    """Return a held-out score for both architectures on the paper's task."""
    base = data["attention"].sel(decoder=list(ARCHITECTURES), variant=BASE)
    return measured_by(base, f"ood_{score}", words, "decoder")


def _combinations(data: Data, score: str) -> dict[str, Sample]:
    """Return a held-out score of both architectures with every code and hold-out, that of the paper's task first."""
    return by_decoder(data, score) | _variants(data, score, lambda variant: variant in COMBINATIONS)


def _others(data: Data, score: str) -> dict[str, Sample]:
    """Return a held-out score for other depths and widths."""
    return _variants(data, score, lambda variant: variant not in COMBINATIONS)


def _variants(data: Data, score: str, chosen: Callable[[str], bool]) -> dict[str, Sample]:
    result = data["attention"].sel(decoder=list(ARCHITECTURES))
    variants = [own for own in result["variant"].values if own != BASE and chosen(own)]
    parts = result.sel(variant=variants)
    return measured_by(parts, f"ood_{score}", "{decoder}, {variant}", "decoder", "variant")


CLAIMS = (
    Claim(
        "C25",
        "Decoders that render each pixel from code and coordinate compose with no remedy at all, with bump, one-hot "
        "and rate codes and a box, corner or cross held out",
        "E.3",
        statements=held_out_statements(COMPOSES, _combinations, _others),
        studies=("attention",),
        ours=True,
    ),
)

DECODERS = (*ARCHITECTURES, PLAIN)


def draw(result: xarray.Dataset) -> Figure:
    """Plot outputs on the paper's task, the accuracy of every variant, and metrics by stage."""
    with styled():
        figure = pyplot.figure(figsize=(11.4, 5.2), layout="constrained")
        left, middle, right = divided(figure, 1, 3, width_ratios=[1, 1.25, 0.75])
        _drawings(left, result)
        ax = middle.subplots()
        trained = result["ood_accuracy"].stack(arm=("decoder", "variant")).dropna("arm", how="all")
        values = {", ".join(own["arm"].item()): own.values for own in trained.transpose("arm", "seed")}
        group_dots(ax, values, [COLORS[name.partition(", ")[0]] for name in values])
        ax.tick_params(axis="y", labelsize=7)
        ax.set(xlim=(0, 1.05), xlabel="held-out accuracy")
        axes, titles = right.subplots(3, 1), {"factorization": "factorization", "spread": "spread of log10 dv"}
        for ax, (name, title) in zip(axes, titles.items(), strict=False):
            for decoder in DECODERS:
                band(ax, result[name].sel(decoder=decoder), decoder, COLORS[decoder])
            ax.set_title(f"{title} by stage", loc="left")
        axes[1].legend(fontsize=7)
        _kernels(axes[2], result)
    return figure


def _drawings(figure: SubFigure, result: xarray.Dataset) -> None:
    axes = figure.subplots(3, len(DECODERS))
    for column, decoder in zip(axes.T, DECODERS, strict=True):
        own = result.sel(decoder=decoder, variant=BASE)
        for row, ax in enumerate(column):
            held_out_drawing(ax, own["drawing"].isel(sample=row).values, result, row)
        column[0].set_title(decoder, fontsize=8)
        column[-1].set_xlabel(f"{own['ood_over_blank'].mean().item():.2f} blank", fontsize=8)


def _kernels(ax: Axes, result: xarray.Dataset) -> None:
    """Plot the correlation between each kernel family and the output similarities."""
    families = superposition.FAMILIES
    for k, decoder in enumerate(DECODERS):
        own = result.sel(decoder=decoder, similarity=superposition.COSINE)
        for family, name in enumerate(families):
            values = own[f"kernel_{name}"].dropna("seed").values
            place = family + 0.25 * (k - 1)
            ax.plot(
                [place] * len(values), values, "o", markersize=3, alpha=0.6, color=COLORS[decoder], markeredgewidth=0
            )
    ax.set_xticks(range(len(families)), ["OR", *families[1:]])
    ax.set_title("kernel families, correlation", loc="left")


def caption(result: xarray.Dataset) -> str:
    return (
        "Outputs of the first seed's networks at three held-out positions (bump code, box held out, "
        f"N = {result.attrs['size']}), with the held-out error over blank below; held-out accuracy of every decoder "
        "and variant, one dot per network (lines are medians); factorization and spread of log10 dv by stage (0: "
        "input); and correlation between families of kernels and the cosine similarity of held-out and kept outputs, "
        f"{seed_count(result['factorization'])}."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    rows = []
    for decoder in DECODERS:
        own = result.sel(variant=BASE, decoder=decoder).mean("seed")
        errors = cell(own["ood_over_blank"]), cell(own["id_over_blank"], 4)
        rows.append([decoder, *errors, cell(own["ood_accuracy"], percent=True), cell(superposition.superposed(own))])
    heads = ["held-out error / blank", "kept error / blank", "held-out accuracy"]
    more = "variance explained by training images that share x or y, less by those that share neither"
    return [["mean", *heads, more], *rows]


FIGURES = (
    FigureSpec("attention", "Decoders that are given each pixel's position", ("attention",), draw, caption, table),
)
