"""Does forced rendering scale to three, four and five factors? (not in the paper)

Bumps vary in x and y, then also in intensity, size and orientation. The paper's box in x and y is held out for all
values of the other factors, so the held-out fraction is independent of the number of factors. CNNs are trained without
a remedy, with isolated factors (30 % of the examples show one value of one factor alone) or with isolated pairs (two
factors without the others). Low-rank decoders are trained with no penalty or both, and coordinate MLPs without a
remedy. A bump without x and y is a uniform image, so size and orientation are visible only together with x or y.

An output is *right* if, for every factor, the nearest image among those that differ from the target in this factor only
has the right value (`nearest_values`). Values that a perfect image does not show (`readable`) are not scored. The
positional accuracy (brightest pixel within one pixel) is also reported, but ignores the other factors and is often high
by chance at N = 14. For a few networks, the products in held-out outputs are counted (Eq. 17). "Kept" combinations are
those not held out.

With more factors, networks need other steps, learning rates and strengths. These are chosen for every number of factors
and every arm among equally many choices, by scores on the training set alone (benchmarks/factors_search.py), and stored
in `factors_recipes.json` as multiples of the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.decoders import CNN, CoordinateMLP, DecoderSpec, LowRank
from recombine.metrics import nearest_values
from recombine.papers.forced_rendering.penalties import PENALTIES
from recombine.papers.forced_rendering.presets import Common, kept_combinations
from recombine.papers.forced_rendering.samples import (
    FAILS,
    Statistic,
    difference,
    fit,
    held_out_statements,
    measured,
    trained,
)
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Fit, above, effect
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
EPSILON, LARGEST_RANK = 0.3, 4
"""Largest relative error allowed for a sum of products, and the largest number of products to search for."""
Fitting = Callable[[xarray.Dataset], Fit]
RIGHT, RIGHT_KEPT = "all_values_accuracy", "kept_values_accuracy"
SHARE = "share of held-out outputs with every value right, relative to that of trained combinations"
COMPOSES, LEAST_GAIN = 0.9, 0.3
SAME_IMAGE = 1e-6
"""Largest squared distance, relative to an image's energy, at which two images count as the same."""
RECIPES = Path(__file__).with_name("factors_recipes.json")


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
    factors_seeds: Seeds = 56
    """Number of seeds in the factors study."""
    factors_searched: Count = 4
    """Number of networks per arm, and of pixels per network, for which products are counted."""
    factors_tuned: bool = True
    """Whether to use the recipes chosen for each number of factors (`factors_recipes.json`)."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "factors_size": 10, "factors_counts": (2, 3), "factors_values": (3, 3, 4), "factors_data": (30,),
            "factors_width": 16, "factors_depth": 2, "factors_channels": 4, "factors_steps": 350,
            "factors_low_rank_steps": 350, "factors_lr": 4e-3, "factors_seeds": 1, "factors_searched": 1,
            "factors_tuned": False,
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
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "nearest_values", "pixel_ranks", "squared_error",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        chosen = recipes() if preset.factors_tuned else {}
        specs = [
            (arm, count, with_choice(spec, **chosen.get(str(count), {}).get(arm, {})))
            for count in preset.factors_counts
            for arm, spec in remedies(preset, count)
        ]
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


@cache
def recipes() -> dict[str, dict[str, dict[str, float]]]:
    """Return the chosen multiples of the defaults by number of factors and arm; defaults where there is no entry."""
    return dict(json.loads(RECIPES.read_text()))


def with_choice(spec: RunSpec, *, steps: float = 1, lr: float = 1, strength: float = 1) -> RunSpec:
    """Multiply a spec's steps, learning rate, and penalties' weights (weight decay if there are no penalties).

    >>> spec = with_choice(RunSpec(recipe={"steps": 10}), steps=2, strength=0.1)
    >>> spec.recipe.steps, spec.recipe.weight_decay
    (20, 0.001)
    """
    recipe = spec.recipe
    recipe = recipe.replace(steps=round(steps * spec.total_steps), lr=_rounded(lr * recipe.lr))
    if not spec.penalties:
        return spec.replace(recipe=recipe.replace(weight_decay=_rounded(strength * recipe.weight_decay)))
    penalties = [own.replace(weight=_rounded(strength * own.weight)) for own in spec.penalties]
    return spec.replace(recipe=recipe, penalties=penalties)


def _rounded(value: float) -> float:
    """Return a product without its rounding error, so that equal choices give equal specs."""
    return float(f"{value:.9g}")


def remedies(preset: Settings, count: int) -> Iterator[tuple[str, RunSpec]]:
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
    own, hidden = task.grid.indices.to(batch.device), ~readable(targets, task.grid.shape)
    right = torch.stack([(nearest_values(member.flatten(1).to(batch.device), targets, task.grid.shape) == own) | hidden
                         for member in outputs]).cpu()  # fmt: skip
    each = right.double().masked_fill(hidden.cpu(), torch.nan)
    held, kept = right[:, task.held_out], right[:, ~task.held_out]
    return {
        "value_accuracy": each[:, task.held_out].nanmean(dim=1),
        "all_values_accuracy": held.all(dim=-1).double().mean(dim=1),
        "kept_values_accuracy": kept.all(dim=-1).double().mean(dim=1),
    }


def readable(targets: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `[point, factor]`, whether a target shows a factor's value, i.e. no other value gives the same image.

    >>> readable(torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]), (2, 2)).tolist()
    [[True, False], [True, False], [True, True], [True, True]]
    """
    shown = []
    for factor in range(len(shape)):
        lines = targets.double().unflatten(0, shape).movedim(factor, len(shape) - 1)
        distance = torch.cdist(lines, lines, compute_mode="donot_use_mm_for_euclid_dist").square()
        same = distance <= SAME_IMAGE * lines.square().sum(dim=-1, keepdim=True)
        shown.append((same.sum(dim=-1) == 1).movedim(-1, factor).flatten())
    return torch.stack(shown, dim=-1)


def training_scores(batch: Batch) -> dict[str, Tensor]:
    """Return the scores on the training set by which recipes are chosen: error over blank and share right."""
    outputs = batch.outputs(batch.task.grid.points)
    fit, values = training_fit(batch, outputs), _values(batch, outputs)
    return {"training_over_blank": fit["training_over_blank"], RIGHT_KEPT: values[RIGHT_KEPT]}


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


def fit_by(networks: xarray.Dataset, score: str) -> Fit:
    """Return how well networks fit their training data, by their error and a score on trained combinations.

    Positions alone would not do for values, since networks may place bumps without learning the other factors.
    """
    scores = np.asarray(networks[score].values, dtype=float)
    return Fit(np.asarray(networks["training_over_blank"].values, dtype=float), scores, trained(networks).values)


def relative(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the share of held-out outputs that are right, relative to that of trained combinations."""
    kept = networks[RIGHT_KEPT]
    return networks[RIGHT] / kept.where(kept > 0)


def _each(data: Data, arm: str, words: str = "", other: str = "") -> dict[str, tuple[xarray.Dataset, ...]]:
    """Return the Dataset of an arm, and of another one if given, for each number of factors with trained networks."""
    full = data["factors"].sel(data=ALL_KEPT)
    cases = {f"{n} factors{words}": full.sel(count=n) for n in full["count"].values}
    arms = [name for name in (arm, other) if name]
    pairs = {case: tuple(own.sel(arm=name) for name in arms) for case, own in cases.items()}
    return {case: own for case, own in pairs.items() if all(trained(part).any() for part in own)}


def _samples(data: Data, arm: str, statistic: Statistic, words: str = "", fit: Fitting = fit) -> dict[str, Sample]:
    return {case: measured(own, statistic, fit=fit) for case, (own,) in _each(data, arm, words).items()}


def _failing(data: Data, score: str) -> dict[str, Sample]:
    """Return a held-out score of CNNs without a remedy."""
    return _samples(data, CNN_ALONE, f"ood_{score}")


def _otherwise_failing(data: Data, score: str) -> dict[str, Sample]:
    """Return the values' score instead of that of positions."""
    by_values = partial(fit_by, score=RIGHT_KEPT)
    return _samples(data, CNN_ALONE, RIGHT, ", all values", by_values) if score == "accuracy" else {}


def _composing(arm: str, words: str, other: str, gain: str) -> tuple[Statement, Statement]:
    """Return statements that the networks of an arm compose, and do so more often than those of another arm."""

    def right(data: Data, learnt_by: str) -> dict[str, Sample]:
        return _samples(data, arm, relative, fit=partial(fit_by, score=learnt_by))

    def otherwise(data: Data, learnt_by: str) -> dict[str, Sample]:
        own = partial(fit_by, score=learnt_by)
        cases = _samples(data, arm, "ood_accuracy", ", in place") | _samples(data, arm, RIGHT, ", absolute", own)
        return cases | (_samples(data, CNN_PAIRS, relative, ", isolated pairs", own) if arm == CNN_ISOLATED else {})

    def gains(data: Data, learnt_by: str) -> dict[str, Sample]:
        pairs = _each(data, arm, other=other)
        return {case: difference(relative, *pair, fit=partial(fit_by, score=learnt_by)) for case, pair in pairs.items()}

    learnt_by = {"learnt_by": RIGHT_KEPT}
    return (
        Statement(above(f"{SHARE}, {words}", COMPOSES, parameters=learnt_by), right, otherwise),
        Statement(effect(f"{SHARE}, {gain}", LEAST_GAIN, word="specific", parameters=learnt_by), gains),
    )


_claim = partial(Claim, studies=("factors",), ours=True)
CLAIMS = (
    _claim(
        "C31",
        "CNNs fail to compose whether there are two, three, four or five factors",
        "§3.2",
        held_out_statements(FAILS, _failing, _otherwise_failing),
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
