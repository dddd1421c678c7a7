"""How much data does it take, as images grow? (§4.2, Fig. 4c; claim C11)

The threshold is the smallest training set with which networks reach 90 % coordinate accuracy; its exponent is the slope
of ln threshold on ln N. Paper: N³ with bumps alone, N with all 2N stripes and no or few bumps.

**Protocols.** The paper leaves open three choices, so there are eight protocols: bumps drawn over the *whole* grid, or
from the *kept* combinations only; *integer* or *real* centres; a fixed number of *steps*, or of *epochs*. Bumps are
independent draws (an integer centre can come twice and counts twice), and accuracy is always asked at the integers.

**Accuracy.** With bumps over the whole grid it is the accuracy over the whole grid. With kept combinations it is the
accuracy in the held-out box alone: that is what the paper calls generating in the OOD region, and elsewhere such
networks have been shown what they are asked. Both are stored.

**Families.** *bumps*: n bumps, nothing else. *stripes*: all 2N stripes and n ≥ 0 bumps under the same protocol; the
size of the set is 2N + n. With n = 0 region and centres mean nothing, so these networks are shared by protocols. When
the lower end of the 95 % bootstrap interval of their mean accuracy is at least 90 %, stripes alone suffice: the
threshold is 2N, exactly. Under fixed epochs few stripes also mean few steps: that is the protocol.

**Design.** One network a seed, each at its own n. A first round spreads over all affordable n (N/2 to 4N²; under fixed
epochs no more than `MOST_STEPS` steps); if any network comes near the target, a second round spreads evenly within a
factor of `SPREAD` around the crossing estimated from the first. The threshold is where the curve through all of them
(`psychometric`) crosses the target, its interval comes from resampling networks, and that of the exponent from
resampling them at every N together. A limit that resamples without a threshold would decide is open (`claims.limits`).

**Not reached.** A threshold beyond the largest affordable set is not reached, and a protocol with such a threshold at
any N has no exponent: leaving that N out would bias it. Such a protocol's case is open unless its other exponent fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from recombine.claims import CLAIMS, CONFIDENCE, Absent, Interval, Judgement, bootstrap
from recombine.claims.limits import exponent_interval
from recombine.decoders import CNN
from recombine.errors import InvalidValue
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.studies.base import DONE, Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.psychometric import Threshold, exact_threshold, exponent, fitted, threshold
from recombine.tasks import BumpTask

if TYPE_CHECKING:
    import xarray

TARGET = 0.9
"""Accuracy to be reached."""
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
"""Networks that a curve or a mean needs, and sizes that an exponent needs."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread evenly however many there are."""

Family = Literal["bumps", "stripes"]
FAMILIES: tuple[Family, ...] = ("bumps", "stripes")


class Protocol(NamedTuple):
    """What the paper does not say."""

    region: Literal["whole", "kept"]
    centers: Literal["integer", "real"]
    budget: Literal["steps", "epochs"]

    def __str__(self) -> str:
        return "/".join(self)


REGIONS: tuple[Literal["whole", "kept"], ...] = ("whole", "kept")
CENTERS: tuple[Literal["integer", "real"], ...] = ("integer", "real")
BUDGETS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
PROTOCOLS = tuple(Protocol(*choices) for choices in product(REGIONS, CENTERS, BUDGETS))
"""The first is: whole grid, integer centres, fixed steps."""


class Points(NamedTuple):
    """Networks: the sizes of their training sets and their accuracies."""

    examples: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True)
class Cell:
    """One threshold to be found."""

    preset: Preset
    protocol: Protocol
    family: Family
    size: int

    @property
    def labels(self) -> tuple[str, str, int]:
        """Its place in the Dataset."""
        return str(self.protocol), self.family, self.size

    @property
    def stripes(self) -> int:
        """Examples that are there whatever the number of bumps."""
        return 2 * self.size if self.family == "stripes" else 0

    @property
    def most_bumps(self) -> int:
        """The largest affordable number of bumps."""
        most = DENSEST * self.size**2
        if self.protocol.budget == "epochs":
            recipe = _recipe(self.preset, self.protocol.budget)
            most = min(most, recipe.batch * (MOST_STEPS // max(1, recipe.epochs or 1)) - self.stripes)
        if most < self.size:
            raise InvalidValue("threshold_epochs", self.preset.threshold_epochs, f"fewer, for {MOST_STEPS} steps")
        return most

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
        wanted: list[RunSpec] = []
        for round_of in (self._alone, self._first, self._rest):
            wanted += round_of(self.points([runs[spec.digest] for spec in wanted]), len(wanted))
            if any(spec.digest not in runs for spec in wanted):
                break
        return wanted

    def suffices(self, points: Points) -> bool:
        """Whether stripes alone reach the target."""
        alone = points.accuracy[points.examples == self.stripes]
        return len(alone) > 0 and bootstrap(alone.tolist()).low >= TARGET

    def _count(self, networks: int, fewest: int) -> int:
        """Stripes get half as many networks."""
        return max(fewest, networks if self.family == "bumps" else networks // 2)

    def _alone(self, points: Points, seed: int) -> list[RunSpec]:
        count = max(FEWEST, self.preset.threshold_alone) if self.family == "stripes" else 0
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
    """How many bumps a network is shown."""
    return spec.task.training.count(spec.task.grid.size)


def whole_accuracy(run: Run) -> float:
    """Coordinate accuracy over the whole grid."""
    return float(np.mean(run.arrays()["hit"]))


def _recipe(preset: Preset, budget: str) -> Recipe:
    if budget == "steps":
        return preset.recipe(steps=preset.threshold_steps, lr=preset.lr)
    return preset.recipe(epochs=preset.threshold_epochs, lr=preset.lr)


@cache
def _spec(preset: Preset, protocol: Protocol, family: Family, size: int, bumps: int, seed: int) -> RunSpec:
    """A network of a cell; where there are no bumps, region and centres are left at their defaults."""
    how: dict[str, Any] = {"training": "pick:0"}
    if bumps:
        how = {"training": f"draws:{bumps}", "region": protocol.region, "centers": protocol.centers}
    return RunSpec(
        task=BumpTask(size=size, isolated=family == "stripes", **how),
        decoder=CNN(width=preset.threshold_width, depth=preset.threshold_depth),
        recipe=_recipe(preset, protocol.budget),
        seed=seed,
    )


@register
class ThresholdStudy(Study):
    """Smallest training set for 90 % accuracy, against N, under eight protocols."""

    name: ClassVar[str] = "threshold"
    question: ClassVar[str] = "How does the data needed for 90 % accuracy grow with the image?"
    claims: ClassVar[tuple[str, ...]] = ("C11",)

    def cells(self, preset: Preset) -> list[Cell]:
        """Every threshold to be found."""
        protocols, sizes = PROTOCOLS[: preset.threshold_protocols], sorted(set(preset.threshold_sizes))
        if not protocols:
            raise InvalidValue("threshold_protocols", preset.threshold_protocols, f"1 to {len(PROTOCOLS)}")
        if not sizes:
            raise InvalidValue("threshold_sizes", preset.threshold_sizes, "at least one")
        return [Cell(preset, *labels) for labels in product(protocols, FAMILIES, sizes)]

    def arms(self, preset: Preset) -> list[Arm]:
        """The first round, a network an arm: stripes alone, and bumps over all affordable numbers."""
        return [
            Arm((*cell.labels, bumps_of(spec), spec.seed), spec)
            for cell in self.cells(preset)
            for spec in cell.planned({})
        ]

    def specs(self, preset: Preset) -> list[RunSpec]:
        return self.more(preset, {})

    def more(self, preset: Preset, runs: Mapping[str, Run]) -> list[RunSpec]:
        wanted = {spec.digest: spec for cell in self.cells(preset) for spec in cell.planned(runs)}
        return sorted((spec for key, spec in wanted.items() if key not in runs), key=_length)

    def trials(self, preset: Preset, device: torch.device, runs: Mapping[str, Run]) -> Trials:
        cells = self.cells(preset)
        found = {cell.labels: [runs[spec.digest] for spec in cell.planned(runs)] for cell in cells}
        return Trials(preset, device, found)

    def measure(self, trials: Trials) -> xarray.Dataset:
        import xarray

        cells = self.cells(trials.preset)
        rows = [
            _measured(cell, trials[cell.labels], trials.seeds, np.random.default_rng(number))
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
        result = _with_exponents(xarray.Dataset(variables, coords)).drop_vars("draws")
        return result.assign_attrs(
            preset=trials.preset.name, target=TARGET, confidence=CONFIDENCE, resamples=RESAMPLES,
            steps=trials.preset.threshold_steps, epochs=trials.preset.threshold_epochs,
            width=trials.preset.threshold_width, depth=trials.preset.threshold_depth,
        )  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        level = 1 - (1 - CONFIDENCE) / result.sizes["protocol"]
        cases = {
            str(protocol): {
                f"exponent_{family}": _score(result.sel(protocol=protocol, family=family), level) for family in FAMILIES
            }
            for protocol in result["protocol"].values
        }
        return [CLAIMS["C11"].judge(cases)]


NETWORK = ("bumps", "examples", "accuracy", "whole_accuracy", "held_out_accuracy")
"""What is stored of every network; `accuracy` is the one that the target is about."""


def _length(spec: RunSpec) -> tuple[int, int, int]:
    """Networks of one size and of similar length train together best."""
    return spec.task.image_shape[0], spec.total_steps, spec.seed


def _measured(cell: Cell, runs: Sequence[Run], networks: int, generator: np.random.Generator) -> dict[str, Any]:
    """A cell's networks and its threshold."""
    points, runs = cell.points(runs), [run for run in runs if run.status == DONE]
    values = {
        "bumps": points.examples - cell.stripes,
        "examples": points.examples,
        "accuracy": points.accuracy,
        "whole_accuracy": np.array([whole_accuracy(run) for run in runs]),
        "held_out_accuracy": np.array([run.scores["ood_accuracy"] for run in runs]),
    }
    padded = {name: np.pad(value, (0, networks - len(runs)), constant_values=np.nan) for name, value in values.items()}
    found = cell.threshold(points, generator)
    return {
        **padded, "networks": len(runs), "largest": cell.largest, "outcome": found.outcome,
        "threshold": found.value, "threshold_low": found.low, "threshold_high": found.high, "draws": found.draws,
        "top": found.top, "slope": found.slope, "mid": found.mid, "unreached": found.unreached,
        "undercut": found.undercut,
    }  # fmt: skip


def _with_exponents(result: xarray.Dataset) -> xarray.Dataset:
    """Exponents with intervals from the resampled thresholds, or why there is none."""
    dims = ("protocol", "family")
    pairs = product(result["protocol"].values, FAMILIES)
    reasons = np.array([_reason(result.sel(protocol=protocol, family=family)) for protocol, family in pairs])
    reasons = reasons.reshape(-1, len(FAMILIES))
    defined = reasons == ""
    sizes = result["size"].values
    if len(sizes) < FEWEST:
        found, draws = np.full(defined.shape, np.nan), np.full((*defined.shape, RESAMPLES), np.nan)
    else:
        found = exponent(sizes, result["threshold"].transpose(*dims, "size").values).round(9)  # that of 2N is 1
        draws = exponent(sizes, result["draws"].transpose(*dims, "resample", "size").values)
    found, draws = np.where(defined, found, np.nan), np.where(defined[..., None], draws, np.nan)
    result = result.assign(
        exponent=(dims, found), reason=(dims, reasons),
        exponent_draws=((*dims, "resample"), draws.astype(np.float32)),
    )  # fmt: skip
    limits = [
        exponent_interval(result.sel(protocol=protocol, family=family), CONFIDENCE)
        for protocol, family in product(result["protocol"].values, FAMILIES)
    ]
    low, high = np.array(limits).T.reshape(2, *defined.shape)
    return result.assign(exponent_low=(dims, low), exponent_high=(dims, high))


def _reason(cells: xarray.Dataset) -> str:
    """Why a protocol has no exponent; empty if it has one."""
    if cells.sizes["size"] < FEWEST:
        return f"fewer than {FEWEST} sizes"
    said = {
        "not reached": f"{100 * TARGET:.0f} % not reached with the largest set",
        "unsure": f"{100 * TARGET:.0f} % not surely reached",
        "always reached": f"{100 * TARGET:.0f} % reached with the smallest set",
    }
    found = []
    for outcome, words in said.items():
        where = cells.isel(size=cells["outcome"].values == outcome)
        if where.sizes["size"]:
            everywhere = where.sizes["size"] == cells.sizes["size"]
            place = "at any N" if everywhere else f"at N = {', '.join(str(size) for size in where['size'].values)}"
            best = 100 * where["accuracy"].max("network")
            low, high = f"{float(best.min()):.0f}", f"{float(best.max()):.0f}"
            found.append(f"{words} {place} (best network: {low if low == high else f'{low} to {high}'} %)")
    return " and ".join(found)


def _score(cells: xarray.Dataset, level: float) -> Interval | Absent:
    """The exponent at a level of confidence; its seeds are the networks at the size that has fewest."""
    if not np.isfinite(cells["exponent"]):
        return Absent(cells["reason"].item())
    return Interval(cells["exponent"].item(), *exponent_interval(cells, level), int(cells["networks"].min()))
