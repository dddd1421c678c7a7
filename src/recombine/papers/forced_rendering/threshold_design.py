"""Choice of the networks trained to find a threshold, and estimation of the threshold from them.

A *cell* is one threshold to be found. Each of its networks has a different seed and training-set size n. A first round
covers all affordable n (N/2 to 4N² bumps; with fixed epochs, at most `MOST_STEPS` steps). If any network comes near the
target, a second round is spread evenly within a factor of `SPREAD` around the crossing estimated from the first. Half
as many networks are trained with the small network or fixed epochs, which are alternatives. The paper's network is
trained for fixed epochs on bumps alone.

Bumps alone are scored where they are drawn: over the whole grid, or on all combinations outside the hold-out. Stripes
and bumps outside the hold-out are scored inside it.

The design depends only on accuracies; networks that did not learn their training set are excluded only from the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field

from recombine.decoders import CNN
from recombine.papers.forced_rendering.presets import WithLearningRate
from recombine.papers.forced_rendering.threshold_curves import Threshold, fitted, threshold
from recombine.reproduction.intervals import TrimmedMean
from recombine.reproduction.preset import Count, Several
from recombine.reproduction.study import DONE
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.tasks import BumpTask

TARGET = 0.9
"""Accuracy to be reached."""
BUMPS, STRIPES = FAMILIES = ("bumps", "stripes")
"""Families of training sets: bumps alone, and all stripes with or without bumps."""
SPREAD = 2.25
"""The second round covers sizes within this factor of the estimated threshold."""
MOST_STEPS = 3000
"""Largest number of steps with fixed epochs; training sets that need more are not affordable."""
RESAMPLES = 20_000
FEWEST = 3
"""Minimum number of networks for fitting a curve or taking a mean."""
PRIMARY = "whole/integer/steps/paper"
"""Protocol on which the exponent is judged, with bumps over the whole grid."""
KEPT = "kept/integer/steps/paper"
"""The same with bumps outside the hold-out."""
EPOCHS = ("whole/integer/epochs/paper", "kept/integer/epochs/paper")
CHOICES = product(("whole", "kept"), ("integer", "real"), ("steps", "epochs"), ("small",))
PROTOCOLS = (PRIMARY, KEPT, *EPOCHS, *map("/".join, CHOICES))
"""Region, centres, budget and network: the paper's network under four protocols, then a small one under all eight."""
SPELT = {
    "whole": "whole grid", "kept": "kept only", "integer": "integer", "real": "real", "steps": "fixed steps",
    "epochs": "fixed epochs", "paper": "paper's network", "small": "small network",
}  # fmt: skip


def spelt(protocol: str) -> str:
    """Return a protocol's description, such as "paper's network: whole grid, integer, fixed steps"."""
    *choices, network = protocol.split("/")
    return f"{SPELT[network]}: {', '.join(SPELT[choice] for choice in choices)}"


class Settings(WithLearningRate):
    threshold_sizes: Several = (20, 28, 36, 44, 52)
    """Image sizes N in the data-threshold study."""
    threshold_width: Count = 64
    """Channels of the paper's network."""
    threshold_depth: Count = 4
    """Depth of the paper's network."""
    threshold_steps: Count = 3150
    """Optimiser steps for the paper's network."""
    threshold_small_width: Count = 16
    """Channels of the small network."""
    threshold_small_depth: Count = 3
    """Depth of the small network."""
    threshold_small_steps: Count = 1000
    """Optimiser steps for the small network under the fixed-steps protocols."""
    threshold_epochs: Annotated[int, Field(ge=1, le=MOST_STEPS // 6)] = 25
    """Epochs under the fixed-epochs protocols."""
    threshold_protocols: Annotated[int, Field(ge=1, le=len(PROTOCOLS))] = len(PROTOCOLS)
    """Number of protocols to run; the first four use the paper's network."""
    threshold_first: Count = 8
    """Number of networks in the first round, each with a different training-set size."""
    threshold_rest: Count = 24
    """Number of networks in the second round, near the estimated threshold."""
    threshold_alone: Count = 16
    """Number of networks trained on stripes without bumps."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "threshold_sizes": (8, 11, 14), "threshold_width": 12, "threshold_depth": 2, "threshold_steps": 250,
            "threshold_small_width": 8, "threshold_small_depth": 2, "threshold_small_steps": 250,
            "threshold_epochs": 50, "threshold_protocols": 2, "threshold_first": 3, "threshold_rest": 2,
            "threshold_alone": 3,
        }
    }  # fmt: skip


class Points(NamedTuple):
    """Training-set sizes and accuracies of networks."""

    examples: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True)
class Cell:
    """A threshold to be found."""

    preset: Settings
    protocol: str
    family: str
    size: int

    @property
    def labels(self) -> tuple[str, str, int]:
        """Labels of the cell in the Dataset."""
        return self.protocol, self.family, self.size

    @property
    def stripes(self) -> int:
        """Number of stripes in every training set."""
        return 2 * self.size if self.family == STRIPES else 0

    @property
    def recipe(self) -> Recipe:
        """Training recipe of the cell's networks."""
        preset = self.preset
        if "epochs" in self.protocol:
            return preset.recipe(epochs=preset.threshold_epochs, lr=preset.lr)
        steps = preset.threshold_steps if "paper" in self.protocol else preset.threshold_small_steps
        return preset.recipe(steps=steps, lr=preset.lr)

    @property
    def most_bumps(self) -> int:
        """Largest affordable number of bumps."""
        bumps = 4 * self.size**2
        if "epochs" in self.protocol:
            bumps = min(bumps, self.recipe.batch * (MOST_STEPS // self.preset.threshold_epochs) - self.stripes)
        return bumps

    @property
    def largest(self) -> int:
        """Size of the largest affordable training set."""
        return self.stripes + self.most_bumps

    def scored(self, held_out: np.ndarray) -> np.ndarray:
        """Return a mask of the grid points at which networks are scored under this protocol."""
        if "whole" in self.protocol:
            return np.ones_like(held_out)
        return held_out if self.family == STRIPES else ~held_out

    def accuracy(self, run: Run) -> float:
        """Return the accuracy to which the target applies under this protocol."""
        arrays = run.arrays()
        return float(np.mean(arrays["hit"][self.scored(arrays["held_out"].astype(bool))]))

    def points(self, runs: Sequence[Run]) -> Points:
        """Return training-set sizes and accuracies of the runs that did not diverge."""
        runs = [run for run in runs if run.status == DONE]
        sizes = [self.stripes + bumps_of(run.spec) for run in runs]
        return Points(np.array(sizes, dtype=float), np.array([self.accuracy(run) for run in runs]))

    def planned(self, runs: Mapping[str, Run]) -> list[RunSpec]:
        """Return the cell's networks, as far as they can be determined from the finished runs."""
        specs: list[RunSpec] = []
        if self.family == STRIPES and self.protocol in EPOCHS:
            return specs
        for planned_bumps in (self._alone, self._first, self._rest):
            numbers = planned_bumps(self.points([runs[spec.digest] for spec in specs]))
            specs += [network_spec(self, int(bumps), len(specs) + k) for k, bumps in enumerate(numbers)]
            if any(spec.digest not in runs for spec in specs):
                break
        return specs

    def suffices(self, points: Points) -> bool:
        """Return whether stripes alone reach the target."""
        alone = points.accuracy[points.examples == self.stripes]
        return len(alone) > 0 and TrimmedMean.of(alone).interval().low >= TARGET

    def _fewer(self, networks: int) -> int:
        """Return the number of networks to train: all for the paper's network with fixed steps, half otherwise."""
        return networks if "steps/paper" in self.protocol else networks // 2

    def _alone(self, points: Points) -> Sequence[int]:
        return [0] * max(FEWEST, self._fewer(self.preset.threshold_alone)) if self.family == STRIPES else []

    def _first(self, points: Points) -> Sequence[int]:
        if self.suffices(points):
            return []
        count = max(FEWEST, self.preset.threshold_first // (2 if self.family == STRIPES else 1))
        return list(np.unique(np.geomspace(max(1, self.size / 2), self.most_bumps, count).round().astype(int)))

    def _rest(self, points: Points) -> Sequence[int]:
        # no second round if the first one came nowhere near the target
        if self.suffices(points) or len(points.accuracy) < FEWEST or points.accuracy.max() < 0.8:
            return []
        guess = min(float(fitted(*points).crossing(TARGET)[0]), self.largest)
        low, high = max(self.stripes + 1, guess / SPREAD), min(self.largest, max(guess, self.stripes + 1) * SPREAD)
        count = self._fewer(self.preset.threshold_rest) // (2 if self.family == STRIPES else 1)
        # multiples of the golden ratio modulo 1 are evenly spread for any number of them
        where = (np.arange(count) + 0.5) * ((5**0.5 - 1) / 2) % 1
        return list((low * (high / low) ** where).round().astype(int) - self.stripes)

    def threshold(
        self, points: Points, generator: np.random.Generator, device: torch.device, resamples: int | None = None
    ) -> Threshold:
        """Return the training-set size at which networks that learnt reach the target."""
        resamples = resamples or RESAMPLES
        if self.suffices(points):
            exact = float(self.stripes)
            return Threshold("exact", np.full(resamples, exact), exact, exact, exact)
        if len(np.unique(points.examples)) < FEWEST:
            return Threshold("too few networks", np.full(resamples, np.nan))
        return threshold(
            *points, TARGET, generator, largest=self.largest, floor=self.stripes, resamples=resamples, device=device
        )


def bumps_of(spec: RunSpec) -> int:
    """Return the number of bumps in a network's training set."""
    return spec.task.training.count(spec.task.grid.size)


def whole_accuracy(run: Run) -> float:
    """Return the coordinate accuracy over the whole grid."""
    return float(np.mean(run.arrays()["hit"]))


@cache  # the design is recomputed after every round
def network_spec(cell: Cell, bumps: int, number: int) -> RunSpec:
    """Return a network's spec; without bumps, region and centres keep their defaults, so that protocols share it."""
    preset, (region, centers, _, network) = cell.preset, cell.protocol.split("/")
    paper = CNN(width=preset.threshold_width, depth=preset.threshold_depth)
    small = CNN(width=preset.threshold_small_width, depth=preset.threshold_small_depth)
    training: dict[str, Any] = {"training": "pick:0"}
    if bumps:
        training = {"training": f"draws:{bumps}", "region": region, "centers": centers}
    return RunSpec(
        task=BumpTask(size=cell.size, isolated=cell.family == STRIPES, **training),
        decoder=paper if network == "paper" else small,
        recipe=cell.recipe,
        seed=preset.first_seed + number,
    )
