"""How a claim is decided: criteria as code, registered before the data, verdicts computed from networks that learnt.

A claim makes one or more *statements*. Each has a criterion (`criteria`) and a function from Datasets to samples, one
per *case*, for instance one per encoding; a statement on a case is a *test*. The first case is the one that the paper
shows. Beside them stand

- *alternatives*: other measures, stages, rows or conventions, judged by the same criterion and compared with the first
  case: "agree 5 of 6" tells whether a verdict hangs on a choice;
- *controls*: the same difference between failing networks and others (composing ones, untrained ones, ones trained on
  the whole grid): whether what the paper gives as the cause is peculiar to networks that fail.

All primary tests of a paper share one error rate (Holm). A claim is *supported* when all its tests are, *partly
supported* when some are, *not supported* when none is and some are not (*reversed* when all that are decided are), *not
decidable* when too few networks learnt, and *undecided* otherwise. With few networks there are directions, no verdicts.
*Exploratory* claims have numbers and no verdict.

No torch here: claims read numbers, wherever they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np

from recombine.reproduction.criteria import (
    DIRECTIONS,
    FEWEST_NETWORKS,
    Criterion,
    Outcome,
    holm_levels,
)
from recombine.reproduction.intervals import CONFIDENCE, Interval
from recombine.reproduction.registration import digest
from recombine.reproduction.samples import FEWEST_LEARNT, Sample

Data = Mapping[str, Any]
"""xarray Datasets by study."""
Samples = Callable[[Data], Mapping[str, Sample]]
"""Samples by the name of their case, from the Datasets that are there; those that cannot be had are left out."""
Verdict = Literal[
    "supported", "partly supported", "not supported", "reversed", "undecided", "not decidable", "direction only",
    "exploratory",
]  # fmt: skip
Timing = Literal["before the data", "after the data", "not registered"]
"""When a criterion was written, as far as a results folder can tell."""


Measured = Mapping[str, Any]
"""By study, how it measures: versions and numbers, as plain data."""
NOT_MEASURED: Measured = {}
ALTERNATIVES, CONTROLS = "alternatives", "controls"
RULES = (Criterion, holm_levels, FEWEST_NETWORKS, FEWEST_LEARNT, CONFIDENCE)
"""What every verdict rests on besides its own criterion."""


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

    def name_of(self, part: str) -> str:
        """The name under which its alternatives or controls are registered."""
        return f"{self.criterion.statistic} ({part})"


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

    def digests(self, measured: Measured = NOT_MEASURED) -> dict[str, str]:
        """By statistic, digests of a statement's criterion and the code behind it.

        Parameters
        ----------
        measured
            By study, how it measures, as plain data.

        Returns
        -------
        dict of str
            For alternatives and controls too, under names with `(alternatives)` or `(controls)`.
        """
        digests = {}
        for statement in self.statements:
            studies = {study: measured.get(study) for study in self.studies}
            beside = studies | {study: measured.get(study) for study in self.beside}
            for name, samples, read in (
                (statement.criterion.statistic, statement.cases, studies),
                (statement.name_of(ALTERNATIVES), statement.alternatives, beside),
                (statement.name_of(CONTROLS), statement.controls, beside),
            ):
                if samples is not no_samples:
                    digests[name] = digest(self.name, asdict(statement.criterion), samples, read, *RULES)
        return digests


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
    """At 95 %, whatever the level that decided."""
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
        return [test for test in self.comparable() if not _agree(test.outcome, first.get(test.statistic))]

    def record(self) -> dict[str, Any]:
        """Plain data for a JSON file; what is not a finite number (an open end of an interval) is null."""
        plain = _plain({**asdict(self), "timing": self.timing, "networks": self.networks})
        assert isinstance(plain, dict)
        return plain


Registered = Mapping[str, Mapping[str, str]]
"""By claim and statistic, the digest under which data were collected."""


def judge(
    claims: Iterable[Claim], data: Data, registered: Registered | None = None, measured: Measured = NOT_MEASURED
) -> list[Judgement]:
    """Verdicts on the claims whose Datasets are there.

    Parameters
    ----------
    claims
        The claims of a paper; their primary tests are corrected for one another.
    data
        Datasets by study.
    registered
        Digests under which the data were collected; none where nothing is known.
    measured
        By study, how it measures, which digests cover.

    Returns
    -------
    list of Judgement
        In the order of the claims.
    """
    judged = [claim for claim in claims if all(study in data for study in claim.studies)]
    digests = [claim.digests(measured) for claim in judged]
    raw = [_tested(claim, data, _timings(claim, own, registered)) for claim, own in zip(judged, digests, strict=True)]
    primary = [test for claim, tests in zip(judged, raw, strict=True) if not claim.exploratory for test in tests]
    decisive = [(s, sample) for (s, _, sample, _) in primary if _barred(s.criterion, sample) is None]
    levels = iter(holm_levels([s.criterion.p_value(sample.estimate) for s, sample in decisive]))
    judgements = []
    for claim, own, tests in zip(judged, digests, raw, strict=True):
        results = [
            _result(s.criterion, case, sample, timing, None if claim.exploratory else levels)
            for s, case, sample, timing in tests
        ]
        timings = _timings(claim, own, registered)
        verdict: Verdict = "exploratory" if claim.exploratory else _verdict([test.outcome for test in results])
        judgements.append(
            Judgement(
                claim.name,
                claim.text,
                claim.where,
                verdict,
                results,
                alternatives=_beside(ALTERNATIVES, claim, data, timings, results),
                controls=_beside(CONTROLS, claim, data, timings, results),
                ours=claim.ours,
            )
        )
    return judgements


def _agree(outcome: Outcome, first: Outcome | None) -> bool:
    """Whether an alternative's outcome is the first case's; a direction agrees with the outcome on its side."""
    sides = {"as claimed": {"supported"}, "opposite": {"not supported", "reversed"}}
    return outcome == first or first in sides.get(outcome, ()) or outcome in sides.get(str(first), ())


def _beside(part: str, claim: Claim, data: Data, timings: Mapping[str, Timing], results: Sequence[Test]) -> list[Test]:
    """Alternatives or controls, each judged at the level of the first case of its statement."""
    levels = {test.statistic: test.level for test in reversed(results)}
    tests = []
    for statement in claim.statements:
        criterion, name = statement.criterion, statement.name_of(part)
        samples = statement.alternatives if part == ALTERNATIVES else statement.controls
        level = repeat(levels.get(criterion.statistic, CONFIDENCE))
        timing = timings.get(name, "before the data")
        tests += [_result(criterion, case, sample, timing, level) for case, sample in samples(data).items()]
    return tests


def _timings(claim: Claim, digests: Mapping[str, str], registered: Registered | None) -> dict[str, Timing]:
    """By what is registered, when its criterion was written."""
    known = (registered or {}).get(claim.name, {})
    otherwise: Timing = "not registered" if registered is None else "after the data"
    return {name: "before the data" if known.get(name) == own else otherwise for name, own in digests.items()}


def _tested(claim: Claim, data: Data, timings: Mapping[str, Timing]) -> list[tuple[Statement, str, Sample, Timing]]:
    """The samples of every test of a claim, with when its criterion was written."""
    tests: list[tuple[Statement, str, Sample, Timing]] = []
    for statement in claim.statements:
        cases = statement.cases(data) or {"no case": NO_SAMPLE}
        timing = timings[statement.criterion.statistic]
        tests += [(statement, case, sample, timing) for case, sample in cases.items()]
    return tests


def _barred(criterion: Criterion, sample: Sample) -> Outcome | None:
    """Why there is no verdict on a sample: too few networks, or too few of them that learnt."""
    if not sample.estimate.networks:
        return "not measured" if not sample.networks_trained else "not decidable"
    if not sample.enough_learnt:
        return "not decidable"
    if sample.estimate.networks < FEWEST_NETWORKS:
        return criterion.direction(sample.estimate.value)
    return None


def _result(criterion: Criterion, case: str, sample: Sample, timing: Timing, levels: Iterator[float] | None) -> Test:
    outcome, level = _barred(criterion, sample), CONFIDENCE
    if outcome is None:
        level = CONFIDENCE if levels is None else next(levels)
        outcome = criterion.outcome(sample.estimate.interval(level))
    return Test(
        case, criterion.statistic, criterion.range, outcome, sample.estimate.interval(), sample.networks_counted,
        sample.networks_trained, level, timing,
    )  # fmt: skip


def _verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """Of a claim, from those of its tests."""
    distinct = set(outcomes)
    if distinct & set(DIRECTIONS):
        return "direction only"
    if distinct == {"supported"}:
        return "supported"
    if "supported" in distinct:
        return "partly supported"
    if distinct & {"not supported", "reversed"}:
        return "reversed" if "not supported" not in distinct else "not supported"
    return "undecided" if "undecided" in distinct else "not decidable"


def _plain(value: Any) -> Any:
    """Nested data with null in the place of numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value
