"""Which networks are trained to find a threshold, and the threshold that they give.

One network per seed, each at its own n. A first round spreads over all affordable n (N/2 to 4N²; under fixed epochs no
more than `MOST_STEPS` steps); if any network comes near the target, a second round spreads evenly within a factor of
`SPREAD` around the crossing estimated from the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from recombine.decoders import CNN
from recombine.errors import InvalidValue
from recombine.papers.forced_rendering.presets import WithLearningRate
from recombine.papers.forced_rendering.threshold.labels import BUMPS, STRIPES, TARGET, Family, Protocol
from recombine.papers.forced_rendering.threshold.psychometric import Threshold, exact_threshold, fitted, threshold
from recombine.reproduction.intervals import CONFIDENCE, TrimmedMean
from recombine.reproduction.preset import Count, Several
from recombine.reproduction.study import DONE
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.tasks import BumpTask

NEAR = 0.8
"""A threshold is looked for more closely only if some network of the first round gets this far."""
SPREAD = 2.25
"""The second round lies within this factor of the estimated threshold."""
DENSEST = 4
"""Most bumps, in multiples of N²."""
MOST_STEPS = 3000
"""Under fixed epochs, sets that would need more steps than this are not affordable."""
RESAMPLES = 1000
FEWEST = 3
"""Networks that a curve or a mean needs."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread evenly however many there are."""


class Settings(WithLearningRate):
    """Sizes, protocols and numbers of networks."""

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

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "threshold_sizes": (8, 11, 14), "threshold_width": 12, "threshold_depth": 2, "threshold_steps": 250,
            "threshold_epochs": 50, "threshold_protocols": 1, "threshold_first": 4, "threshold_rest": 2,
            "threshold_alone": 3,
        }
    }  # fmt: skip


class Points(NamedTuple):
    """Networks: the sizes of their training sets and their accuracies."""

    examples: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True)
class Cell:
    """One threshold to be found."""

    preset: Settings
    protocol: Protocol
    family: Family
    size: int

    @property
    def labels(self) -> tuple[str, str, int]:
        """Its labels in the Dataset."""
        return str(self.protocol), self.family, self.size

    @property
    def stripes(self) -> int:
        """Examples that are there whatever the number of bumps."""
        return 2 * self.size if self.family == STRIPES else 0

    @property
    def most_bumps(self) -> int:
        """The largest affordable number of bumps."""
        bumps = DENSEST * self.size**2
        if self.protocol.budget == "epochs":
            recipe = _recipe(self.preset, self.protocol.budget)
            bumps = min(bumps, recipe.batch * (MOST_STEPS // max(1, recipe.epochs or 1)) - self.stripes)
        if bumps < self.size:
            raise InvalidValue("threshold_epochs", self.preset.threshold_epochs, f"fewer, for {MOST_STEPS} steps")
        return bumps

    @property
    def largest(self) -> int:
        """The largest affordable training set."""
        return self.stripes + self.most_bumps

    def spec(self, bumps: int, seed: int) -> RunSpec:
        """A network with this many bumps."""
        return _spec(self.preset, self.protocol, self.family, self.size, bumps, seed)

    def accuracy(self, run: Run) -> float:
        """What the target is about under this protocol."""
        return whole_accuracy(run) if self.protocol.region == "whole" else run.scores["ood_accuracy"]

    def points(self, runs: Sequence[Run]) -> Points:
        """The networks in numbers; those that diverged are none."""
        runs = [run for run in runs if run.status == DONE]
        sizes = [self.stripes + bumps_of(run.spec) for run in runs]
        return Points(np.array(sizes, dtype=float), np.array([self.accuracy(run) for run in runs]))

    # -- the design ------------------------------------------------------------------------------------------------

    def planned(self, runs: Mapping[str, Run]) -> list[RunSpec]:
        """All networks of this cell, as far as the runs so far decide which those are."""
        specs: list[RunSpec] = []
        for round_of in (self._alone, self._first, self._rest):
            specs += round_of(self.points([runs[spec.digest] for spec in specs]), len(specs))
            if any(spec.digest not in runs for spec in specs):
                break
        return specs

    def suffices(self, points: Points) -> bool:
        """Whether stripes alone reach the target."""
        alone = points.accuracy[points.examples == self.stripes]
        return len(alone) > 0 and TrimmedMean.of(alone).interval().low >= TARGET

    def _count(self, networks: int, fewest: int) -> int:
        """Stripes get half as many networks."""
        return max(fewest, networks if self.family == BUMPS else networks // 2)

    def _alone(self, points: Points, seed: int) -> list[RunSpec]:
        count = max(FEWEST, self.preset.threshold_alone) if self.family == STRIPES else 0
        return [self.spec(0, seed + k) for k in range(count)]

    def _first(self, points: Points, seed: int) -> list[RunSpec]:
        if self.suffices(points):
            return []
        count = self._count(self.preset.threshold_first, FEWEST)
        bumps = np.unique(np.geomspace(max(1, self.size / 2), self.most_bumps, count).round().astype(int))
        return [self.spec(int(n), seed + k) for k, n in enumerate(bumps)]

    def _rest(self, points: Points, seed: int) -> list[RunSpec]:
        if self.suffices(points) or len(points.accuracy) < FEWEST or points.accuracy.max() < NEAR:
            return []
        guess = min(float(fitted(*points).crossing(TARGET)[0]), self.largest)
        low, high = max(self.stripes + 1, guess / SPREAD), min(self.largest, max(guess, self.stripes + 1) * SPREAD)
        where = (np.arange(self._count(self.preset.threshold_rest, 0)) + 0.5) * GOLDEN % 1
        sizes = (low * (high / low) ** where).round().astype(int)
        return [self.spec(int(n) - self.stripes, seed + k) for k, n in enumerate(sizes)]

    # -- the threshold ---------------------------------------------------------------------------------------------

    def threshold(self, points: Points, generator: np.random.Generator) -> Threshold:
        """Where the accuracy reaches the target."""
        if self.suffices(points):
            return exact_threshold(float(self.stripes), RESAMPLES)
        if len(points.accuracy) < FEWEST:
            return Threshold("unsure", np.nan, np.nan, np.nan, np.full(RESAMPLES, np.nan), unreached=1.0)
        return threshold(
            *points, TARGET, generator, largest=self.largest, floor=self.stripes, resamples=RESAMPLES,
            confidence=CONFIDENCE,
        )  # fmt: skip


def bumps_of(spec: RunSpec) -> int:
    """How many bumps a network is trained on."""
    return spec.task.training.count(spec.task.grid.size)


def whole_accuracy(run: Run) -> float:
    """Coordinate accuracy over the whole grid."""
    return float(np.mean(run.arrays()["hit"]))


def _recipe(preset: Settings, budget: str) -> Recipe:
    if budget == "steps":
        return preset.recipe(steps=preset.threshold_steps, lr=preset.lr)
    return preset.recipe(epochs=preset.threshold_epochs, lr=preset.lr)


@cache
def _spec(preset: Settings, protocol: Protocol, family: Family, size: int, bumps: int, seed: int) -> RunSpec:
    """A network of a cell; where there are no bumps, region and centres are left at their defaults."""
    training: dict[str, Any] = {"training": "pick:0"}
    if bumps:
        training = {"training": f"draws:{bumps}", "region": protocol.region, "centers": protocol.centers}
    return RunSpec(
        task=BumpTask(size=size, isolated=family == STRIPES, **training),
        decoder=CNN(width=preset.threshold_width, depth=preset.threshold_depth),
        recipe=_recipe(preset, protocol.budget),
        seed=seed,
    )
