"""How a claim is decided: criteria are data, registered before the networks; verdicts follow from networks that learnt.

A claim makes one or more *statements*. Each has a criterion (`criteria`) and a function from Datasets to samples, one
per *case*, for instance one per encoding; a statement on a case is a *test*. The first case is the one that the paper
shows. Beside them stand

- *alternatives*: other measures, stages, rows or conventions, judged by the same criterion and compared with the first
  case: "agree 5 of 6" tells whether a verdict hangs on a choice;
- *controls*: the same difference between failing networks and others (composing ones, untrained ones, ones trained on
  the whole grid): whether what the paper gives as the cause is peculiar to networks that fail.

A claim is *supported* when all its tests are, *partly supported* when some are, *not supported* when none is and some
are not (*reversed* when all that are decided are), *not decidable* when too few networks learnt, and *undecided*
otherwise. With few networks there are directions, no verdicts. *Exploratory* claims have numbers and no verdict.

No torch here: claims read numbers, wherever they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic_core import from_json, to_json

from recombine.reproduction.criteria import DIRECTIONS, Criterion, Outcome, Registered, holm_levels
from recombine.reproduction.intervals import CONFIDENCE, TRIM, Estimate, Interval, TrimmedMean

Data = Mapping[str, Any]
"""xarray Datasets by study."""
Verdict = Literal[
    "supported", "partly supported", "not supported", "reversed", "undecided", "not decidable", "direction only",
    "exploratory",
]  # fmt: skip
Timing = Literal["before the data", "after the data", "not registered"]
"""When a criterion was written, as far as a results folder can tell."""
Part = Literal["tests", "alternatives", "controls"]
Versions = Mapping[str, Mapping[str, int]]
"""By study, declared versions of what measures it."""
UNKNOWN: Versions = {}


@dataclass(frozen=True, eq=False)
class Sample:
    """Values over networks, and which of the networks learnt; only those count."""

    values: np.ndarray
    """One per network; NaN where it has none."""
    learnt: np.ndarray
    """Whether each network learnt what it was trained on."""
    trained: np.ndarray
    """Whether each network was trained; arms may have fewer networks than others."""
    estimated: Callable[[np.ndarray], Estimate] | None = None
    """The estimate from the values that count; a trimmed mean if left out."""
    share_learnt: float | None = None
    """Share of networks that learnt, of compared arms the smallest; that of this sample if left out."""

    def estimate(self, trim: float = TRIM) -> Estimate:
        """Over the networks that learnt and have a value."""
        values = self.values[self._counted]
        return TrimmedMean.of(values, trim) if self.estimated is None else self.estimated(values)

    @property
    def networks_counted(self) -> int:
        """How many learnt and have a value."""
        return int(self._counted.sum())

    @property
    def networks_trained(self) -> int:
        """How many were trained."""
        return int(self.trained.sum())

    @property
    def _counted(self) -> np.ndarray:
        return np.asarray(self.learnt & self.trained & np.isfinite(self.values))


Samples = Callable[[Data], Mapping[str, Sample]]
"""Samples by the name of their case, from the Datasets that are there; those that cannot be had are left out."""
NO_SAMPLE = Sample(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
"""Of a statement that has no case in the data."""


def no_samples(data: Data) -> dict[str, Sample]:
    """Of a statement without alternatives or controls."""
    return {}


@dataclass(frozen=True)
class Statement:
    """One thing that a claim says, and how it is tested."""

    criterion: Criterion
    cases: Samples
    alternatives: Samples = no_samples
    controls: Samples = no_samples

    @property
    def parts(self) -> dict[Part, Samples]:
        """What is judged by the criterion."""
        return {"tests": self.cases, "alternatives": self.alternatives, "controls": self.controls}

    def samples(self, part: Part, data: Data) -> Mapping[str, Sample]:
        """By case; of the tests, those that the criterion names, and one without networks where there is none."""
        found, named = self.parts[part](data), self.criterion.cases
        if part != "tests":
            return found
        return {case: found.get(case, NO_SAMPLE) for case in named} if named else found or {"no case": NO_SAMPLE}


@dataclass(frozen=True)
class Claim:
    """A claim, and how it is decided."""

    name: str
    text: str
    """What is claimed, in the paper's words."""
    where: str
    """Section and figure."""
    statements: tuple[Statement, ...]
    studies: tuple[str, ...]
    """Whose Datasets its tests read."""
    beside: tuple[str, ...] = ()
    """Whose Datasets alternatives and controls read besides."""
    exploratory: bool = False
    ours: bool = False
    """Whether the paper does not make it."""

    def record(self, part: Part, statement: Statement, versions: Versions) -> Registered:
        """What is registered of a statement's tests, alternatives or controls."""
        read = self.studies if part == "tests" else (*self.studies, *self.beside)
        raised = {study: {name: own for name, own in versions.get(study, {}).items() if own != 1} for study in read}
        return Registered(
            claim=self.name, part=part, criterion=statement.criterion, exploratory=self.exploratory, versions=raised
        )

    def records(self, versions: Versions) -> list[Registered]:
        """What is registered of the claim before its data are collected."""
        return [
            self.record(part, own, versions)
            for own in self.statements
            for part, samples in own.parts.items()
            if samples is not no_samples
        ]


@dataclass(frozen=True)
class Test:
    """A criterion on one sample, and what came of it."""

    __test__: ClassVar[bool] = False  # pytest would take it for one of its own

    case: str
    statistic: str
    claimed: str
    """The range in which the statistic is claimed to lie, in words."""
    outcome: Outcome
    interval: Interval
    """Before correction, whatever the level that decided."""
    learnt: int
    trained: int
    level: float = CONFIDENCE
    """Confidence of the interval that decided: Holm's for primary tests."""
    timing: Timing = "before the data"


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict with the evidence."""

    claim: str
    text: str
    where: str
    verdict: Verdict
    tests: list[Test] = field(default_factory=list)
    alternatives: list[Test] = field(default_factory=list)
    controls: list[Test] = field(default_factory=list)
    ours: bool = False
    """Whether the paper does not make it."""
    reference: str = ""
    """The verdict of the reference results, where there are any."""

    @property
    def networks(self) -> int:
        """Fewest learnt networks behind any test; 0 without one."""
        return min((test.learnt for test in self.tests), default=0)

    @property
    def timing(self) -> Timing:
        """The latest of its tests' timings."""
        timings = {test.timing for test in self.tests}
        return next((t for t in ("after the data", "not registered") if t in timings), "before the data")

    def comparable(self) -> list[Test]:
        """Alternatives that have an outcome."""
        return [test for test in self.alternatives if test.outcome not in ("not decidable", "not measured")]

    def differing(self) -> list[Test]:
        """Those of them whose outcome is not that of the first case of their statement."""
        first = {test.statistic: test.outcome for test in reversed(self.tests)}
        sides = {"supported": "as claimed", "not supported": "opposite", "reversed": "opposite"}

        def agree(one: str, other: str) -> bool:  # a direction agrees with the outcome on its side
            return one == other or sides.get(one) == other or one == sides.get(other)

        return [test for test in self.comparable() if not agree(test.outcome, first.get(test.statistic, ""))]

    def record(self) -> dict[str, Any]:
        """Plain data for a JSON file; what is not a finite number (an open end of an interval) is null."""
        facts = {**asdict(self), "timing": self.timing, "networks": self.networks}
        return dict(from_json(to_json(facts, inf_nan_mode="null")))


def judge(
    claims: Iterable[Claim], data: Data, registered: Collection[str] | None = None, versions: Versions = UNKNOWN
) -> list[Judgement]:
    """Verdicts on the claims whose Datasets are there, in the order of the claims.

    Primary tests are corrected for one another as their criteria say. `registered` has the digests of the records under
    which the data were collected; it is none where nothing is known of them.
    """
    judged = [claim for claim in claims if all(study in data for study in claim.studies)]
    primary = [_measured(claim, "tests", data, versions, registered) for claim in judged]
    corrected = [own for claim, tests in zip(judged, primary, strict=True) if not claim.exploratory for own in tests]
    levels = iter(_levels(corrected))
    judgements = []
    for claim, tests in zip(judged, primary, strict=True):
        results = [own.result(own.criterion.confidence if claim.exploratory else next(levels)) for own in tests]
        first = {test.statistic: test.level for test in reversed(results)}  # of the first case of each statement
        beside: dict[Part, list[Test]] = {
            part: [
                own.result(first[own.criterion.statistic]) for own in _measured(claim, part, data, versions, registered)
            ]
            for part in ("alternatives", "controls")
        }
        judgements.append(
            Judgement(
                claim.name, claim.text, claim.where, "exploratory" if claim.exploratory else _verdict(claim, results),
                results, beside["alternatives"], beside["controls"], ours=claim.ours,
            )
        )  # fmt: skip
    return judgements


class Measured(NamedTuple):
    """A sample with its estimate, and the criterion that it is judged by."""

    criterion: Criterion
    case: str
    sample: Sample
    estimate: Estimate
    timing: Timing

    @property
    def barred(self) -> Outcome | None:
        """Why there is no verdict: too few networks, or too few of them that learnt."""
        if not self.estimate.networks:
            return "not measured" if not self.sample.networks_trained else "not decidable"
        sample, rule = self.sample, self.criterion.learnt
        learnt = int((sample.learnt & sample.trained).sum())
        share = learnt / max(1, sample.networks_trained) if sample.share_learnt is None else sample.share_learnt
        if not (share >= rule.smallest_share and sample.networks_counted >= rule.smallest_share * learnt):
            return "not decidable"
        if self.estimate.networks < rule.fewest_networks:
            return self.criterion.direction(self.estimate.value)
        return None

    def result(self, level: float) -> Test:
        """The test at a level of confidence."""
        criterion, outcome = self.criterion, self.barred
        if outcome is None:
            outcome = criterion.outcome(self.estimate.interval(level))
        else:
            level = criterion.confidence
        return Test(
            self.case, criterion.statistic, criterion.range, outcome, self.estimate.interval(criterion.confidence),
            self.sample.networks_counted, self.sample.networks_trained, level, self.timing,
        )  # fmt: skip


def _measured(
    claim: Claim, part: Part, data: Data, versions: Versions, registered: Collection[str] | None
) -> list[Measured]:
    """The samples of a claim's tests, alternatives or controls."""
    measured = []
    timing: Timing
    for statement in claim.statements:
        criterion, timing = statement.criterion, "not registered"
        if registered is not None:
            digest = claim.record(part, statement, versions).digest
            timing = "before the data" if digest in registered else "after the data"
        for case, sample in statement.samples(part, data).items():
            measured.append(Measured(criterion, case, sample, sample.estimate(criterion.trim), timing))
    return measured


def _levels(tests: Sequence[Measured]) -> list[float]:
    """The confidence at which each primary test is decided; those that Holm corrects at one confidence are a family."""
    levels = [own.criterion.confidence for own in tests]
    corrected = [k for k, own in enumerate(tests) if own.criterion.correction == "holm" and own.barred is None]
    for confidence in {levels[k] for k in corrected}:
        family = [k for k in corrected if tests[k].criterion.confidence == confidence]
        p_values = [tests[k].criterion.p_value(tests[k].estimate) for k in family]
        for k, level in zip(family, holm_levels(p_values, confidence), strict=True):
            levels[k] = level
    return levels


def _verdict(claim: Claim, tests: Sequence[Test]) -> Verdict:
    """Of a claim, from the outcomes of its tests; where any case suffices, one that is supported stands for all."""
    distinct: set[Outcome] = set()
    for statement in claim.statements:
        criterion = statement.criterion
        outcomes = {test.outcome for test in tests if test.statistic == criterion.statistic}
        distinct |= {"supported"} if criterion.combine == "any" and "supported" in outcomes else outcomes
    if distinct & set(DIRECTIONS):
        return "direction only"
    if distinct == {"supported"}:
        return "supported"
    if "supported" in distinct:
        return "partly supported"
    if distinct & {"not supported", "reversed"}:
        return "reversed" if "not supported" not in distinct else "not supported"
    return "undecided" if "undecided" in distinct else "not decidable"
