"""How does the amount of data needed grow with image size? (§4.2, Fig. 4c)

The threshold is the smallest training set with which networks reach 90 % coordinate accuracy. Its exponent is the
least-squares slope of ln threshold against ln N. The paper claims N³ with bumps alone, and N with all 2N stripes and
few or no bumps. docs/reproduction.md (C11) describes the protocols, and explains which exponents are tested and why.

Bumps are drawn independently, and repeated draws count separately. Networks are scored at integer positions
(`threshold_design` says where). For bumps alone, the same networks give a threshold for each *tolerance*: the brightest
pixel is the right one, it is at most one pixel off along either axis, or the error over that of blank images is at most
a tenth (a score of 1 − error over blank of 90 %). With stripes, a training set has 2N + n examples for n ≥ 0 bumps; if
stripes alone suffice, the threshold is exactly 2N.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from numpy.typing import ArrayLike, NDArray

from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.papers.forced_rendering import threshold_design as design
from recombine.papers.forced_rendering.samples import learnt
from recombine.papers.forced_rendering.threshold_design import BUMPS, FAMILIES, PRIMARY, TARGET, Cell, Settings
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Fit, above
from recombine.reproduction.intervals import CONFIDENCE, Resampled
from recombine.reproduction.study import DONE, Arm, Study, Trials
from recombine.specs import RunSpec
from recombine.store import Run

PER_NETWORK = (
    "bumps", "examples", "accuracy", "exact_accuracy", "error_score", "whole_accuracy", "held_out_accuracy",
    "training_over_blank", "training_accuracy",
)  # fmt: skip
"""Variables stored per network (scores are NaN if it diverged)."""
ONE_PIXEL = "1 px"
TOLERANCES = {"exact": "exact_accuracy", ONE_PIXEL: "accuracy", "MSE": "error_score"}
"""Tolerances, and the variables to which the target applies."""


class ThresholdStudy(Study[Settings]):
    name: ClassVar[str] = "threshold"
    question: ClassVar[str] = "How does the amount of data needed for 90 % accuracy grow with image size?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = ("extreme_pixel", "hits", "squared_error")

    def cells(self, preset: Settings) -> list[Cell]:
        """Return a cell for every threshold to be fitted."""
        protocols, sizes = design.PROTOCOLS[: preset.threshold_protocols], sorted(set(preset.threshold_sizes))
        return [Cell(preset, *labels) for labels in product(protocols, FAMILIES, sizes)]

    def arms(self, preset: Settings) -> list[Arm]:
        """Return the first round, one network per experimental arm: stripes alone and all affordable bump counts."""
        return [
            Arm((*cell.labels, design.bumps_of(spec), spec.seed), spec)
            for cell in self.cells(preset)
            for spec in cell.planned({})
        ]

    def specs(self, preset: Settings) -> list[RunSpec]:
        return self.more(preset, {})

    def more(self, preset: Settings, runs: Mapping[str, Run]) -> list[RunSpec]:
        specs = {spec.digest: spec for cell in self.cells(preset) for spec in cell.planned(runs)}
        new = (spec for key, spec in specs.items() if key not in runs)
        # Training together is most efficient for networks of the same size and similar training length.
        return sorted(new, key=lambda spec: (spec.task.image_shape[0], spec.total_steps, spec.seed))

    def trials(self, preset: Settings, device: torch.device, runs: Mapping[str, Run]) -> Trials[Settings]:
        cells = self.cells(preset)
        by_cell = {cell.labels: [runs[spec.digest] for spec in cell.planned(runs)] for cell in cells}
        return Trials(preset, device, by_cell)

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        cells, preset = self.cells(trials.preset), trials.preset
        runs = {run.key: run for _, own in trials.items() for run in own if run.status == DONE}
        scores = {key: training_scores(run, trials.device) for key, run in runs.items()}
        rows = [measured(cell, trials, scores, np.random.default_rng(number)) for number, cell in enumerate(cells)]
        labels = zip(*(cell.labels for cell in cells), strict=True)
        coords = {name: list(dict.fromkeys(own)) for name, own in zip((*DIMS, "size"), labels, strict=True)}
        shape = tuple(len(values) for values in coords.values())
        variables = {
            name: ((*coords, *own.dims[1:]), own.values.reshape(*shape, *own.shape[1:]))
            for name, own in xarray.concat(rows, "cell").items()
        }
        result = xarray.Dataset(variables, {**coords, "measure": list(TOLERANCES)})
        by_tolerance = [name for name, own in result.items() if "measure" in own.dims]
        alone = result[by_tolerance].sel(family=BUMPS, drop=True)
        result = with_tolerances(with_exponents(result.drop_vars(by_tolerance).merge(alone)))
        names = ("steps", "epochs", "width", "depth", "small_width", "small_depth", "small_steps")
        recorded = {name: getattr(preset, f"threshold_{name}") for name in names}
        return result.drop_vars(["draws", "tolerance_draws"]).assign_attrs(
            preset=preset.name, target=TARGET, confidence=CONFIDENCE, resamples=result.sizes["resample"], **recorded
        )


def measured(
    cell: Cell, trials: Trials[Settings], scores: Mapping[str, Mapping[str, float]], generator: np.random.Generator
) -> xarray.Dataset:
    """Return the scores of a cell's networks, padded to the largest cell, and the threshold for those that learnt."""
    rows, runs = [], trials[cell.labels]
    for run in runs:
        bumps = design.bumps_of(run.spec)
        row: dict[str, float] = {"bumps": bumps, "examples": cell.stripes + bumps}
        if run.key in scores:  # the network did not diverge
            accuracies = {"whole_accuracy": design.whole_accuracy(run), "held_out_accuracy": run.scores["ood_accuracy"]}
            row |= {"accuracy": cell.accuracy(run), **accuracies, **scores[run.key]}
            row |= tolerance_scores(cell, run, trials.device) if cell.family == BUMPS else {}
        rows.append(row)
    table = xarray.Dataset({name: ("network", [row.get(name, np.nan) for row in rows]) for name in PER_NETWORK})
    counted = learnt(table).values
    points = design.Points(*(table[name].values[counted].astype(float) for name in design.Points._fields))
    fit = cell.threshold(points, generator, trials.device)
    padded = table.assign(learnt=("network", counted)).astype(float).pad(network=(0, trials.seeds - len(runs)))
    return padded.assign(
        networks=int(counted.sum()), trained=len(runs), largest=cell.largest, draws=("resample", fit.draws),
        outcome=fit.outcome, threshold=fit.value, threshold_low=fit.low, threshold_high=fit.high,
        top=fit.top, slope=fit.slope, mid=fit.mid, unreached=fit.unreached,
        **by_tolerance(cell, table.isel(network=counted), generator, trials.device),
    )  # fmt: skip


def by_tolerance(
    cell: Cell, table: xarray.Dataset, generator: np.random.Generator, device: torch.device
) -> dict[str, Any]:
    """Return the thresholds of networks that learnt for each tolerance; only those of bumps alone are fitted."""
    resamples = max(1, design.RESAMPLES // 10)  # fewer, since there are many protocols
    examples = table["examples"].values if cell.family == BUMPS else np.zeros(0)
    fits = [
        cell.threshold(design.Points(examples, table[name].values), generator, device, resamples)
        for name in TOLERANCES.values()
    ]
    names = {"outcome": "outcome", "threshold": "value", "low": "low", "high": "high"}
    variables: dict[str, Any] = {
        f"tolerance_{name}": ("measure", [getattr(fit, own) for fit in fits]) for name, own in names.items()
    }
    return {**variables, "tolerance_draws": (("measure", "some_resample"), np.stack([fit.draws for fit in fits]))}


@torch.no_grad()
def tolerance_scores(cell: Cell, run: Run, device: torch.device) -> dict[str, float]:
    """Return the share of outputs whose brightest pixel is the right one, and 1 − error over blank, at least 0."""
    task, arrays = run.spec.task, run.arrays()
    scored = cell.scored(arrays["held_out"].astype(bool))
    points = task.grid.points[torch.from_numpy(scored)]
    module, inputs = run.module().to(device), task.examples(points).inputs
    outputs = torch.cat([module(part.to(device)).float() for part in inputs.split(256)])
    exact = (extreme_pixel(outputs, "bright" if task.background == 0 else "dark").cpu() == points).all(dim=-1)
    over = float(arrays["error"][scored].mean() / arrays["blank"][scored].mean())
    return {"exact_accuracy": exact.double().mean().item(), "error_score": max(0.0, 1 - over)}


@torch.no_grad()
def training_scores(run: Run, device: torch.device) -> dict[str, float]:
    """Return a network's error over blank and accuracy (NaN without bumps) on its training examples.

    Unlike `scores.training_fit`, this handles bumps off the grid and counts repeated draws separately. If there are
    more than 1024 examples, it uses 1024 evenly spaced ones, which is a random sample since draws are unordered.
    """
    task = run.spec.task
    values = task.training_values(run.spec.seed)
    if len(values) > 1024:
        values = values[torch.linspace(0, len(values) - 1, 1024).long()]
    module, examples = run.module().to(device), task.examples(values)
    outputs = torch.cat([module(part.to(device)).float() for part in examples.inputs.split(256)])
    targets, values = examples.targets.to(device), values.to(device)
    errors, blank = squared_error(outputs, targets), squared_error(task.blank.to(device).expand_as(targets), targets)
    is_bump = ~values.isnan().any(dim=1)
    located = extreme_pixel(outputs[is_bump], "bright" if task.background == 0 else "dark")
    in_place = hits(located, values[is_bump, :2])
    over = [(errors[kind].mean() / blank[kind].mean()).item() for kind in (is_bump, ~is_bump) if kind.any()]
    return {"training_over_blank": max(over), "training_accuracy": in_place.double().mean().item()}


STUDY = ThresholdStudy()


# A parabola is fitted to ln threshold against ln N. The local exponent is its slope at the largest N, and the curvature
# is its second derivative, which is 0 for any power of N.
#
# A resampled threshold is infinite above the valid range and 0 below it. The resampled slope is then infinite, or
# NaN if infinities of both signs occur. A NaN counts at both ends of an interval, so it can only widen it.
#
# If the target is not reached at some N, a protocol has no exponent, since leaving out that N would bias it.

FEWEST_SIZES = 3
"""Minimum number of sizes for fitting an exponent or a parabola."""
DIMS = ("protocol", "family")
EXPONENT, LOCAL, CURVATURE = "exponent", "local_exponent", "curvature"


def slopes(sizes: ArrayLike, thresholds: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Return exponent, local exponent and curvature along the last axis of thresholds; NaN with too few sizes."""
    with np.errstate(divide="ignore"):
        logs, values = (np.log(np.asarray(part, dtype=float)) for part in (sizes, thresholds))
    if len(logs) < FEWEST_SIZES:
        return dict.fromkeys((EXPONENT, LOCAL, CURVATURE), np.full(values.shape[:-1], np.nan))
    line = np.linalg.pinv(np.vander(logs, 2, increasing=True))
    parabola = np.linalg.pinv(np.vander(logs - logs.max(), 3, increasing=True))
    weights = {EXPONENT: line[1], LOCAL: parabola[1], CURVATURE: 2 * parabola[2]}
    with np.errstate(invalid="ignore"):  # infinities of both signs give NaN
        return {name: np.asarray((values * own).sum(axis=-1)) for name, own in weights.items()}


def with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """Add exponents, local exponents, curvatures, their resamples, and reasons for missing ones."""
    sizes, protocols = result["size"].values, result["protocol"].values
    reasons = np.array(
        [
            [_reason(result["outcome"].sel(protocol=protocol, family=family)) for family in FAMILIES]
            for protocol in protocols
        ]
    )
    known = reasons == ""
    draws = slopes(sizes, result["draws"].transpose(*DIMS, "resample", "size").values)
    variables: dict[str, Any] = {"reason": (DIMS, reasons)}
    for name, own in slopes(sizes, result["threshold"].transpose(*DIMS, "size").values).items():
        variables[name] = (DIMS, np.where(known, own.round(9), np.nan))  # rounded so that 2N gives exactly 1
        if name != CURVATURE:
            # Resamples are sorted and rounded so that they compress well.
            ordered = np.sort(np.where(known[..., None], draws[name], np.nan), axis=-1).round(3)
            variables[f"{name}_draws"] = ((*DIMS, "resample"), ordered.astype(np.float32))
    return result.assign(variables)


def with_tolerances(result: xarray.Dataset) -> xarray.Dataset:
    """Add exponents for bumps alone by protocol and tolerance, their resamples, and reasons for missing ones."""
    sizes, dims = result["size"].values, ("protocol", "measure")
    outcomes = result["tolerance_outcome"].transpose(*dims, "size")
    reasons = np.array([[_reason(own) for own in row] for row in outcomes])
    values = slopes(sizes, result["tolerance_threshold"].transpose(*dims, "size").values)[EXPONENT]
    draws = slopes(sizes, result["tolerance_draws"].transpose(*dims, "some_resample", "size").values)[EXPONENT]
    ordered = np.sort(np.where((reasons == "")[..., None], draws, np.nan), axis=-1).round(3).astype(np.float32)
    return result.assign({
        "tolerance_reason": (dims, reasons),
        f"tolerance_{EXPONENT}": (dims, np.where(reasons == "", values.round(9), np.nan)),
        f"tolerance_{EXPONENT}_draws": ((*dims, "some_resample"), ordered),
    })  # fmt: skip


def _reason(outcomes: xarray.DataArray) -> str:
    """Return why a protocol has no exponent, given its outcome at every size, or an empty string if it has one."""
    if outcomes.sizes["size"] < FEWEST_SIZES:
        return f"fewer than {FEWEST_SIZES} sizes"
    pairs = zip(outcomes["size"].values, outcomes.values, strict=True)
    return "; ".join(f"{outcome} at N = {size}" for size, outcome in pairs if outcome not in ("fitted", "exact"))


def estimated_exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Resampled:
    """Return a protocol and family's exponent (or `LOCAL` exponent), with an unbounded interval if it has none."""
    networks = int(cells["networks"].min())  # number that learnt, at the size with the fewest
    if not np.isfinite(cells[name].item()):
        return Resampled(np.nan, (-np.inf, np.inf), networks)
    draws = cells[f"{name}_draws"].values.astype(float)
    undefined = int(np.isnan(draws).sum())
    ends = [np.full(undefined, -np.inf), draws[~np.isnan(draws)], np.full(undefined, np.inf)]
    return Resampled(cells[name].item(), tuple(np.concatenate(ends).tolist()), networks)


CUBIC = 2.5
"""Exponents above this value count as agreeing with the paper's 3."""
CURVED = "growth at the largest N, by a parabola"


def protocol_exponents(data: Data, target: float) -> dict[str, Sample]:
    """Return the exponent of bumps alone under every protocol with integer centres that has one, the first in any case.

    `target` is the score to be reached.
    """
    return {
        case: exponent for case, (protocol, exponent) in _by_protocol(data, target).items() if "/integer/" in protocol
    }


def other_exponents(data: Data, target: float) -> dict[str, Sample]:
    """Return the local exponent, and exponents under the protocols with real centres."""
    local = _exponent(_bumps_alone(data, PRIMARY), LOCAL)
    real = {case: own for case, (protocol, own) in _by_protocol(data, target).items() if "/real/" in protocol}
    return {CURVED: local, **real}


def _by_protocol(data: Data, target: float) -> dict[str, tuple[str, Sample]]:
    """Return protocols and exponents by case, one for each tolerance if the Dataset has several."""
    result = data["threshold"]
    if result.attrs.get("target", target) != target:
        return {}
    cases = {}
    for protocol in result["protocol"].values:
        cells = _bumps_alone(data, protocol)
        parts = {"": (cells, EXPONENT)}
        if "measure" in cells.dims:
            parts = {f", {name}": (cells.sel(measure=name), f"tolerance_{EXPONENT}") for name in TOLERANCES}
        for words, (own, name) in parts.items():
            first = protocol == PRIMARY and words in ("", f", {ONE_PIXEL}")
            if first or np.isfinite(own[name].item()):
                cases[design.spelt(protocol) + words] = protocol, _exponent(own, name)
    return cases


def _bumps_alone(data: Data, protocol: str) -> xarray.Dataset:
    """Return a protocol's results with bumps alone."""
    return data["threshold"].sel(protocol=protocol, family=BUMPS)


def _exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Sample:
    """Return a sample of all networks of a protocol, from which one exponent is estimated."""
    parts = (cells["accuracy"], cells["learnt"] == 1, cells["examples"].notnull())
    values, learnt, trained = (part.transpose("size", "network").values.ravel() for part in parts)
    estimated = lambda _: estimated_exponent(cells, name)  # noqa: E731
    return Sample(values.astype(float), (Fit.known(learnt, trained),), estimated)


CLAIMS = (
    Claim(
        "C11",
        "Data needed for 90 % accuracy grows as N³ with bumps alone (with stripes as N: not tested)",
        "§4.2, Fig. 4c",
        statements=(
            Statement(
                above("exponent of N, bumps alone", CUBIC, parameters={"target": TARGET}),
                protocol_exponents,
                other_exponents,
            ),
        ),
        studies=("threshold",),
    ),
)
