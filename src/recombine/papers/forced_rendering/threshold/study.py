"""How much data does it take, as images grow? (§4.2, Fig. 4c)

The threshold is the smallest training set with which networks reach 90 % coordinate accuracy; its exponent is the slope
of ln threshold on ln N. Paper: N³ with bumps alone, N with all 2N stripes and no or few bumps.

**Protocols.** The paper leaves open three choices: bumps drawn over the *whole* grid, or from the *kept* combinations
only; *integer* or *real* centres; a fixed number of *steps*, or of *epochs*. Bumps are independent draws (an integer
centre can come twice and counts twice), and accuracy is always evaluated at the integers. The paper's network is
trained under two of them: the whole grid, on which the exponent is judged, and, as the paper says literally, kept
combinations only. A small network is trained under all eight, as alternatives.

**Accuracy.** With bumps over the whole grid it is the accuracy over the whole grid. With kept combinations it is the
accuracy in the held-out box alone: that is what the paper calls generating in the OOD region, and elsewhere such
networks have seen in training what is evaluated. Both are stored.

**Families.** *bumps*: n bumps, nothing else. *stripes*: all 2N stripes and n ≥ 0 bumps under the same protocol; the
size of the set is 2N + n. With n = 0 region and centres mean nothing, so these networks are shared by protocols. When
the lower end of the 95 % interval of their mean accuracy is at least 90 %, stripes alone suffice: the threshold is 2N,
exactly. Under fixed epochs few stripes also mean few steps: that is the protocol.

**Networks that count** are those that learnt their own training set (`learning`).

**Threshold.** It is where the curve through these networks (`design`, `psychometric`) crosses the target, its interval
comes from resampling them, and that of the exponent from resampling them at every N together (`exponents`).

**Not reached.** A threshold beyond the largest affordable set is not reached, and a protocol with such a threshold at
any N has no exponent. Whether 90 % is reached at all is told by the networks that have the largest affordable set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.errors import InvalidValue
from recombine.papers.forced_rendering.threshold.design import Cell, Points, Settings, bumps_of, whole_accuracy
from recombine.papers.forced_rendering.threshold.exponents import with_exponents
from recombine.papers.forced_rendering.threshold.labels import FAMILIES, PROTOCOLS, TARGET
from recombine.papers.forced_rendering.threshold.learning import TrainingScores, training_scores
from recombine.reproduction.intervals import CONFIDENCE
from recombine.reproduction.study import DONE, Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.store import Run

if TYPE_CHECKING:
    import xarray


class ThresholdStudy(Study[Settings]):
    """Smallest training set for 90 % accuracy, against N, by protocol."""

    name: ClassVar[str] = "threshold"
    question: ClassVar[str] = "How does the data needed for 90 % accuracy grow with the image?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("extreme_pixel", "hits", "squared_error")

    def cells(self, preset: Settings) -> list[Cell]:
        """Every threshold to be fit."""
        protocols, sizes = PROTOCOLS[: preset.threshold_protocols], sorted(set(preset.threshold_sizes))
        if not protocols:
            raise InvalidValue("threshold_protocols", preset.threshold_protocols, f"1 to {len(PROTOCOLS)}")
        if not sizes:
            raise InvalidValue("threshold_sizes", preset.threshold_sizes, "at least one")
        return [Cell(preset, *labels) for labels in product(protocols, FAMILIES, sizes)]

    def arms(self, preset: Settings) -> list[Arm]:
        """The first round, one network per arm: stripes alone, and bumps over all affordable numbers."""
        return [
            Arm((*cell.labels, bumps_of(spec), spec.seed), spec)
            for cell in self.cells(preset)
            for spec in cell.planned({})
        ]

    def specs(self, preset: Settings) -> list[RunSpec]:
        return self.more(preset, {})

    def more(self, preset: Settings, runs: Mapping[str, Run]) -> list[RunSpec]:
        specs = {spec.digest: spec for cell in self.cells(preset) for spec in cell.planned(runs)}
        return sorted((spec for key, spec in specs.items() if key not in runs), key=_length)

    def trials(self, preset: Settings, device: torch.device, runs: Mapping[str, Run]) -> Trials[Settings]:
        cells = self.cells(preset)
        by_cell = {cell.labels: [runs[spec.digest] for spec in cell.planned(runs)] for cell in cells}
        return Trials(preset, device, by_cell)

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        import xarray

        cells = self.cells(trials.preset)
        runs = {run.key: run for _, own in trials.items() for run in own if run.status == DONE}
        scores = {key: training_scores(run, trials.device) for key, run in runs.items()}
        rows = [
            measured(cell, trials[cell.labels], scores, trials.seeds, np.random.default_rng(number), trials.device)
            for number, cell in enumerate(cells)
        ]
        coords: dict[str, list[Any]] = {
            "protocol": list(dict.fromkeys(str(cell.protocol) for cell in cells)),
            "family": list(FAMILIES),
            "size": list(dict.fromkeys(cell.size for cell in cells)),
        }
        shape = tuple(len(values) for values in coords.values())
        inner = {"draws": ("resample",), **dict.fromkeys(NETWORK, ("network",))}
        variables = {}
        for name in rows[0]:
            table = np.array([row[name] for row in rows])
            variables[name] = ((*coords, *inner.get(name, ())), table.reshape(*shape, *table.shape[1:]))
        result, preset = with_exponents(xarray.Dataset(variables, coords)), trials.preset
        return result.drop_vars("draws").assign_attrs(
            preset=preset.name, target=TARGET, confidence=CONFIDENCE, resamples=result.sizes["resample"],
            steps=preset.threshold_steps, epochs=preset.threshold_epochs, width=preset.threshold_width,
            depth=preset.threshold_depth, small_width=preset.threshold_small_width,
            small_depth=preset.threshold_small_depth, small_steps=preset.threshold_small_steps,
        )  # fmt: skip


NETWORK = (
    "bumps", "examples", "accuracy", "whole_accuracy", "held_out_accuracy", "training_over_blank", "training_accuracy",
    "learnt",
)  # fmt: skip
"""What is stored of every network; `accuracy` is the one that the target is about. Those that diverged have none."""


def _length(spec: RunSpec) -> tuple[int, int, int]:
    """Networks of one size and of similar length train together best."""
    return spec.task.image_shape[0], spec.total_steps, spec.seed


def measured(
    cell: Cell,
    runs: Sequence[Run],
    scores: Mapping[str, TrainingScores],
    networks: int,
    generator: np.random.Generator,
    device: torch.device,
) -> dict[str, Any]:
    """A cell's networks, padded to so many, and the threshold of those that learnt."""
    rows = [_network(cell, run, scores.get(run.key)) for run in runs]
    table = {name: np.array([row.get(name, np.nan) for row in rows], dtype=float) for name in NETWORK}
    counted = table["learnt"] == 1
    fit = cell.threshold(Points(table["examples"][counted], table["accuracy"][counted]), generator, device)
    padded = {name: np.pad(value, (0, networks - len(runs)), constant_values=np.nan) for name, value in table.items()}
    return {
        **padded, "networks": int(counted.sum()), "trained": len(runs), "largest": cell.largest,
        "outcome": fit.outcome, "threshold": fit.value, "threshold_low": fit.low, "threshold_high": fit.high,
        "draws": fit.draws, "top": fit.top, "slope": fit.slope, "mid": fit.mid, "unreached": fit.unreached,
    }  # fmt: skip


def _network(cell: Cell, run: Run, scores: TrainingScores | None) -> dict[str, float]:
    """One network; of one that diverged, its training set alone."""
    bumps = bumps_of(run.spec)
    trained = {"bumps": bumps, "examples": cell.stripes + bumps}
    if scores is None:
        return {**trained, "learnt": 0}
    return {
        **trained, "accuracy": cell.accuracy(run), "whole_accuracy": whole_accuracy(run),
        "held_out_accuracy": run.scores["ood_accuracy"], "training_over_blank": scores.over_blank,
        "training_accuracy": scores.accuracy, "learnt": scores.learnt,
    }  # fmt: skip


STUDY = ThresholdStudy()
