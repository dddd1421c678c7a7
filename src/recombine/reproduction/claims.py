"""Claims and their judgement: criteria are registered before training, and verdicts are based on networks that learnt.

A claim makes one or more *statements*. Each has a criterion (`criteria`) and a function that computes samples from
Datasets, one per *case*, such as an encoding; a statement about one case is a *test*. The first case is the one shown
in the paper. Two more groups of samples are judged by the same criterion:

- *alternatives*: other measures, stages, subsets or conventions. "agree 5 of 6" counts those with the same outcome as
  the first case, which shows how much a verdict depends on such choices. One that measures another quantity than the
  statistic says so (`Sample.measures`);
- *controls*: the difference between failing networks and others (composing, untrained, or trained on the whole grid),
  which shows whether the cause proposed by the paper is specific to failing networks.

With few networks, a test gives a direction instead of a verdict. *Exploratory* claims have estimates but no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic_core import from_json, to_json

from recombine.errors import InvalidValue
from recombine.reproduction.criteria import DIRECTIONS, Criterion, Outcome, Part, holm_levels, record_digest
from recombine.reproduction.intervals import CONFIDENCE, TRIM, Estimate, Interval, TrimmedMean

Data = Mapping[str, Any]
"""xarray Datasets by study."""
Verdict = Literal[
    "supported", "partly supported", "not supported", "reversed", "undecided", "not decidable", "direction only",
    "exploratory",
]  # fmt: skip
Timing = Literal["before the data", "after the data", "not registered"]
"""When a criterion was written, as far as can be determined from a results folder."""
Versions = Mapping[str, Mapping[str, int]]
"""Declared versions of the measuring code, by study."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Values for networks, of which only those that learnt count."""

    values: np.ndarray
    """One value per network; NaN if missing."""
    learnt: np.ndarray
    """Whether each network learnt its training set."""
    trained: np.ndarray
    """Whether each network was trained; experimental arms may have different numbers of networks."""
    estimated: Callable[[np.ndarray], Estimate] | None = None
    """Computes the estimate from the values that count. Default: a trimmed mean."""
    share_learnt: float | None = None
    """Fraction of networks that learnt, the smallest among the compared arms. Default: that of this sample."""
    measures: str = ""
    """What the values are, in words, if not the criterion's statistic."""

    def estimate(self, trim: float = TRIM) -> Estimate:
        """Return the estimate from the networks that count."""
        values = self.values[self._counted]
        return TrimmedMean.of(values, trim) if self.estimated is None else self.estimated(values)

    @property
    def networks_counted(self) -> int:
        """Number of networks that learnt and have a value."""
        return int(self._counted.sum())

    @property
    def networks_trained(self) -> int:
        """Number of trained networks."""
        return int(self.trained.sum())

    @property
    def _counted(self) -> np.ndarray:
        return np.asarray(self.learnt & self.trained & np.isfinite(self.values))


Samples = Callable[[Data], Mapping[str, Sample]]
"""Function that returns samples by case for the available Datasets, omitting cases that cannot be computed."""


def no_samples(data: Data) -> dict[str, Sample]:
    """Return no samples (for statements without alternatives or controls)."""
    return {}


@dataclass(frozen=True)
class Statement:
    """One statement of a claim, and how it is tested."""

    criterion: Criterion
    cases: Samples
    alternatives: Samples = no_samples
    controls: Samples = no_samples

    @property
    def parts(self) -> dict[Part, Samples]:
        """The three groups of samples judged by the criterion."""
        return {"tests": self.cases, "alternatives": self.alternatives, "controls": self.controls}

    def samples(self, part: Part, data: Data) -> Mapping[str, Sample]:
        """Return the samples of one group by case; for tests, only the cases named by the criterion."""
        samples = self.parts[part](data)
        if part != "tests":
            return samples
        missing = Sample(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
        return {case: samples.get(case, missing) for case in self.criterion.cases or samples or ["no case"]}


@dataclass(frozen=True)
class Claim:
    """A claim, and how it is judged."""

    name: str
    text: str
    """The claim in the paper's words."""
    where: str
    """Section and figure."""
    statements: tuple[Statement, ...]
    studies: tuple[str, ...]
    """Studies whose Datasets are used by the tests."""
    beside: tuple[str, ...] = ()
    """Additional studies whose Datasets are used by alternatives and controls."""
    exploratory: bool = False
    ours: bool = False
    """Whether the claim is ours rather than the paper's."""

    def __post_init__(self) -> None:
        statistics = [statement.criterion.statistic for statement in self.statements]
        if repeated := [own for own in statistics if statistics.count(own) > 1]:  # tests are told apart by it
            raise InvalidValue("statement", repeated[0], "the only one of its claim with this statistic")

    def record(self, part: Part, statement: Statement, versions: Versions) -> dict[str, Any]:
        """Return a statement's record for registration: its criterion and any measuring-code versions other than 1."""
        read = self.studies if part == "tests" else (*self.studies, *self.beside)
        raised = {study: {name: own for name, own in versions.get(study, {}).items() if own != 1} for study in read}
        criterion = statement.criterion.model_dump(mode="json")
        about = {"claim": self.name, "part": part, "exploratory": self.exploratory}
        return {**about, "criterion": criterion, "versions": raised}

    def records(self, versions: Versions) -> list[dict[str, Any]]:
        """Return all records to be registered before the claim's data are collected."""
        return [
            self.record(part, statement, versions)
            for statement in self.statements
            for part, samples in statement.parts.items()
            if samples is not no_samples
        ]


@dataclass(frozen=True)
class Test:
    """A criterion applied to one sample."""

    __test__: ClassVar[bool] = False  # not a pytest class

    case: str
    statistic: str
    claimed: str
    """The claimed range of the statistic, in words."""
    outcome: Outcome
    interval: Interval
    """Uncorrected interval, regardless of the level that decided the outcome."""
    learnt: int
    trained: int
    level: float = CONFIDENCE
    """Confidence level that decided the outcome; corrected by Holm's procedure for primary tests."""
    timing: Timing = "before the data"
    measures: str = ""
    """What an alternative measures, if not its statement's statistic; the claimed range is in its own units then."""

    @property
    def measured(self) -> str:
        """What was measured, in words."""
        return self.measures or self.statistic


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict with its evidence."""

    claim: str
    text: str
    where: str
    verdict: Verdict
    tests: list[Test] = field(default_factory=list)
    alternatives: list[Test] = field(default_factory=list)
    controls: list[Test] = field(default_factory=list)
    ours: bool = False
    """Whether the claim is ours rather than the paper's."""
    reference: str = ""
    """The verdict of the reference results, if there are any."""

    @property
    def networks(self) -> int:
        """Smallest number of networks that learnt in any test."""
        return min((test.learnt for test in self.tests), default=0)

    @property
    def timing(self) -> Timing:
        """The latest timing of any of its tests."""
        timings = {test.timing for test in self.tests}
        return next((t for t in ("after the data", "not registered") if t in timings), "before the data")

    def comparable(self) -> list[Test]:
        """Return the alternatives that have an outcome."""
        return [test for test in self.alternatives if test.outcome not in ("not decidable", "not measured")]

    def differing(self) -> list[Test]:
        """Return the comparable alternatives whose outcomes differ from that of their statement's first case."""
        first = {test.statistic: test.outcome for test in reversed(self.tests)}
        sides = {"supported": "as claimed", "not supported": "opposite", "reversed": "opposite"}

        def agree(a: str, b: str) -> bool:  # a direction agrees with an outcome on the same side
            return a == b or sides.get(a) == b or a == sides.get(b)

        return [test for test in self.comparable() if not agree(test.outcome, first.get(test.statistic, ""))]

    def record(self) -> dict[str, Any]:
        """Return plain data for a JSON file; infinite interval limits become null."""
        facts = {**asdict(self), "timing": self.timing, "networks": self.networks}
        return dict(from_json(to_json(facts, inf_nan_mode="null")))


class Measured(NamedTuple):
    """A sample with its estimate and its criterion."""

    criterion: Criterion
    case: str
    sample: Sample
    estimate: Estimate
    timing: Timing

    @property
    def barred(self) -> Outcome | None:
        """The outcome if too few networks were trained or learnt for a verdict; otherwise None."""
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
        """Return the test result at the given confidence level."""
        criterion, outcome = self.criterion, self.barred
        if outcome is None:
            outcome = criterion.outcome(self.estimate.interval(level))
        else:
            level = criterion.confidence
        return Test(
            self.case, criterion.statistic, criterion.range, outcome, self.estimate.interval(criterion.confidence),
            self.sample.networks_counted, self.sample.networks_trained, level, self.timing, self.sample.measures,
        )  # fmt: skip


def judge(
    claims: Iterable[Claim], data: Data, registered: Collection[str] | None = None, versions: Versions | None = None
) -> list[Judgement]:
    """Return verdicts on the claims whose Datasets are present, in the order of the claims.

    Primary tests are corrected for multiple testing as specified by their criteria. `registered` contains the digests
    of the records registered before the data were collected, or None if these are unknown.
    """

    def measured(claim: Claim, part: Part) -> list[Measured]:
        rows: list[Measured] = []
        for statement in claim.statements:
            criterion, digest = statement.criterion, record_digest(claim.record(part, statement, versions or {}))
            timing: Timing = "not registered"
            if registered is not None:
                timing = "before the data" if digest in registered else "after the data"
            for case, sample in statement.samples(part, data).items():
                rows.append(Measured(criterion, case, sample, sample.estimate(criterion.trim), timing))
        return rows

    present = [claim for claim in claims if all(study in data for study in claim.studies)]
    primary = [(claim, measured(claim, "tests")) for claim in present]
    levels = iter(_levels([own for claim, tests in primary if not claim.exploratory for own in tests]))
    judgements = []
    for claim, tests in primary:
        results = [own.result(own.criterion.confidence if claim.exploratory else next(levels)) for own in tests]
        first = {test.statistic: test.level for test in reversed(results)}  # of the first case of each statement
        alternatives = [own.result(first[own.criterion.statistic]) for own in measured(claim, "alternatives")]
        controls = [own.result(first[own.criterion.statistic]) for own in measured(claim, "controls")]
        verdict = "exploratory" if claim.exploratory else _verdict(claim, results)
        judgements.append(
            Judgement(claim.name, claim.text, claim.where, verdict, results, alternatives, controls, claim.ours)
        )
    return judgements


def _levels(tests: Sequence[Measured]) -> list[float]:
    """Return the confidence level of each primary test; Holm's correction treats tests of equal level as one family."""
    levels = [own.criterion.confidence for own in tests]
    corrected = [k for k, own in enumerate(tests) if own.criterion.correction == "holm" and own.barred is None]
    for confidence in {levels[k] for k in corrected}:
        family = [k for k in corrected if tests[k].criterion.confidence == confidence]
        p_values = [tests[k].criterion.p_value(tests[k].estimate) for k in family]
        for k, level in zip(family, holm_levels(p_values, confidence), strict=True):
            levels[k] = level
    return levels


def _verdict(claim: Claim, tests: Sequence[Test]) -> Verdict:
    """Combine the outcomes of a claim's tests; if any case suffices, one supported case decides its statement."""
    distinct: set[Outcome] = set()
    for statement in claim.statements:
        criterion = statement.criterion
        outcomes = {test.outcome for test in tests if test.statistic == criterion.statistic}
        distinct |= {"supported"} if criterion.combine == "any" and "supported" in outcomes else outcomes
    if distinct & set(DIRECTIONS):
        return "direction only"
    if "supported" in distinct:
        return "supported" if len(distinct) == 1 else "partly supported"
    if distinct & {"not supported", "reversed"}:
        return "reversed" if "not supported" not in distinct else "not supported"
    return "undecided" if "undecided" in distinct else "not decidable"
