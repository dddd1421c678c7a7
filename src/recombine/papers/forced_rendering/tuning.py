"""What are neurons of stripe-trained networks tuned to? (App. E.4, Fig. 4f, 15)

For the first seed, the study stores maps of the highest-variance neuron in each of the highest-variance channels, at
four stages.

Claims are judged on tuning indices in the stripe study's Dataset, averaged over a stage's units. Late stages are the
last hidden stage and the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine import panels
from recombine.metrics import features
from recombine.papers.forced_rendering import stripes
from recombine.papers.forced_rendering.samples import PerSeed, difference, measured, sample
from recombine.papers.forced_rendering.stripes_claims import hidden_stages
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import fall, first_hidden, last_hidden, listed_attribute, output

ARMS = (stripes.STRIPES_ONLY, stripes.STRIPES_AND_BUMPS)
STRIPE, LOCAL = "stripe_index", "localisation_index"


class TuningStudy(Study[stripes.StripeSettings]):
    name: ClassVar[str] = "tuning"
    question: ClassVar[str] = "What are the neurons of a composing network tuned to?"
    settings: ClassVar[type[stripes.StripeSettings]] = stripes.StripeSettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("features",)

    def arms(self, preset: stripes.StripeSettings) -> list[Arm]:
        numbers = (0, preset.closest(stripes.MANY))
        return [Arm((name,), preset.striped_spec(bumps), extra=True) for name, bumps in zip(ARMS, numbers, strict=True)]

    def measure(self, trials: Trials[stripes.StripeSettings]) -> xarray.Dataset:
        preset, inner = trials.preset, {"map": ("shown", "neuron", "y", "x")}
        maps = tabulate(trials.pictured, ("arm",), _maps, inner).isel(seed=0, drop=True)
        attributes = base_attributes(trials, size=preset.size, bumps=preset.closest(stripes.MANY))
        shown = _shown_stages(preset.depth)
        return maps.assign(grid_variables(trials.first.spec)).assign_coords(shown=shown).assign_attrs(attributes)


def _shown_stages(depth: int) -> list[str]:
    """Return up to four hidden stages, from the first to the last."""
    return [f"layer{k}" for k in sorted({round(k) for k in np.linspace(0, depth, 4)})]


def _maps(batch: Batch) -> dict[str, Any]:
    """Return the activations of three neurons over the (x, y) grid at the stages shown."""
    decoder: Any = batch.spec.decoder
    shown = _shown_stages(decoder.depth)
    points, maps = batch.task.grid.points.to(batch.device), []
    for name, stage in features(batch.reader(), points, members=1, memory=batch.memory):
        if name in shown:
            # Only one neuron per channel, since neighbouring neurons of a channel have similar maps.
            variance = stage.var(dim=1).unflatten(1, (decoder.width, -1))
            best, where = variance.max(dim=2)
            strongest = best.argsort(dim=1, descending=True)[:, :3]
            chosen = strongest * variance.shape[2] + where.gather(1, strongest)
            neurons = stage.take_along_dim(chosen[:, None, :], dim=2).mT
            maps.append(neurons.unflatten(2, batch.task.grid.shape).mT)
    return {"map": torch.stack(maps, dim=1)}


STUDY = TuningStudy()


Compare = Callable[[xarray.Dataset, xarray.Dataset, PerSeed], Sample]
"""Function that returns a sample from stripe-trained networks, failing networks and a statistic."""


def _changing(words: str, name: str, sign: int) -> tuple[Statement, Statement]:
    """State that an index falls (or rises, if `sign=-1`) along the stages, and more with stripes than with bumps alone.

    The first statement is about stripe-trained networks, the second about their difference from failing networks.
    """

    def change(own: xarray.Dataset) -> xarray.DataArray:
        return sign * fall(own[name])

    def to_stage(stage: int) -> PerSeed:
        return lambda own: sign * (first_hidden(own[name]) - own[name].isel(stage=stage))

    def statement(criterion: Criterion, compare: Compare) -> Statement:
        def cases(data: Data) -> dict[str, Sample]:
            return at(data, int(data["stripes"].attrs["many"]))

        def at(data: Data, bumps: int) -> dict[str, Sample]:
            result = data["stripes"]
            own = compare(stripes.striped(result, bumps), stripes.all_bumps(result), change)
            return {stripes.with_bumps(bumps): own}

        def otherwise(data: Data) -> dict[str, Sample]:
            result = data["stripes"]
            found = at(data, 0) if 0 in listed_attribute(result, "added") else {}
            own, full = stripes.striped(result, int(result.attrs["many"])), stripes.all_bumps(result)
            for stage in hidden_stages(own[name])[1:]:
                found[f"to layer {stage - 1}"] = compare(own, full, to_stage(stage))
            return found

        return Statement(criterion, cases, otherwise)

    path = "first hidden stage to output"
    return (
        statement(effect(f"{words}, {path}, with stripes", 0.1), lambda own, full, read: measured(own, read)),
        statement(
            effect(f"{words}, {path}, with stripes less bumps alone", 0.05, word="specific"),
            lambda own, full, read: difference(read, own, full),
        ),
    )


def _late(values: xarray.DataArray) -> xarray.DataArray:
    return (last_hidden(values) + output(values)) / 2


def _slopes(data: Data, readings: Mapping[str, PerSeed]) -> dict[str, Sample]:
    """Return each seed's least-squares slopes of statistics against the logarithm of the number of bumps."""
    numbers = [bumps for bumps in listed_attribute(data["stripes"], "added") if bumps]
    if len(numbers) < 2:
        return {}
    networks = [stripes.striped(data["stripes"], bumps) for bumps in numbers]
    centred = np.log(numbers) - np.log(numbers).mean()
    weights = xarray.DataArray(centred / np.square(centred).sum(), dims="bumps")

    def slope(read: PerSeed) -> xarray.DataArray:
        return (xarray.concat([read(own) for own in networks], "bumps") * weights).sum("bumps", skipna=False)

    return {name: sample(slope(read), *networks) for name, read in readings.items()}


CLAIMS = (
    Claim(
        "C13",
        "Tuning is stripe-like in early and bump-like in late stages of stripe-trained networks",
        "§4.2, Fig. 4e–f, 15",
        statements=(
            *_changing("fall of the stripe index", STRIPE, 1),
            *_changing("rise of the localisation index", LOCAL, -1),
        ),
        studies=("stripes",),
    ),
    Claim(
        "C24",
        "Tuning sharpens as bumps accumulate",
        "App. E.4",
        statements=(
            Statement(
                effect("slope of late stages' localisation index against ln(bumps beside the stripes)", 0.02),
                lambda data: _slopes(data, {"late stages": lambda own: _late(own[LOCAL])}),
                lambda data: _slopes(
                    data,
                    {
                        "last hidden stage": lambda own: last_hidden(own[LOCAL]),
                        "output": lambda own: output(own[LOCAL]),
                        "stripe index, falling": lambda own: -_late(own[STRIPE]),
                    },
                ),
            ),
        ),
        studies=("stripes",),
    ),
)


def tuning_figure(result: xarray.Dataset, stripe_result: xarray.Dataset) -> Figure:
    """Plot maps and tuning curves of two neurons at four stages per experimental arm, with indices by stage below."""
    stages = result.sizes["shown"]
    with panels.styled():
        figure = pyplot.figure(figsize=(9.8, 1.25 * stages + 2.6), layout="constrained")
        top, bottom = panels.divided(figure, 2, 1, height_ratios=[1.2 * stages, 2.2])
        for part, arm in zip(panels.divided(top, 1, 2), ARMS, strict=True):
            axes = part.subplots(stages, 4, gridspec_kw={"width_ratios": [1, 1, 1.2, 1.2]}, squeeze=False)
            part.suptitle(arm if arm == ARMS[0] else f"stripes and {result.attrs['bumps']} bumps", fontsize=9)
            for row, line in enumerate(axes):
                image = stripes.neuron_row(line, result, result["map"].sel(arm=arm).isel(shown=row))
            for ax in axes[:-1, 2:].flat:
                ax.set_xticklabels([])
            for ax, title in zip(axes[0], ("neuron 1", "neuron 2", "mean over y", "mean over x"), strict=True):
                ax.set_title(title, fontsize=8)
            panels.color_bar(axes[:, :2], image, "share of range", location="bottom", ticks=(0, 1), aspect=30, pad=0.02)
            axes[-1, 2].set_xlabel("x")
            axes[-1, 3].set_xlabel("y")
        lines = bottom.subplots(1, 2)
        for ax, name in zip(lines, (STRIPE, LOCAL), strict=True):
            trained = _trained(stripe_result)
            colors = [*panels.shades(panels.COLORS[1], len(trained) - 1), panels.COLORS[0]]
            for (label, own), color in zip(trained.items(), colors, strict=True):
                panels.band(ax, own[name], label, color)
            ax.set(title=name.replace("_", " "), xlabel="stage (0: input)", ylim=(-0.03, 1.03))
        lines[1].legend(fontsize=7, ncols=2)
    return figure


def _trained(result: xarray.Dataset) -> dict[str, xarray.Dataset]:
    """Return the networks whose indices are shown: stripes with increasing numbers of bumps, and all bumps alone."""
    striped = {stripes.with_bumps(bumps): stripes.striped(result, bumps) for bumps in listed_attribute(result, "added")}
    return {**striped, "bumps alone": stripes.all_bumps(result)}


def tuning_caption(result: xarray.Dataset, stripe_result: xarray.Dataset) -> str:
    return (
        "Top: activation over (x, y), as a share of its range, of the highest-variance neuron in each of the two "
        "highest-variance channels, and its means over y and over x, first seed; bottom: indices by stage, means over "
        f"all neurons, with standard errors over {panels.seed_count(stripe_result[STRIPE].sel(family=stripes.WITH))}."
    )


def tuning_table(_: xarray.Dataset, stripe_result: xarray.Dataset) -> list[list[str]]:
    rows = []
    for label, own in _trained(stripe_result).items():
        values = [own[name].mean("seed").dropna("stage").values for name in (STRIPE, LOCAL)]
        rows.append([label, *(cell(value) for value in (values[0][1], values[0][-1], values[1][1], values[1][-1]))])
    places = ("first layer", "output")
    heads = [f"{name.replace('_', ' ')}, {place}" for name in (STRIPE, LOCAL) for place in places]
    return [["mean", *heads], *rows]


FIGURES = (
    FigureSpec(
        "fig15", "Tuning of stripe-trained networks", ("tuning", "stripes"), tuning_figure, tuning_caption, tuning_table
    ),
)
