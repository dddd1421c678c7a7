"""How much data does it take, as images grow? (§4.2, Fig. 4c)

The threshold is the smallest training set with which networks reach 90 % coordinate accuracy; its exponent is the slope
of ln threshold on ln N. Paper: N³ with bumps alone, N with all 2N stripes and no or few bumps.

Protocols and verdict: docs/reproduction.md, C11. Bumps are independent draws (an integer centre can come twice and
counts twice), and accuracy is always evaluated at the integers: over the whole grid where bumps are drawn over it, in
the held-out box alone where they are not. With stripes the size of the set is 2N + n for n ≥ 0 bumps; with n = 0 region
and centres mean nothing, so these networks are shared by protocols, and where the lower end of the 95 % interval of
their mean accuracy is at least 90 %, the threshold is 2N, exactly.

The curve is in `threshold_curves.py`, which networks are trained in `threshold_design.py`.

The exponent is judged on the paper's network with bumps over the whole grid. Read literally, the paper's bumps lie
outside the hold-out and 90 % is to be reached inside; there may be no such threshold. So the second statement asks for
the share of networks, as many at each N, that reach 90 % with the largest set that is affordable (4N² bumps, several
for every combination outside the hold-out); more than half of them have to.

Exponents of protocols in which 90 % is never reached do not exist and are no alternatives; the second statement has
those protocols. A curved growth is looked at by the local exponent, of a parabola at the largest N.

The exponent with stripes is not tested. All 2N of them are always given: where they suffice without a bump, it is 1 by
construction. It is in the Dataset and the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from numpy.typing import ArrayLike, NDArray

from recombine.errors import InvalidValue
from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.papers.forced_rendering.samples import learnt
from recombine.papers.forced_rendering.threshold_design import (
    BUMPS,
    CUBIC,
    FAMILIES,
    LITERAL,
    PRIMARY,
    PROTOCOLS,
    TARGET,
    Cell,
    Points,
    Settings,
    bumps_of,
    spelt,
    whole_accuracy,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above
from recombine.reproduction.intervals import CONFIDENCE, Estimate, Resampled, Share
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
        inner = {"draws": ("resample",), **dict.fromkeys((*NETWORK, "learnt"), ("network",))}
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
)  # fmt: skip
"""What is stored of every network, beside whether it learnt; those that diverged have no scores. `accuracy` is the one
that the target is about."""


def measured(
    cell: Cell,
    runs: Sequence[Run],
    scores: Mapping[str, Mapping[str, float]],
    networks: int,
    generator: np.random.Generator,
    device: torch.device,
) -> dict[str, Any]:
    """A cell's networks, padded to so many, and the threshold of those that learnt."""
    rows = [_network(cell, run, scores.get(run.key)) for run in runs]
    table = xarray.Dataset({name: ("network", [row.get(name, np.nan) for row in rows]) for name in NETWORK})
    counted = learnt(table).values
    points = Points(*(table[name].values[counted].astype(float) for name in Points._fields))
    fit = cell.threshold(points, generator, device)
    padded = table.assign(learnt=("network", counted)).astype(float).pad(network=(0, networks - len(runs)))
    return {
        **{str(name): own.values for name, own in padded.items()},
        "networks": int(counted.sum()), "trained": len(runs), "largest": cell.largest,
        "outcome": fit.outcome, "threshold": fit.value, "threshold_low": fit.low, "threshold_high": fit.high,
        "draws": fit.draws, "top": fit.top, "slope": fit.slope, "mid": fit.mid, "unreached": fit.unreached,
    }  # fmt: skip


def _network(cell: Cell, run: Run, scores: Mapping[str, float] | None) -> dict[str, float]:
    """One network; of one that diverged, its training set alone."""
    bumps = bumps_of(run.spec)
    trained = {"bumps": bumps, "examples": cell.stripes + bumps}
    if scores is None:
        return {**trained}
    return {
        **trained, "accuracy": cell.accuracy(run), "whole_accuracy": whole_accuracy(run),
        "held_out_accuracy": run.scores["ood_accuracy"], **scores,
    }  # fmt: skip


# -- learning --------------------------------------------------------------------------------------------------------
# Whether a network learnt its own training set (`recombine.papers.forced_rendering.scores` says why and how). Training
# sets are not of the grid's points alone, and a bump that was drawn twice counts twice.
#
# Of training sets with more than `MOST` examples as many are looked at, evenly spaced; draws are in no order.


MOST = 1024
CHUNK = 256
"""Examples at a time."""


@torch.no_grad()
def training_scores(run: Run, device: torch.device) -> dict[str, float]:
    """How well a network draws its training examples, or `MOST` of them; without bumps the accuracy is NaN."""
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
    return {"training_over_blank": max(over), "training_accuracy": in_place.double().mean().item()}


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


def slopes(sizes: ArrayLike, thresholds: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Exponent, local exponent and curvature along the last axis of thresholds; NaN with too few sizes.

    >>> slopes([20, 28, 36], [20**3, 28**3, 36**3])["exponent"].round(6).item()
    3.0
    """
    with np.errstate(divide="ignore"):
        logs, values = (np.log(np.asarray(part, dtype=float)) for part in (sizes, thresholds))
    if len(logs) < FEWEST_SIZES:
        return dict.fromkeys((EXPONENT, LOCAL, CURVATURE), np.full(values.shape[:-1], np.nan))
    line = np.linalg.pinv(np.vander(logs, 2, increasing=True))
    parabola = np.linalg.pinv(np.vander(logs - logs.max(), 3, increasing=True))
    weights = {EXPONENT: line[1], LOCAL: parabola[1], CURVATURE: 2 * parabola[2]}
    with np.errstate(invalid="ignore"):  # infinities of both signs make NaN
        return {name: np.asarray((values * own).sum(axis=-1)) for name, own in weights.items()}


def with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """The table with exponents, local exponents and curvatures, resamples of exponents, and why there are none."""
    sizes, protocols = result["size"].values, result["protocol"].values
    cells = [[result.sel(protocol=protocol, family=family) for family in FAMILIES] for protocol in protocols]
    reasons = np.array([[_reason(cell) for cell in row] for row in cells])
    known = reasons == ""
    thresholds = result["threshold"].transpose(*DIMS, "size").values
    draws = result["draws"].transpose(*DIMS, "resample", "size").values
    variables: dict[str, Any] = {}
    for name, own in slopes(sizes, thresholds).items():
        variables[name] = (DIMS, np.where(known, own.round(9), np.nan))  # that of 2N is 1
    for name, own in slopes(sizes, draws).items():
        if name == CURVATURE:
            continue
        ordered = np.sort(np.where(known[..., None], own, np.nan), axis=-1).round(DECIMALS)
        variables[f"{name}_draws"] = ((*DIMS, "resample"), ordered.astype(np.float32))
    return result.assign(variables).assign(reason=(DIMS, reasons))


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


# -- claims ----------------------------------------------------------------------------------------------------------


REACHED = 0.5
"""The share of networks above which 90 % counts as reached."""
CURVED = "growth at the largest N, by a parabola"


def reached(data: Data) -> dict[str, Sample]:
    """The paper's network at every N together."""
    return {spelt(name): _reached(cells) for name, cells in _kept(data).items() if name == str(LITERAL)}


def other_reached(data: Data) -> dict[str, Sample]:
    """Each N alone, and the small network by protocol."""
    samples = {}
    for name, cells in _kept(data).items():
        if name == str(LITERAL):
            samples = {f"N = {size}": _reached(cells.sel(size=[size])) for size in cells["size"].values}
        else:
            samples[spelt(name)] = _reached(cells)
    return samples


def _primary(data: Data) -> xarray.Dataset:
    return data["threshold"].sel(protocol=str(PRIMARY), family=BUMPS)


def _small_exponents(data: Data) -> dict[str, Sample]:
    """By protocol of the small network, where there is an exponent."""
    result = data["threshold"].sel(family=BUMPS)
    small = [name for name in result["protocol"].values if name.endswith("/small")]
    cells = {spelt(name): result.sel(protocol=name) for name in small}
    return {name: _exponent(own) for name, own in cells.items() if np.isfinite(own["exponent"].item())}


def _kept(data: Data) -> dict[str, xarray.Dataset]:
    """Cells with bumps outside the hold-out, by protocol."""
    result = data["threshold"].sel(family=BUMPS)
    return {str(name): result.sel(protocol=name) for name in result["protocol"].values if name.startswith("kept/")}


def _exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Sample:
    """All networks of a protocol and family; the estimate is of all of them together."""
    return _sample(cells, cells["accuracy"], cells["examples"].notnull(), lambda _: estimated_exponent(cells, name))


def _reached(cells: xarray.Dataset) -> Sample:
    """Whether networks with the largest set reach the target in the box."""
    accuracy = cells["held_out_accuracy"]
    values = (accuracy >= TARGET).where(accuracy.notnull())
    return _sample(cells, values, cells["examples"] == cells["largest"], Share.of)


def _sample(
    cells: xarray.Dataset,
    values: xarray.DataArray,
    trained: xarray.DataArray,
    estimated: Callable[[np.ndarray], Estimate],
) -> Sample:
    """Networks of all sizes, one after the other; those count that learnt their training set."""
    flat = [part.transpose("size", "network").values.ravel() for part in (values, cells["learnt"] == 1, trained)]
    return Sample(flat[0].astype(float), flat[1], flat[2], estimated)


CLAIMS = (
    Claim(
        "C11",
        "Data needed for 90 % accuracy grows as N³ with bumps alone (with stripes as N: not tested)",
        "§4.2, Fig. 4c",
        statements=(
            Statement(
                above("exponent of N, bumps alone", CUBIC),
                lambda data: {spelt(str(PRIMARY)): _exponent(_primary(data))},
                alternatives=lambda data: {CURVED: _exponent(_primary(data), LOCAL), **_small_exponents(data)},
            ),
            Statement(
                above("share of networks that reach 90 % in the held-out box with the most bumps outside it", REACHED),
                reached,
                alternatives=other_reached,
            ),
        ),
        studies=("threshold",),
    ),
)
