"""Does forced rendering scale to three, four and five factors? (not in the paper)

Bumps vary in x and y, then also in intensity, size and orientation. The paper's box in x and y is held out for all
values of the other factors, so the held-out fraction is independent of the number of factors. CNNs are trained without
a remedy, with isolated factors (30 % of the examples show one value of one factor alone) or with isolated pairs (two
factors without the others). Low-rank decoders are trained with no penalty or both, and coordinate MLPs without a
remedy. A bump without x and y is a uniform image, so size and orientation are visible only together with x or y.

An output is *right* if, for every factor, the nearest image among those that differ from the target in this factor only
has the right value (`nearest_values`). The positional accuracy (brightest pixel within one pixel) is also
reported, but ignores the other factors and is often high by chance at N = 14. For a few networks, the products in
held-out outputs are counted (Eq. 17). "Kept" combinations are those not held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from recombine.decoders import CNN, CoordinateMLP, DecoderSpec, LowRank
from recombine.metrics import nearest_values
from recombine.panels import COLORS, bare, divided, letter, seed_count, styled
from recombine.papers.forced_rendering.penalties import PENALTIES
from recombine.papers.forced_rendering.presets import Common, kept_combinations
from recombine.papers.forced_rendering.samples import difference, measured_by
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.theory import LARGEST_RANK
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, above, below, effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import DRAWING, Batch, base_attributes, tabulate
from recombine.reproduction.preset import AnyNumber, Count, Positive, Seeds, Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks import BumpsTask
from recombine.tasks.training_sets import Each
from recombine.theory.ranks import pixel_ranks

CNN_ALONE, CNN_ISOLATED, CNN_PAIRS = "CNN", "CNN, isolated factors", "CNN, isolated pairs"
LOW_RANK, LOW_RANK_PENALISED = "low-rank", "low-rank, penalties"
COORDINATE = "coordinate MLP"
ARMS = (CNN_ALONE, CNN_ISOLATED, CNN_PAIRS, LOW_RANK, LOW_RANK_PENALISED, COORDINATE)
FEWER_DATA = (CNN_ISOLATED, COORDINATE)
"""Arms (experimental conditions) that are also trained on fewer combinations."""
ALL_KEPT = 0
"""Label of training sets with all kept combinations."""
EPSILON = 0.3
"""Largest relative error allowed for a sum of products, as in the theory study."""
RIGHT, RIGHT_SHARE = "all_values_accuracy", "share of held-out outputs that are right"
COMPOSES, LEAST_GAIN = 0.9, 0.3


class Settings(Common):
    factors_size: Count = 14
    """Image side in pixels, and number of values of x and of y."""
    factors_counts: Several = (2, 3, 4, 5)
    """Numbers of factors to train with."""
    factors_values: Several = (4, 4, 6)
    """Numbers of values of intensity, size and orientation."""
    factors_data: AnyNumber = (20, 80, 320)
    """Sizes of smaller training sets, used in addition to all kept combinations."""
    factors_width: Count = 64
    """Channels of the CNNs and token size of the coordinate MLPs."""
    factors_depth: Count = 3
    """Depth of all networks in the factors study."""
    factors_channels: Count = 8
    """Hidden channels of low-rank decoders; the two channels used for two factors are too few for five."""
    factors_steps: Count = 6000
    """Optimiser steps."""
    factors_low_rank_steps: Count = 12000
    """Optimiser steps for low-rank decoders."""
    factors_lr: Positive = 1e-3
    """Learning rate."""
    factors_seeds: Seeds = 40
    """Number of seeds in the factors study."""
    factors_searched: Count = 4
    """Number of networks per arm, and of pixels per network, for which products are counted."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "factors_size": 10, "factors_counts": (2, 3), "factors_values": (3, 3, 4), "factors_data": (30,),
            "factors_width": 16, "factors_depth": 2, "factors_channels": 4, "factors_steps": 500,
            "factors_low_rank_steps": 500, "factors_lr": 4e-3, "factors_seeds": 3, "factors_searched": 1,
        }
    }  # fmt: skip

    def bumps_task(self, count: int, **fields: Any) -> BumpsTask:
        """Return the task with the first `count` factors and the box in x and y held out."""
        intensity, size, orientation = self.factors_values
        side = f"={self.factors_size}"
        texts = (f"x{side}", f"y{side}", f"intensity={intensity}", f"size=0.75..1.5..{size}",
                 f"orientation={orientation}")  # fmt: skip
        return BumpsTask(
            size=self.factors_size, factors=texts[:count], holdout="center:factors=x,y", training="each", **fields
        )

    def factors_spec(self, decoder: DecoderSpec, task: BumpsTask, **recipe: Any) -> RunSpec:
        """Return a run spec with this study's recipe."""
        fields = {"steps": self.factors_steps, "lr": self.factors_lr, **recipe}
        return RunSpec(task=task, decoder=decoder, recipe=self.recipe(**fields))


class FactorsStudy(Study[Settings]):
    name: ClassVar[str] = "factors"
    question: ClassVar[str] = "Does forced rendering scale to three, four and five factors?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "nearest_values", "pixel_ranks", "squared_error",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        specs = [(arm, count, spec) for count in preset.factors_counts for arm, spec in _remedies(preset, count)]
        full = [Arm((arm, count, ALL_KEPT), spec, seeds=preset.factors_seeds) for arm, count, spec in specs]
        return full + [
            Arm((arm, count, data), spec.replace(task=spec.task.replace(training=f"pick:{data}")),
                seeds=preset.factors_seeds)
            for arm, count, spec in specs if arm in FEWER_DATA
            for data in preset.factors_data if data < kept_combinations(spec)
        ]  # fmt: skip

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        preset = trials.preset

        def measured(batch: Batch) -> dict[str, Any]:
            outputs = batch.outputs(batch.task.grid.points)
            return {
                **batch.scores, **training_fit(batch, outputs), **_values(batch, outputs),
                **_products(batch, outputs, preset), **_drawn(batch, outputs),
            }  # fmt: skip

        inner = {"value_accuracy": ("factor",), "drawing": DRAWING, "truth": DRAWING}
        result = tabulate(trials, ("arm", "count", "data"), measured, inner)
        attributes = base_attributes(trials, size=preset.factors_size, epsilon=EPSILON)
        names = ["x", "y", "intensity", "size", "orientation"]
        result = result.assign_coords(factor=names[: result.sizes["factor"]])
        first = result[["drawing", "truth"]].isel(seed=0, drop=True).sel(data=ALL_KEPT, drop=True)
        return result.drop_vars(["drawing", "truth"]).merge(first).assign_attrs(attributes)


def _remedies(preset: Settings, count: int) -> Iterator[tuple[str, RunSpec]]:
    """Yield the arms and their specs for the given number of factors."""
    task, one_hot = preset.bumps_task(count), preset.bumps_task(count, encoding="onehot")
    cnn = CNN(width=preset.factors_width, depth=preset.factors_depth)
    isolated = preset.bumps_task(count, isolated=True, mixing=0.3)
    low_rank = LowRank(channels=preset.factors_channels, depth=preset.factors_depth)
    coordinate = CoordinateMLP(width=preset.factors_width, depth=preset.factors_depth)
    # With so few channels, lower precision saves no time.
    recipe = {"precision": "float32", "steps": preset.factors_low_rank_steps}
    yield CNN_ALONE, preset.factors_spec(cnn, task)
    yield CNN_ISOLATED, preset.factors_spec(cnn, isolated)
    if count > 2:
        yield CNN_PAIRS, preset.factors_spec(cnn, isolated.replace(isolated_together=2))
    yield LOW_RANK, preset.factors_spec(low_rank, one_hot, **recipe)
    yield LOW_RANK_PENALISED, preset.factors_spec(low_rank, one_hot, **recipe).replace(penalties=PENALTIES)
    yield COORDINATE, preset.factors_spec(coordinate, task)


def _values(batch: Batch, outputs: Tensor) -> dict[str, Tensor]:
    """Return the share of held-out outputs with each factor and with all factors right, and of kept ones with all."""
    task = batch.task
    targets = task.render(task.grid.points).float().flatten(1).to(batch.device)
    own = task.grid.indices.to(batch.device)
    right = torch.stack([nearest_values(member.flatten(1).to(batch.device), targets, task.grid.shape) == own
                         for member in outputs]).cpu()  # fmt: skip
    held, kept = right[:, task.held_out], right[:, ~task.held_out]
    return {
        "value_accuracy": held.double().mean(dim=1),
        "all_values_accuracy": held.all(dim=-1).double().mean(dim=1),
        "kept_values_accuracy": kept.all(dim=-1).double().mean(dim=1),
    }


def _products(batch: Batch, outputs: Tensor, preset: Settings) -> dict[str, Tensor]:
    """Return the mean number of products per pixel in the first networks' held-out outputs and in target images."""
    task, searched = batch.task, preset.factors_searched
    targets = task.render(task.grid.points).float().flatten(1)
    products = torch.full((len(batch),), torch.nan, dtype=torch.float64)
    target_products = products.clone()
    chosen = [k for k, run in enumerate(batch.runs) if run.spec.seed < preset.first_seed + searched]
    if chosen and task.training == Each():
        brightest = targets.square().sum(dim=0).topk(min(searched, targets.shape[1])).indices
        own, right = (
            pixel_ranks(images[..., brightest].to(batch.device), task.grid.shape, task.held_out, EPSILON, LARGEST_RANK)
            for images in (outputs[chosen].flatten(2), targets)
        )
        products[chosen], target_products[chosen] = own.mean.cpu(), right.mean.cpu().expand(len(chosen))
    return {"products": products, "target_products": target_products}


def _drawn(batch: Batch, outputs: Tensor) -> dict[str, Tensor]:
    """Return outputs and target images at four evenly spaced held-out points."""
    task = batch.task
    held = torch.nonzero(task.held_out).flatten()
    places = held[torch.linspace(0, len(held) - 1, 6).round().long()[1:-1]]
    truth = task.render(task.grid.points[places]).float()
    return {"drawing": outputs[:, places], "truth": truth.expand(len(batch), *truth.shape)}


STUDY = FactorsStudy()


def _scores(data: Data, arm: str, name: str, words: str = "") -> dict[str, Sample]:
    """Return an arm's score for each number of factors."""
    return measured_by(data["factors"].sel(arm=arm, data=ALL_KEPT), name, f"{{count}} factors{words}", "count")


def _right(bound: Callable[[str, float], Criterion], arm: str, words: str) -> Statement:
    """Return a statement about the share of right outputs; alternatives are positional accuracy and isolated pairs."""

    def alternatives(data: Data) -> dict[str, Sample]:
        cases = _scores(data, arm, "ood_accuracy", ", in place")
        return cases | (_scores(data, CNN_PAIRS, RIGHT, ", isolated pairs") if arm == CNN_ISOLATED else {})

    return Statement(bound(f"{RIGHT_SHARE}, {words}", COMPOSES), lambda data: _scores(data, arm, RIGHT), alternatives)


def _composing(arm: str, words: str, other: str, gain: str) -> tuple[Statement, Statement]:
    """Return statements that the networks of an arm compose, and do so more often than those of another arm."""

    def gains(data: Data) -> dict[str, Sample]:
        own, others = (data["factors"].sel(arm=name, data=ALL_KEPT) for name in (arm, other))
        counts = own["count"].values
        return {f"{n} factors": difference(RIGHT, own.sel(count=n), others.sel(count=n)) for n in counts}

    return _right(above, arm, words), Statement(effect(f"{RIGHT_SHARE}, {gain}", LEAST_GAIN), gains)


_claim = partial(Claim, studies=("factors",), ours=True)
CLAIMS = (
    _claim(
        "C31",
        "CNNs fail to compose whether there are two, three, four or five factors",
        "§3.2",
        (_right(below, CNN_ALONE, "CNN alone"),),
    ),
    _claim(
        "C32",
        "Examples of isolated factors make CNNs compose two to five factors",
        "§4.2",
        _composing(CNN_ISOLATED, "CNN with isolated factors", CNN_ALONE, "with less without isolated factors"),
    ),
    _claim(
        "C33",
        "Low-rank embeddings with both penalties compose two to five factors",
        "§4.1",
        _composing(LOW_RANK_PENALISED, "low-rank, penalties", LOW_RANK, "with less without penalties"),
    ),
    _claim(
        "C34",
        "Decoders that render each pixel from code and coordinate compose two to five factors with no remedy",
        "E.3",
        _composing(COORDINATE, "coordinate MLP", CNN_ALONE, "coordinate MLP less CNN"),
    ),
)


def factors_figure(result: xarray.Dataset) -> Figure:
    """Plot accuracy, error and products by number of factors, accuracy by amount of data, and outputs."""
    full = result.sel(data=ALL_KEPT)
    titles = {
        RIGHT: "every value right, held out",
        "ood_accuracy": "bumps in place, held out",
        "ood_over_blank": "error over blank, held out",
        "products": "products per pixel, held out",
    }
    with styled():
        figure = pyplot.figure(figsize=(12.4, 6.4), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1])
        panels = top.subplots(1, 4)
        for ax, place, (name, title) in zip(panels, "abcd", titles.items(), strict=True):
            _by_count(ax, full, name)
            letter(ax, place, title)
        for ax in panels[:2]:
            ax.set_ylim(-0.03, 1.03)
        panels[2].set_yscale("log")
        panels[2].axhline(1, color="0.7", linewidth=0.8)
        panels[3].plot(full["count"], full["target_products"].mean(["arm", "seed"]), "k:", label="right images")
        panels[3].legend(fontsize=7)
        left, right = divided(bottom, 1, 2, width_ratios=[1, 1.25])
        for ax, place, arm in zip(left.subplots(1, 2, sharey=True), "ef", FEWER_DATA, strict=True):
            _by_data(ax, result.sel(arm=arm))
            letter(ax, place, arm)
        left.legend(*left.axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=4)
        left.supylabel("every value right, held out", fontsize=8)
        _drawings(right, full)
    return figure


def _by_count(ax: Axes, full: xarray.Dataset, name: str) -> None:
    """Plot each network as a dot, with a line through the means of each arm."""
    counts = full["count"].values
    for place, (arm, color) in enumerate(zip(ARMS, COLORS, strict=False)):
        values = full[name].sel(arm=arm)
        at = counts + 0.07 * (place - (len(ARMS) - 1) / 2)
        dots = values.transpose("count", "seed").values
        ax.plot(at, dots, "o", markersize=2, alpha=0.35, color=color, markeredgewidth=0)
        ax.plot(at, values.mean("seed"), "-", color=color, label=arm)
    ax.set(xticks=counts, xlabel="factors")


def _by_data(ax: Axes, result: xarray.Dataset) -> None:
    """Plot the share of right outputs against the number of training combinations, by number of factors."""
    amounts = np.array([int(data) for data in result["data"].values if data != ALL_KEPT])
    for count, color in zip(result["count"].values, COLORS, strict=False):
        means = result[RIGHT].sel(count=count, data=amounts).mean("seed").values
        ax.plot(amounts, means, "o-", markersize=3, color=color, label=f"{int(count)} factors")
    ax.axhline(COMPOSES, color="0.7", linewidth=0.8)
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="combinations trained on")
    ax.set_xticks(amounts, [str(amount) for amount in amounts])
    ax.set_xticks([], minor=True)


def _drawings(figure: Figure, full: xarray.Dataset) -> None:
    """Show target images and the first seed's outputs at a few held-out points, for the largest number of factors."""
    own = full.sel(count=full["count"].values[-1])
    images = {"right images": own["truth"].sel(arm=ARMS[0]), **{arm: own["drawing"].sel(arm=arm) for arm in ARMS}}
    images = {name: drawn for name, drawn in images.items() if np.isfinite(drawn.values).any()}
    axes = figure.subplots(own.sizes["sample"], len(images))
    for column, (name, drawn) in zip(axes.T, images.items(), strict=True):
        for ax, image in zip(column, drawn.values, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=1)
            bare(ax)
        column[0].set_title(name.replace(", ", ",\n"), fontsize=7)
    figure.suptitle(f"(g) {int(own['count'])} factors, held out", fontsize=9)


def needed(result: xarray.Dataset, arm: str, count: int) -> str:
    """Return, as text, the smallest training-set size at which the mean share of right outputs reaches 90 %."""
    means = result[RIGHT].sel(arm=arm, count=count).mean("seed")
    enough = means["data"].values[means.values >= COMPOSES]
    fewer = enough[enough != ALL_KEPT]
    return str(int(fewer.min())) if len(fewer) else "all kept" if len(enough) else "not reached"


def factors_caption(result: xarray.Dataset) -> str:
    full = result.sel(data=ALL_KEPT)
    counts = [int(count) for count in result["count"].values]

    def line(name: str, arm: str) -> str:
        means = (full[name].sel(arm=arm, count=count).mean().item() for count in counts)
        return ", ".join("–" if np.isnan(mean) else f"{mean:.2f}" for mean in means)

    shares = "; ".join(f"{arm} {line(RIGHT, arm)} ({line('ood_accuracy', arm)})" for arm in ARMS)
    products = "; ".join(f"{arm} {line('products', arm)}" for arm in ARMS)
    data = "; ".join(f"{arm} {', '.join(needed(result, arm, count) for count in counts)}" for arm in FEWER_DATA)
    return (
        f"Bumps with {', '.join(map(str, counts))} factors, the box of x and y held out, trained on all kept "
        f"combinations; {seed_count(full['ood_accuracy'])}. Share of held-out outputs with every value "
        f"right (in place) by number of factors: {shares}. (d) Products of single-factor functions per pixel "
        f"(relative error {result.attrs['epsilon']:g}, counted up to 5): {products}. (e, f) Fewer combinations, "
        f"{seed_count(result['ood_accuracy'].sel(arm=COORDINATE).isel(data=slice(1, None)))}; smallest "
        f"number tried that reaches 90 % right: {data}. (g) The first seed's outputs."
    )


FIGURES = (FigureSpec("factors", "Remedies with more factors", ("factors",), factors_figure, factors_caption),)
