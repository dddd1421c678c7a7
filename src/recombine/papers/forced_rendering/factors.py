"""Does forced rendering scale to three, four and five factors? (ours)

Bumps of which x and y vary, then intensity, size and orientation as well. Held out is the paper's box of x and y,
whatever the other factors are, so that the same share is held out for every number of factors. Networks are trained on
all kept combinations, for the same number of steps whatever the number of factors: CNNs alone, with isolated factors
(every value of every factor shown alone, three examples in ten) and with isolated pairs (every two factors shown
without the others); low-rank decoders without and with both penalties; coordinate MLPs. For data needed: CNNs with
isolated factors, and coordinate MLPs, on fewer combinations. A bump without x and y is a uniform image, so that size
and orientation alone show nothing; together with x or y they do.

Measured are run scores (error over blank; the brightest pixel within one pixel of x and y), which value of each factor
an output shows (`nearest_values`), and of a few networks the number of products in held-out outputs (Eq. 17).

By number of factors, networks trained on all kept combinations. *Right*: of every factor, the image nearest to an
output, all other factors being right, is that of the right value (`nearest_values`). Beside it the share of held-out
bumps whose brightest pixel is within one pixel of its place, which says nothing of intensity, size and orientation, and
at N = 14 is often so by chance: with seeds 0 to 3 in view, in which CNNs alone had 77 to 89 % in place and 20 to 38 %
right, the stricter one was made the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
import xarray
from torch import Tensor

from recombine.decoders import CNN, CoordinateMLP, DecoderSpec, LowRank
from recombine.metrics import nearest_values
from recombine.papers.forced_rendering.penalties import ENTROPY_WEIGHT, VARIANCE_WEIGHT
from recombine.papers.forced_rendering.presets import Common, kept_combinations
from recombine.papers.forced_rendering.samples import difference, measured
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below, effect
from recombine.reproduction.measuring import Batch, base_attributes, tabulate
from recombine.reproduction.preset import AnyNumber, Count, Positive, Seeds, Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.tasks import BumpsTask
from recombine.tasks.training_sets import Each
from recombine.theory.learnt import pixel_ranks

CNN_ALONE, CNN_ISOLATED, CNN_PAIRS = "CNN", "CNN, isolated factors", "CNN, isolated pairs"
LOW_RANK, LOW_RANK_PENALISED = "low-rank", "low-rank, penalties"
COORDINATE = "coordinate MLP"
ARMS = (CNN_ALONE, CNN_ISOLATED, CNN_PAIRS, LOW_RANK, LOW_RANK_PENALISED, COORDINATE)
FACTORS = ("x", "y", "intensity", "size", "orientation")
"""In the order in which they are added."""
ALL_KEPT = 0
"""In the place of a number of combinations: every kept one."""


ISOLATED_SHARE = 0.3
"""Of an epoch's examples."""
TOGETHER = 2
"""Factors that are shown without the others, where not one alone."""
LARGEST_RANK = 4
EPSILON = 0.3
"""As in the study of the theory."""
SHOWN = 4
"""Held-out points that are drawn."""


class Settings(Common):
    """Sizes, factors and training."""

    factors_size: Count = 14
    """Pixels a side, and values of x and of y."""
    factors_counts: Several = (2, 3, 4, 5)
    """Numbers of factors."""
    factors_values: Several = (4, 4, 6)
    """Values of intensity, size and orientation."""
    factors_data: AnyNumber = (20, 80, 320)
    """Combinations in a training set, beside all that are kept."""
    factors_width: Count = 64
    """Channels of CNNs and size of coordinate MLPs' tokens."""
    factors_depth: Count = 3
    """Depth of its networks."""
    factors_channels: Count = 8
    """Hidden channels of low-rank decoders: two, as for two factors, cannot draw five."""
    factors_steps: Count = 6000
    """Optimiser steps."""
    factors_low_rank_steps: Count = 12000
    """Optimiser steps of low-rank decoders."""
    factors_lr: Positive = 1e-3
    """Learning rate."""
    factors_seeds: Seeds = 40
    """Seeds of this study."""
    factors_searched: Count = 4
    """Networks per arm, and pixels of each, whose products are counted."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "factors_size": 10, "factors_counts": (2, 3), "factors_values": (3, 3, 4), "factors_data": (30,),
            "factors_width": 16, "factors_depth": 2, "factors_channels": 4, "factors_steps": 500,
            "factors_low_rank_steps": 500, "factors_lr": 4e-3, "factors_seeds": 3, "factors_searched": 1,
        }
    }  # fmt: skip

    def bumps_task(self, count: int, **fields: Any) -> BumpsTask:
        """Bumps with so many factors, the box of x and y held out."""
        intensity, size, orientation = self.factors_values
        side = f"={self.factors_size}"
        texts = (f"x{side}", f"y{side}", f"intensity={intensity}", f"size=0.75..1.5..{size}",
                 f"orientation={orientation}")  # fmt: skip
        return BumpsTask(
            **{
                "size": self.factors_size, "factors": texts[:count], "holdout": "center:factors=x,y",
                "training": "each", **fields,
            }
        )  # fmt: skip

    def factors_spec(self, decoder: DecoderSpec, task: BumpsTask, **recipe: Any) -> RunSpec:
        """A run of this study's length."""
        fields = {"steps": self.factors_steps, "lr": self.factors_lr, **recipe}
        return RunSpec(task=task, decoder=decoder, recipe=self.recipe(**fields))


class FactorsStudy(Study[Settings]):
    """Remedies with more factors than two."""

    name: ClassVar[str] = "factors"
    question: ClassVar[str] = "Does forced rendering scale to three, four and five factors?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "nearest_values", "pixel_ranks", "squared_error",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        seeds = preset.factors_seeds
        arms = [Arm((arm, count, ALL_KEPT), spec, seeds=seeds)
                for count in preset.factors_counts for arm, spec in _remedies(preset, count)]  # fmt: skip
        return arms + [
            Arm((arm, count, data), spec.replace(task=spec.task.replace(training=f"pick:{data}")), seeds=seeds)
            for count in preset.factors_counts
            for arm, spec in _remedies(preset, count) if arm in (CNN_ISOLATED, COORDINATE)
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

        inner = {"value_accuracy": ("factor",), "drawing": ("sample", "row", "column"),
                 "truth": ("sample", "row", "column")}  # fmt: skip
        result = tabulate(trials, ("arm", "count", "data"), measured, inner)
        attributes = base_attributes(trials, size=preset.factors_size, epsilon=EPSILON)
        result = result.assign_coords(factor=list(FACTORS[: result.sizes["factor"]]))
        first = result[["drawing", "truth"]].isel(seed=0, drop=True).sel(data=ALL_KEPT, drop=True)
        return result.drop_vars(["drawing", "truth"]).merge(first).assign_attrs(attributes)


def _remedies(preset: Settings, count: int) -> Iterator[tuple[str, RunSpec]]:
    """Specs for so many factors, by arm."""
    task, one_hot = preset.bumps_task(count), preset.bumps_task(count, encoding="onehot")
    cnn = CNN(width=preset.factors_width, depth=preset.factors_depth)
    isolated = preset.bumps_task(count, isolated=True, mixing=ISOLATED_SHARE)
    low_rank = LowRank(channels=preset.factors_channels, depth=preset.factors_depth)
    coordinate = CoordinateMLP(width=preset.factors_width, depth=preset.factors_depth)
    exact = {"precision": "float32", "steps": preset.factors_low_rank_steps}  # few channels: nothing for matrix units
    yield CNN_ALONE, preset.factors_spec(cnn, task)
    yield CNN_ISOLATED, preset.factors_spec(cnn, isolated)
    if count > TOGETHER:
        yield CNN_PAIRS, preset.factors_spec(cnn, isolated.replace(isolated_together=TOGETHER))
    yield LOW_RANK, preset.factors_spec(low_rank, one_hot, **exact)
    yield LOW_RANK_PENALISED, preset.factors_spec(
        low_rank, one_hot, entropy=ENTROPY_WEIGHT, variance=VARIANCE_WEIGHT, **exact
    )  # fmt: skip
    yield COORDINATE, preset.factors_spec(coordinate, task)


# -- what is measured ---------------------------------------------------------------------------------------------


def _values(batch: Batch, outputs: Tensor) -> dict[str, Tensor]:
    """Shares of held-out outputs that show the right value of each factor, and of all; and of kept ones."""
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
    """Mean number of products per pixel in held-out outputs, and in the right images; of the first networks."""
    task, searched = batch.task, preset.factors_searched
    targets = task.render(task.grid.points).float().flatten(1)
    mean = torch.full((len(batch),), torch.nan, dtype=torch.float64)
    wanted = mean.clone()
    chosen = [k for k, run in enumerate(batch.runs) if run.spec.seed < preset.first_seed + searched]
    if chosen and task.training == Each():
        brightest = targets.square().sum(dim=0).topk(min(searched, targets.shape[1])).indices
        own, right = (
            pixel_ranks(images[..., brightest].to(batch.device), task.grid.shape, task.held_out, EPSILON, LARGEST_RANK)
            for images in (outputs[chosen].flatten(2), targets)
        )
        mean[chosen], wanted[chosen] = own.mean.cpu(), right.mean.cpu().expand(len(chosen))
    return {"products": mean, "target_products": wanted}


def _drawn(batch: Batch, outputs: Tensor) -> dict[str, Tensor]:
    """Outputs and right images at a few held-out points, evenly spaced over the region."""
    task = batch.task
    held = torch.nonzero(task.held_out).flatten()
    places = held[torch.linspace(0, len(held) - 1, SHOWN + 2).round().long()[1:-1]]
    truth = task.render(task.grid.points[places]).float()
    return {"drawing": outputs[:, places], "truth": truth.expand(len(batch), *truth.shape)}


STUDY = FactorsStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


COMPOSES, LEAST_GAIN = 0.9, 0.3
RIGHT, IN_PLACE = "all_values_accuracy", ", in place"


def _networks(data: Data, arm: str) -> dict[str, xarray.Dataset]:
    """An arm's networks by number of factors, in words."""
    result = data["factors"].sel(arm=arm, data=ALL_KEPT)
    return {f"{int(count)} factors": result.sel(count=count) for count in result["count"].values}


def _of(data: Data, arm: str, name: str, words: str = "") -> dict[str, Sample]:
    return {f"{case}{words}": measured(own, name) for case, own in _networks(data, arm).items()}


def _gain(data: Data, arm: str, other: str) -> dict[str, Sample]:
    """One arm less another, seed by seed."""
    others = _networks(data, other)
    return {case: difference(RIGHT, own, others[case]) for case, own in _networks(data, arm).items()}


def isolated_otherwise(data: Data) -> dict[str, Sample]:
    """Of x and y alone; and with isolated pairs, from three factors on."""
    pairs = {case: own for case, own in _of(data, CNN_PAIRS, RIGHT, ", isolated pairs").items() if own.trained.any()}
    return {**_of(data, CNN_ISOLATED, "ood_accuracy", IN_PLACE), **pairs}


CLAIMS = (
    Claim(
        "C31",
        "CNNs fail to compose whether there are two, three, four or five factors",
        "§3.2",
        statements=(
            Statement(
                below("share of held-out outputs that are right, CNN alone", COMPOSES),
                lambda data: _of(data, CNN_ALONE, RIGHT),
                lambda data: _of(data, CNN_ALONE, "ood_accuracy", IN_PLACE),
            ),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C32",
        "Examples of isolated factors make CNNs compose two to five factors",
        "§4.2",
        statements=(
            Statement(
                above("share of held-out outputs that are right, CNN with isolated factors", COMPOSES),
                lambda data: _of(data, CNN_ISOLATED, RIGHT),
                isolated_otherwise,
            ),
            Statement(
                effect("share of held-out outputs that are right, with less without isolated factors", LEAST_GAIN),
                lambda data: _gain(data, CNN_ISOLATED, CNN_ALONE),
            ),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C33",
        "Low-rank embeddings with both penalties compose two to five factors",
        "§4.1",
        statements=(
            Statement(
                above("share of held-out outputs that are right, low-rank, penalties", COMPOSES),
                lambda data: _of(data, LOW_RANK_PENALISED, RIGHT),
                lambda data: _of(data, LOW_RANK_PENALISED, "ood_accuracy", IN_PLACE),
            ),
            Statement(
                effect("share of held-out outputs that are right, with less without penalties", LEAST_GAIN),
                lambda data: _gain(data, LOW_RANK_PENALISED, LOW_RANK),
            ),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C34",
        "Decoders that render each pixel from code and coordinate compose two to five factors with no remedy",
        "E.3",
        statements=(
            Statement(
                above("share of held-out outputs that are right, coordinate MLP", COMPOSES),
                lambda data: _of(data, COORDINATE, RIGHT),
                lambda data: _of(data, COORDINATE, "ood_accuracy", IN_PLACE),
            ),
            Statement(
                effect("share of held-out outputs that are right, coordinate MLP less CNN", LEAST_GAIN),
                lambda data: _gain(data, COORDINATE, CNN_ALONE),
            ),
        ),
        studies=("factors",),
        ours=True,
    ),
)
