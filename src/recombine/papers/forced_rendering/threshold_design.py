"""Which networks are trained to find a threshold, and the threshold that they give.

One network per seed, each at its own n. A first round spreads over all affordable n (N/2 to 4N²; under fixed epochs
no more than `MOST_STEPS` steps); if any network comes near the target, a second round spreads evenly within a factor
of `SPREAD` around the crossing estimated from the first. Where bumps lie outside the hold-out, further networks have
the largest affordable set: they decide whether the target is reached at all. The small network stands beside the
paper's, and has half as many networks.

The design looks at accuracies alone. Which networks count for a threshold is decided afterwards (`learning`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from recombine.decoders import CNN
from recombine.errors import InvalidValue
from recombine.papers.forced_rendering.presets import WithLearningRate
from recombine.papers.forced_rendering.threshold_curves import Threshold, fitted, threshold
from recombine.reproduction.intervals import CONFIDENCE, TrimmedMean
from recombine.reproduction.preset import Count, Several
from recombine.reproduction.study import DONE
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.tasks import BumpTask

TARGET = 0.9
"""Accuracy to be reached."""

Family = Literal["bumps", "stripes"]
BUMPS: Family = "bumps"
STRIPES: Family = "stripes"
FAMILIES: tuple[Family, ...] = (BUMPS, STRIPES)
CLAIMED: dict[str, int] = {BUMPS: 3, STRIPES: 1}
"""The paper's exponent of each family."""
CUBIC = 2.5
"""An exponent above this counts as the paper's 3."""
LINEAR = (0.75, 1.25)
"""One between these counts as the paper's 1."""


class Protocol(NamedTuple):
    """What the paper does not say, and which network is trained."""

    region: Literal["whole", "kept"]
    centers: Literal["integer", "real"]
    budget: Literal["steps", "epochs"]
    network: Literal["paper", "small"]

    def __str__(self) -> str:
        return "/".join(self)


REGIONS: tuple[Literal["whole", "kept"], ...] = ("whole", "kept")
CENTERS: tuple[Literal["integer", "real"], ...] = ("integer", "real")
BUDGETS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
PRIMARY = Protocol("whole", "integer", "steps", "paper")
"""Bumps over the whole grid: what the exponent is judged on."""
LITERAL = Protocol("kept", "integer", "steps", "paper")
"""Bumps outside the hold-out, accuracy inside: what the paper says literally."""
PROTOCOLS = (PRIMARY, LITERAL, *(Protocol(*choices, "small") for choices in product(REGIONS, CENTERS, BUDGETS)))
"""The paper's network under two protocols, then a small one under all eight."""

SPELT = {
    "whole": "whole grid", "kept": "kept only", "integer": "integer", "real": "real", "steps": "fixed steps",
    "epochs": "fixed epochs", "paper": "paper's network", "small": "small network",
}  # fmt: skip


def spelt(protocol: str) -> str:
    """A protocol in words.

    >>> spelt("whole/integer/steps/paper")
    "paper's network: whole grid, integer, fixed steps"
    """
    *choices, network = str(protocol).split("/")
    return f"{SPELT[network]}: {', '.join(SPELT[choice] for choice in choices)}"


NEAR = 0.8
"""A threshold is looked for more closely only if some network of the first round gets this far."""
SPREAD = 2.25
"""The second round lies within this factor of the estimated threshold."""
DENSEST = 4
"""Most bumps, in multiples of N²."""
MOST_STEPS = 3000
"""Under fixed epochs, sets that would need more steps than this are not affordable."""
RESAMPLES = 20_000
FEWEST = 3
"""Networks that a curve or a mean needs."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread evenly however many there are."""


class Settings(WithLearningRate):
    """Sizes, protocols and numbers of networks."""

    threshold_sizes: Several = (20, 28, 36, 44, 52)
    """N of the data-threshold study."""
    threshold_width: Count = 64
    """Channels of the paper's network."""
    threshold_depth: Count = 4
    """Its depth."""
    threshold_steps: Count = 3150
    """Steps of the paper's network."""
    threshold_small_width: Count = 16
    """Channels of the small network."""
    threshold_small_depth: Count = 3
    """Its depth."""
    threshold_small_steps: Count = 1000
    """Steps of the small network under the fixed-steps protocols."""
    threshold_epochs: Count = 25
    """Epochs under the fixed-epochs protocols."""
    threshold_protocols: Count = len(PROTOCOLS)
    """How many of the protocols are run; the first two are of the paper's network."""
    threshold_first: Count = 8
    """Networks, over as many sizes of training set, that bracket a threshold."""
    threshold_rest: Count = 24
    """Networks inside the bracket."""
    threshold_alone: Count = 32
    """Networks trained on stripes without a bump."""
    threshold_largest: Count = 24
    """Networks with the largest set of bumps outside the hold-out."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "threshold_sizes": (8, 11, 14), "threshold_width": 12, "threshold_depth": 2, "threshold_steps": 250,
            "threshold_small_width": 8, "threshold_small_depth": 2, "threshold_small_steps": 250,
            "threshold_epochs": 50, "threshold_protocols": 2, "threshold_first": 3, "threshold_rest": 2,
            "threshold_alone": 3, "threshold_largest": 1,
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
            recipe = _recipe(self.preset, self.protocol)
            bumps = min(bumps, recipe.batch * (MOST_STEPS // max(1, recipe.epochs or 1)) - self.stripes)
        if bumps < self.size:
            raise InvalidValue("threshold_epochs", self.preset.threshold_epochs, f"small enough for {MOST_STEPS} steps")
        return bumps

    @property
    def largest(self) -> int:
        """The largest affordable training set."""
        return self.stripes + self.most_bumps

    def spec(self, bumps: int, number: int) -> RunSpec:
        """The network of this number in the cell, with this many bumps."""
        seed = self.preset.first_seed + number
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

    def _fewer(self, networks: int) -> int:
        """Alternatives get half as many networks."""
        return networks if self.protocol.network == "paper" else networks // 2

    def _alone(self, points: Points, number: int) -> list[RunSpec]:
        count = max(FEWEST, self._fewer(self.preset.threshold_alone)) if self.family == STRIPES else 0
        return [self.spec(0, number + k) for k in range(count)]

    def _first(self, points: Points, number: int) -> list[RunSpec]:
        if self.suffices(points):
            return []
        count = max(FEWEST, self.preset.threshold_first // (2 if self.family == STRIPES else 1))
        spread = np.unique(np.geomspace(max(1, self.size / 2), self.most_bumps, count).round().astype(int))
        literal = self.protocol.region == "kept" and self.family == BUMPS
        bumps = [*spread, *[self.most_bumps] * (self._fewer(self.preset.threshold_largest) if literal else 0)]
        return [self.spec(int(n), number + k) for k, n in enumerate(bumps)]

    def _rest(self, points: Points, number: int) -> list[RunSpec]:
        if self.suffices(points) or len(points.accuracy) < FEWEST or points.accuracy.max() < NEAR:
            return []
        guess = min(float(fitted(*points).crossing(TARGET)[0]), self.largest)
        low, high = max(self.stripes + 1, guess / SPREAD), min(self.largest, max(guess, self.stripes + 1) * SPREAD)
        count = self._fewer(self.preset.threshold_rest) // (2 if self.family == STRIPES else 1)
        where = (np.arange(count) + 0.5) * GOLDEN % 1
        sizes = (low * (high / low) ** where).round().astype(int)
        return [self.spec(int(n) - self.stripes, number + k) for k, n in enumerate(sizes)]

    # -- the threshold ---------------------------------------------------------------------------------------------

    def threshold(self, points: Points, generator: np.random.Generator, device: torch.device) -> Threshold:
        """Where the accuracy of networks that learnt reaches the target."""
        if self.suffices(points):
            exact = float(self.stripes)
            return Threshold("exact", np.full(RESAMPLES, exact), exact, exact, exact)
        if len(np.unique(points.examples)) < FEWEST:
            return Threshold("too few networks", np.full(RESAMPLES, np.nan))
        return threshold(
            *points, TARGET, generator, largest=self.largest, floor=self.stripes, resamples=RESAMPLES,
            confidence=CONFIDENCE, device=device,
        )  # fmt: skip


def bumps_of(spec: RunSpec) -> int:
    """How many bumps a network is trained on."""
    return spec.task.training.count(spec.task.grid.size)


def whole_accuracy(run: Run) -> float:
    """Coordinate accuracy over the whole grid."""
    return float(np.mean(run.arrays()["hit"]))


def _recipe(preset: Settings, protocol: Protocol) -> Recipe:
    if protocol.budget == "epochs":
        return preset.recipe(epochs=preset.threshold_epochs, lr=preset.lr)
    steps = preset.threshold_steps if protocol.network == "paper" else preset.threshold_small_steps
    return preset.recipe(steps=steps, lr=preset.lr)


@cache
def _spec(preset: Settings, protocol: Protocol, family: Family, size: int, bumps: int, seed: int) -> RunSpec:
    """A network of a cell; where there are no bumps, region and centres are left at their defaults."""
    paper = CNN(width=preset.threshold_width, depth=preset.threshold_depth)
    small = CNN(width=preset.threshold_small_width, depth=preset.threshold_small_depth)
    training: dict[str, Any] = {"training": "pick:0"}
    if bumps:
        training = {"training": f"draws:{bumps}", "region": protocol.region, "centers": protocol.centers}
    return RunSpec(
        task=BumpTask(size=size, isolated=family == STRIPES, **training),
        decoder=paper if protocol.network == "paper" else small,
        recipe=_recipe(preset, protocol),
        seed=seed,
    )
