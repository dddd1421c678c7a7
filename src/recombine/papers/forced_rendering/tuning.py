"""What are neurons of stripe-trained networks tuned to? (App. E.4, Fig. 4f, 15)

Pictures of the stripe study's networks: for the first seed, maps of the most varying neuron of each of the most varying
channels, at four stages. The indices that claims are judged on are in the stripe study's Dataset.

Judged on the stripe study's networks. Indices are means over a stage's units. *Changes along stages* are from the first
hidden stage to the output: a rise of 0.05 is 0.05 of the units' variance, however deep the network is. *Late stages*
are the last hidden one and the output; their slope is per e-fold of bumps (natural logarithm), the stricter reading,
and needs all of a seed's networks with bumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.metrics import features
from recombine.panels import COLORS, band, color_limits, divided, grid_image, seed_count, styled
from recombine.papers.forced_rendering.samples import PerSeed, difference, sample
from recombine.papers.forced_rendering.stripes import FULL, STRIPES_AND_BUMPS, STRIPES_ONLY, WITH, StripeSettings
from recombine.papers.forced_rendering.stripes_claims import added, all_bumps, hidden_stages, many, striped, with_bumps
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import fall, first_hidden, last_hidden, listed_attribute, output

ARMS = (STRIPES_ONLY, STRIPES_AND_BUMPS)


SHOWN_STAGES = 4
NEURONS = 3
"""Neurons kept per stage."""
INNER = {"map": ("shown", "neuron", "y", "x")}
"""Dimensions of what is measured."""


class TuningStudy(Study[StripeSettings]):
    """Neurons of stripe-trained networks."""

    name: ClassVar[str] = "tuning"
    question: ClassVar[str] = "What are the neurons of a composing network tuned to?"
    settings: ClassVar[type[StripeSettings]] = StripeSettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("features",)

    def arms(self, preset: StripeSettings) -> list[Arm]:
        numbers = (0, preset.many_bumps)
        return [Arm((name,), preset.striped_spec(bumps), extra=True) for name, bumps in zip(ARMS, numbers, strict=True)]

    def measure(self, trials: Trials[StripeSettings]) -> xarray.Dataset:
        preset = trials.preset
        maps = tabulate(trials.pictured, ("arm",), _maps, INNER).isel(seed=0, drop=True)
        names = [f"layer{k}" for k in _shown_stages(preset.depth)]
        return maps.assign(**grid_variables(trials.first.spec)).assign_coords(shown=names).assign_attrs(
            base_attributes(trials, size=preset.size, bumps=preset.many_bumps)
        )  # fmt: skip


def _shown_stages(depth: int) -> list[int]:
    """Up to four stages from first to last hidden one."""
    return sorted({round(k) for k in np.linspace(0, depth, SHOWN_STAGES)})


def _maps(batch: Batch) -> dict[str, Any]:
    """Maps of neurons at some stages."""
    decoder: Any = batch.spec.decoder
    kept = {f"layer{k}" for k in _shown_stages(decoder.depth)}
    points, maps = batch.task.grid.points.to(batch.device), []
    for name, stage in features(batch.reader(), points, members=1, memory=batch.memory):
        if name in kept:
            # The most varying neurons of different channels, so that they are not neighbours of one another.
            variance = stage.var(dim=1).unflatten(1, (decoder.width, -1))
            best, where = variance.max(dim=2)
            strongest = best.argsort(dim=1, descending=True)[:, :NEURONS]
            chosen = strongest * variance.shape[2] + where.gather(1, strongest)
            neurons = stage.take_along_dim(chosen[:, None, :], dim=2).mT
            maps.append(neurons.unflatten(2, batch.task.grid.shape).mT)
    return {"map": torch.stack(maps, dim=1)}


STUDY = TuningStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


STRIPE, LOCAL = "stripe_index", "localisation_index"


# -- C13: along stages -------------------------------------------------------------------------------------------------


def _changing(words: str, name: str, sign: int) -> Statement:
    """That an index falls, or rises for a sign of −1, along the stages, more so with stripes than with bumps alone."""

    def change(data: Data, bumps: int) -> dict[str, Sample]:
        changes = difference(lambda own: sign * fall(own[name]), striped(data, bumps), all_bumps(data))
        return {with_bumps(bumps): changes}

    def otherwise(data: Data) -> dict[str, Sample]:
        cases = change(data, 0) if 0 in added(data) else {}
        own, full = striped(data, many(data)), all_bumps(data)
        gap = own[name] - full[name]
        for stage in hidden_stages(gap)[1:]:
            cases[f"to layer {stage - 1}"] = sample(sign * (first_hidden(gap) - gap.isel(stage=stage)), own, full)
        return cases

    criterion = effect(f"{words}, first hidden stage to output, with stripes less bumps alone", 0.05)
    return Statement(criterion, lambda data: change(data, many(data)), otherwise)


# -- C24: with more bumps ----------------------------------------------------------------------------------------------


def _late(values: xarray.DataArray) -> xarray.DataArray:
    return (last_hidden(values) + output(values)) / 2


def _slopes(data: Data, readings: Mapping[str, PerSeed]) -> dict[str, Sample]:
    """Least-squares slopes of numbers against the logarithm of the bumps, seed by seed."""
    numbers = np.array([bumps for bumps in added(data) if bumps])
    if len(numbers) < 2:
        return {}
    networks = [striped(data, int(bumps)) for bumps in numbers]
    centred = np.log(numbers) - np.log(numbers).mean()
    weights = centred / np.square(centred).sum()
    return {
        name: sample(
            reduce(add, (read(own) * weight for own, weight in zip(networks, weights, strict=True))), *networks
        )
        for name, read in readings.items()
    }


OTHERWISE: dict[str, PerSeed] = {
    "last hidden stage": lambda own: last_hidden(own[LOCAL]),
    "output": lambda own: output(own[LOCAL]),
    "stripe index, falling": lambda own: -_late(own[STRIPE]),
}
"""Other readings of what sharpens with more bumps."""
CLAIMS = (
    Claim(
        "C13",
        "Tuning is stripe-like in early and bump-like in late stages of stripe-trained networks",
        "§4.2, Fig. 4e–f, 15",
        statements=(
            _changing("fall of the stripe index", STRIPE, 1),
            _changing("rise of the localisation index", LOCAL, -1),
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
                lambda data: _slopes(data, OTHERWISE),
            ),
        ),
        studies=("stripes",),
    ),
)


# -- figure ----------------------------------------------------------------------------------------------------------


def tuning_figure(result: xarray.Dataset, stripes: xarray.Dataset) -> Figure:
    """For each arm and four stages, a neuron's map and its two tuning curves; below, the indices by stage."""
    stages, x, y = result.sizes["shown"], result["x"].values, result["y"].values
    with styled():
        figure = pyplot.figure(figsize=(9.8, 1.25 * stages + 2.6), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1.2 * stages, 2.2])
        for part, arm in zip(divided(top, 1, 2), ARMS, strict=True):
            axes = part.subplots(stages, 4, gridspec_kw={"width_ratios": [1, 1, 1.2, 1.2]}, squeeze=False)
            name = arm if arm == STRIPES_ONLY else f"stripes and {result.attrs['bumps']} bumps"
            part.suptitle(name, fontsize=9)
            for row in range(stages):
                maps = result["map"].sel(arm=arm).isel(shown=row)
                for column in range(2):
                    values = maps.isel(neuron=column).values
                    grid_image(axes[row, column], values, result, **color_limits(values, 0, 100))
                for column, (at, over) in enumerate(((x, 0), (y, 1)), start=2):
                    for neuron, color in zip(range(2), COLORS, strict=False):
                        axes[row, column].plot(at, maps.isel(neuron=neuron).values.mean(axis=over), color=color)
                    axes[row, column].set_yticks([])
                    if row < stages - 1:
                        axes[row, column].set_xticklabels([])
                axes[row, 0].set_ylabel(str(result["shown"].values[row]))
            for column, title in enumerate(("neuron 1", "neuron 2", "mean over y", "mean over x")):
                axes[0, column].set_title(title, fontsize=8)
            axes[-1, 2].set_xlabel("x")
            axes[-1, 3].set_xlabel("y")
        lines = bottom.subplots(1, 2)
        for ax, name in zip(lines, ("stripe_index", "localisation_index"), strict=True):
            for (label, own), color in zip(_trained(stripes).items(), COLORS, strict=False):
                band(ax, own[name], label, color)
            ax.set_title(name.replace("_", " "))
            ax.set_xlabel("stage (0: input)")
            ax.set_ylim(-0.03, 1.03)
        lines[0].legend(fontsize=8)
    return figure


def _trained(stripes: xarray.Dataset) -> dict[str, xarray.Dataset]:
    """The networks whose indices are shown: stripes with more and more bumps, and all bumps alone."""
    striped = {with_bumps(bumps): stripes.sel(family=WITH, bumps=bumps) for bumps in listed_attribute(stripes, "added")}
    return {**striped, "bumps alone": stripes.sel(family=FULL, bumps=stripes.attrs["full"])}


def tuning_caption(result: xarray.Dataset, stripes: xarray.Dataset) -> str:
    """Indices in words."""
    words = []
    for label, own in _trained(stripes).items():
        stripe, local = (
            own[name].mean("seed").dropna("stage").values for name in ("stripe_index", "localisation_index")
        )
        words.append(
            f"{label}: stripe index {stripe[1]:.2f} in the first layer and {stripe[-1]:.2f} in the output, "
            f"localisation {local[1]:.2f} and {local[-1]:.2f}"
        )
    return (
        "Activation over (x, y) of the most varying neuron of each of the two most varying channels of a stage, and "
        "its means over y and over x (top, first seed); mean indices over all neurons by stage, with standard errors "
        f"over {seed_count(stripes['stripe_index'].sel(family=WITH))} (bottom). "
        + "; ".join(words) + "."
    )  # fmt: skip


FIGURES = (
    FigureSpec("fig15", "Tuning of stripe-trained networks", ("tuning", "stripes"), tuning_figure, tuning_caption),
)
