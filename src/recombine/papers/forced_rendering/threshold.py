"""How much data does it take, as images grow? (§4.2, Fig. 4c)

The threshold is the smallest training set with which networks reach 90 % coordinate accuracy; its exponent is the slope
of ln threshold on ln N. Paper: N³ with bumps alone, N with all 2N stripes and no or few bumps.

Protocols and verdict: docs/reproduction.md, C11. Bumps are independent draws (an integer centre can come twice and
counts twice), and accuracy is always evaluated at the integers: over the whole grid where bumps are drawn over it, in
the held-out box alone where they are not. With stripes the size of the set is 2N + n for n ≥ 0 bumps; with n = 0 region
and centres mean nothing, so these networks are shared by protocols, and where the lower end of the 95 % interval of
their mean accuracy is at least 90 %, the threshold is 2N, exactly.

The curve is in `threshold_curves.py`, which networks are trained in `threshold_design.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import xarray
from numpy.typing import ArrayLike, NDArray

from recombine.errors import InvalidValue
from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.papers.forced_rendering.samples import LEARNT_ACCURACY, LEARNT_ERROR
from recombine.papers.forced_rendering.threshold_design import (
    FAMILIES,
    PROTOCOLS,
    TARGET,
    Cell,
    Points,
    Settings,
    bumps_of,
    whole_accuracy,
)
from recombine.reproduction.intervals import CONFIDENCE, Resampled
from recombine.reproduction.study import DONE, Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.store import Run


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
        new = (spec for key, spec in specs.items() if key not in runs)
        # networks of one size and of similar length train together best
        return sorted(new, key=lambda spec: (spec.task.image_shape[0], spec.total_steps, spec.seed))

    def trials(self, preset: Settings, device: torch.device, runs: Mapping[str, Run]) -> Trials[Settings]:
        cells = self.cells(preset)
        by_cell = {cell.labels: [runs[spec.digest] for spec in cell.planned(runs)] for cell in cells}
        return Trials(preset, device, by_cell)

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
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


# -- learning --------------------------------------------------------------------------------------------------------
# Whether a network learnt its own training set.
#
# The scores of a run are over the grid outside the hold-out. Of networks with ten bumps that says how far they
# generalise, which is what this study asks, not whether training succeeded. So a network counts here if it draws the
# examples that it was trained on: squared error below a tenth of that of a blank image, of bumps and of stripes each by
# themselves (stripes are so much brighter that bumps would not be seen in a common mean), and more than 95 % of the
# bumps in place (a network without bumps: the error alone). Bounds are those of every claim
# (`recombine.papers.forced_rendering.samples`).
#
# Of training sets with more than `MOST` examples as many are looked at, evenly spaced; draws are in no order.


MOST = 1024
CHUNK = 256
"""Examples at a time."""


class TrainingScores(NamedTuple):
    """How well a network draws what it was trained on."""

    over_blank: float
    """Squared error over that of a blank image: of bumps or of stripes, whichever is larger."""
    accuracy: float
    """Share of the bumps in place; NaN without bumps."""

    @property
    def learnt(self) -> bool:
        """Whether that counts as learnt."""
        in_place = math.isnan(self.accuracy) or self.accuracy > LEARNT_ACCURACY
        return self.over_blank < LEARNT_ERROR and in_place


@torch.no_grad()
def training_scores(run: Run, device: torch.device) -> TrainingScores:
    """How well a network draws its training examples, or `MOST` of them."""
    task = run.spec.task
    values = task.training_values(run.spec.seed)
    if len(values) > MOST:
        values = values[torch.linspace(0, len(values) - 1, MOST).long()]
    module, examples = run.module().to(device), task.examples(values)
    outputs = torch.cat([module(part.to(device)).float() for part in examples.inputs.split(CHUNK)])
    targets, values = examples.targets.to(device), values.to(device)
    errors, blank = squared_error(outputs, targets), squared_error(task.blank.to(device).expand_as(targets), targets)
    is_bump = ~values.isnan().any(dim=1)
    located = extreme_pixel(outputs[is_bump], "bright" if task.background == 0 else "dark")
    in_place = hits(located, values[is_bump, :2])
    over = [(errors[kind].mean() / blank[kind].mean()).item() for kind in (is_bump, ~is_bump) if kind.any()]
    return TrainingScores(max(over), in_place.double().mean().item())


# -- exponents -------------------------------------------------------------------------------------------------------
# Exponents of the data threshold in N, from a table of thresholds and from resampled ones.
#
# The exponent is the least-squares slope of ln threshold on ln N. A resampled threshold beyond what is believed is
# infinite, one below it 0, and slopes follow from that: infinite upward where it is a large N that is never reached,
# downward where it is a small one, and undefined (NaN) where both pull. An undefined one counts at both ends of an
# interval, so that it can only widen it.
#
# The *local* exponent is the slope, at the largest N, of a parabola through ln threshold over ln N: what the growth
# comes to where images are large. The parabola's second derivative is the *curvature*: 0 for a power of N, whatever the
# power.
#
# A protocol in which some N never reaches the target has no exponent: leaving that N out would bias it.
#
# Known answers: N³ has exponent and local exponent 3 and curvature 0; exp((ln N)²) has curvature 2 and local exponent 2
# ln N at the largest N.


FEWEST_SIZES = 3
"""Sizes that an exponent or a parabola needs."""
DIMS = ("protocol", "family")
DECIMALS = 3
"""Of stored resamples, which are in order: they take little space so."""
EXPONENT, LOCAL, CURVATURE = "exponent", "local_exponent", "curvature"


def exponent(sizes: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """Slope of ln threshold on ln size, along the last axis of the thresholds.

    >>> exponent([20, 28, 36], [20**3, 28**3, 36**3]).round(6).item()
    3.0
    """
    logs = np.log(np.asarray(sizes, dtype=float))
    return _combined(thresholds, np.linalg.pinv(np.stack([logs**0, logs], axis=1))[1])


def parabola(sizes: ArrayLike, thresholds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope at the largest size, and second derivative, of a parabola through ln threshold over ln size."""
    logs = np.log(np.asarray(sizes, dtype=float))
    from_last = logs - logs.max()
    coefficients = np.linalg.pinv(np.stack([from_last**0, from_last, from_last**2], axis=1))
    return _combined(thresholds, coefficients[1]), _combined(thresholds, 2 * coefficients[2])


def _combined(thresholds: ArrayLike, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted sums of ln threshold; those of infinities of both signs are NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(np.asarray(thresholds, dtype=float)) * weights).sum(axis=-1))


def with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """The table with exponents, local exponents and curvatures, resamples of exponents, and why there are none."""
    sizes, protocols = result["size"].values, result["protocol"].values
    cells = [[result.sel(protocol=protocol, family=family) for family in FAMILIES] for protocol in protocols]
    reasons = np.array([[_reason(cell) for cell in row] for row in cells])
    known = reasons == ""
    thresholds = result["threshold"].transpose(*DIMS, "size").values
    draws = result["draws"].transpose(*DIMS, "resample", "size").values
    variables: dict[str, Any] = {}
    for name, slopes in _slopes(sizes, thresholds).items():
        variables[name] = (DIMS, np.where(known, slopes.round(9), np.nan))  # that of 2N is 1
    for name, slopes in _slopes(sizes, draws).items():
        if name == CURVATURE:
            continue
        ordered = np.sort(np.where(known[..., None], slopes, np.nan), axis=-1).round(DECIMALS)
        variables[f"{name}_draws"] = ((*DIMS, "resample"), ordered.astype(np.float32))
    return result.assign(variables).assign(reason=(DIMS, reasons))


def _slopes(sizes: np.ndarray, thresholds: np.ndarray) -> dict[str, np.ndarray]:
    """All three of a table; NaN with too few sizes."""
    names = (EXPONENT, LOCAL, CURVATURE)
    if len(sizes) < FEWEST_SIZES:
        return dict.fromkeys(names, np.full(thresholds.shape[:-1], np.nan))
    return dict(zip(names, (exponent(sizes, thresholds), *parabola(sizes, thresholds)), strict=True))


def estimated_exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Resampled:
    """An exponent of one protocol and family with its resamples; without one, nothing is known of it.

    `name` is `EXPONENT`, or `LOCAL` for that at the largest N. Its networks are those that learnt at the size that has
    fewest.
    """
    networks = int(cells["networks"].min())
    if not np.isfinite(cells[name].item()):
        return Resampled(np.nan, (-np.inf, np.inf), networks)
    draws = cells[f"{name}_draws"].values.astype(float)
    undefined = int(np.isnan(draws).sum())
    ends = [np.full(undefined, -np.inf), draws[~np.isnan(draws)], np.full(undefined, np.inf)]
    return Resampled(cells[name].item(), tuple(np.concatenate(ends).tolist()), networks)


def exponent_interval(cells: xarray.Dataset, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exponent's interval; an end that resamples without a threshold would decide is infinite."""
    interval = estimated_exponent(cells).interval(confidence)
    return interval.low, interval.high


def _reason(cells: xarray.Dataset) -> str:
    """Why a protocol has no exponent; empty if it has one."""
    if cells.sizes["size"] < FEWEST_SIZES:
        return f"fewer than {FEWEST_SIZES} sizes"
    target = f"{100 * TARGET:.0f} %"
    phrases = {
        "not reached": f"{target} not reached with the largest set",
        "too few networks": "too few networks that learnt",
        "always reached": f"{target} reached with the smallest set",
    }
    reasons = []
    for outcome, phrase in phrases.items():
        where = cells.isel(size=cells["outcome"].values == outcome)
        if where.sizes["size"]:
            everywhere = where.sizes["size"] == cells.sizes["size"]
            sizes = "at any N" if everywhere else f"at N = {', '.join(str(size) for size in where['size'].values)}"
            best = 100 * where["accuracy"].max("network")
            low, high = f"{float(best.min()):.0f}", f"{float(best.max()):.0f}"
            reasons.append(f"{phrase} {sizes} (best network: {low if low == high else f'{low} to {high}'} %)")
    return " and ".join(reasons)


STUDY = ThresholdStudy()
