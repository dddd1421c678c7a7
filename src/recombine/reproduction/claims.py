"""Claims and their judgement: criteria are registered before training, and verdicts are based on networks that learnt.

A claim makes one or more *statements*. Each has a criterion (`criteria`) and a function that computes samples from
Datasets, one per *case*, such as an encoding; a statement about one case is a *test*. The first case is the one shown
in the paper. Two more groups of samples are judged by the same criterion:

- *alternatives*: other measures, stages, subsets or conventions, counted as yes, no and open, which shows how much a
  verdict depends on such choices. One that measures another quantity than the statistic says so (`Sample.measures`);
- *controls*: further comparisons of failing networks with others (composing, untrained, or trained on the whole grid).

A claim has up to two words. It is *described* if the networks do what the paper says. It is *specific* if this also
tells failing networks from composing or untrained ones of the same architecture; only claims about why networks fail or
compose have statements for it. With few networks, a test gives a direction instead of a verdict. *Exploratory* claims
have estimates but no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic_core import from_json, to_json

from recombine.errors import InvalidValue
from recombine.reproduction.criteria import (
    DIRECTIONS,
    Criterion,
    Fit,
    Learnt,
    Outcome,
    Part,
    Word,
    holm_levels,
    record_digest,
)
from recombine.reproduction.intervals import CONFIDENCE, Estimate, Interval, PlainMean, TrimmedMean

Data = Mapping[str, Any]
"""xarray Datasets by study."""
Verdict = Literal[
    "yes", "partly", "no", "reversed", "open", "not decidable", "direction only", "exploratory", "not measured"
]
"""What the tests of one word of a claim amount to."""
Timing = Literal["before the data", "after the data", "not registered"]
"""When a criterion was written, as far as can be determined from a results folder."""
Versions = Mapping[str, Mapping[str, int]]
"""Declared versions of the measuring code, by study."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Values for networks, of which only those that learnt count."""

    values: np.ndarray
    """One value per network; NaN if missing."""
    fits: tuple[Fit, ...]
    """How well the networks fit their training data, for each of the compared arms."""
    estimated: Callable[[np.ndarray], Estimate] | None = None
    """Computes the estimate from the values that count. Default: a trimmed mean, with the plain mean beside it."""
    measures: str = ""
    """What the values are, in words, if not the criterion's statistic."""

    @property
    def trained(self) -> np.ndarray:
        """Whether each network was trained in all arms; arms may have different numbers of networks."""
        return np.logical_and.reduce([fit.trained for fit in self.fits])

    def learnt(self, rule: Learnt) -> np.ndarray:
        """Return which networks learnt in all arms."""
        return np.logical_and.reduce([rule.learnt(fit) for fit in self.fits])

    def share_learnt(self, rule: Learnt) -> float:
        """Return the fraction of trained networks that learnt, the smallest among the arms."""
        return float(min(rule.learnt(fit).sum() / max(1, fit.trained.sum()) for fit in self.fits))

    def counted(self, rule: Learnt) -> np.ndarray:
        """Return the values of the networks that learnt."""
        return np.asarray(self.values[self.learnt(rule) & np.isfinite(self.values)])


Samples = Callable[..., Mapping[str, Sample]]
"""Function of the Datasets and, by name, the criterion's parameters; it omits cases that cannot be computed."""


def no_samples(data: Data, **parameters: Any) -> dict[str, Sample]:
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
        samples = self.parts[part](data, **self.criterion.parameters)
        if part != "tests":
            return samples
        missing = Sample(np.zeros(0), (Fit.known(np.zeros(0, dtype=bool)),))
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
    """Additional studies whose Datasets are used by alternatives, controls and tests of the word *specific*."""
    exploratory: bool = False
    ours: bool = False
    """Whether the claim is ours rather than the paper's."""

    def __post_init__(self) -> None:
        statistics = [statement.criterion.statistic for statement in self.statements]
        if repeated := [own for own in statistics if statistics.count(own) > 1]:  # tests are told apart by it
            raise InvalidValue("statement", repeated[0], "the only one of its claim with this statistic")

    def judged_on(self, unseen_seeds: str) -> Claim:
        """Return the claim with criteria that say which seeds were still unseen when they were written."""
        criteria = (own.criterion.replace(unseen_seeds=unseen_seeds) for own in self.statements)
        return replace(
            self, statements=tuple(replace(s, criterion=c) for s, c in zip(self.statements, criteria, strict=True))
        )

    def record(self, part: Part, statement: Statement, versions: Versions) -> dict[str, Any]:
        """Return a statement's record for registration: its criterion and any measuring-code versions other than 1."""
        described = part == "tests" and statement.criterion.word == "described"  # others may read the controls
        read = self.studies if described else (*self.studies, *self.beside)
        raised = {study: {name: own for name, own in versions.get(study, {}).items() if own != 1} for study in read}
        about = {"claim": self.name, "part": part, "exploratory": self.exploratory}
        return {**about, "criterion": statement.criterion.record(), "versions": raised}

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
    word: Word = "described"
    """Which word of the claim it tests."""
    plain: Interval | None = None
    """Interval of the plain mean, if the estimate is a trimmed one."""

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
    described: Verdict
    """Whether the networks do what is claimed."""
    specific: Verdict | None = None
    """Whether this tells failing networks from others; None if nothing of that kind is claimed."""
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

    @property
    def words(self) -> dict[Word, Verdict]:
        """The verdict for each word that the claim has."""
        words: dict[Word, Verdict] = {"described": self.described}
        return words if self.specific is None else {**words, "specific": self.specific}

    @property
    def headline(self) -> str:
        """Both words in one phrase, such as `described, not specific`; empty if there are only directions."""
        phrases = [PHRASES[word].get(verdict, "") for word, verdict in self.words.items()]
        return ", ".join(filter(None, phrases))

    def record(self) -> dict[str, Any]:
        """Return plain data for a JSON file; infinite interval limits become null."""
        facts = {**asdict(self), "headline": self.headline, "timing": self.timing, "networks": self.networks}
        return dict(from_json(to_json(facts, inf_nan_mode="null")))


PHRASES: Mapping[Word, Mapping[Verdict, str]] = {
    "described": {
        "yes": "described", "partly": "partly described", "no": "not described", "reversed": "reversed", "open": "open",
        "not decidable": "not decidable", "exploratory": "exploratory", "not measured": "not measured",
    },
    "specific": {
        "yes": "specific", "partly": "partly specific", "no": "not specific", "reversed": "stronger in the controls",
        "open": "specificity open", "not decidable": "specificity not decidable",
        "not measured": "specificity not measured",
    },
}  # fmt: skip
"""How a claim's verdicts are put in a headline."""


@dataclass(frozen=True)
class Measured:
    """A sample with its criterion."""

    criterion: Criterion
    case: str
    sample: Sample
    timing: Timing

    @cached_property
    def counted(self) -> np.ndarray:
        """The values of the networks that learnt."""
        return self.sample.counted(self.criterion.learnt)

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate from the networks that learnt."""
        if self.sample.estimated is not None:
            return self.sample.estimated(self.counted)
        return TrimmedMean.of(self.counted, self.criterion.trim)

    @cached_property
    def plain(self) -> PlainMean | None:
        """The plain mean, beside a trimmed one."""
        return PlainMean.of(self.counted) if self.sample.estimated is None and self.criterion.trim else None

    @cached_property
    def barred(self) -> Outcome | None:
        """The outcome if too few networks were trained or learnt for a verdict; otherwise None."""
        sample, rule = self.sample, self.criterion.learnt
        if not self.estimate.networks:
            return "not measured" if not sample.trained.any() else "not decidable"
        enough = len(self.counted) >= rule.smallest_share * sample.learnt(rule).sum()  # the others have no value
        if not (sample.share_learnt(rule) >= rule.smallest_share and enough):
            return "not decidable"
        if self.estimate.networks < rule.fewest_networks:
            return self.criterion.direction(self.estimate.value)
        return None

    def outcome(self, level: float) -> Outcome:
        """Return the outcome at a confidence level, which is open if the two means disagree."""
        outcome = self.criterion.outcome(self.estimate.interval(level))
        if self.plain is None or not self.criterion.both_means:
            return outcome
        return outcome if self.criterion.outcome(self.plain.interval(level)) == outcome else "open"

    def result(self, level: float) -> Test:
        """Return the test result at the given confidence level."""
        own, shown = self.criterion, self.criterion.confidence
        return Test(
            self.case, own.statistic, own.range, self.barred or self.outcome(level), self.estimate.interval(shown),
            len(self.counted), int(self.sample.trained.sum()), shown if self.barred else level, self.timing,
            self.sample.measures, own.word, None if self.plain is None else self.plain.interval(shown),
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
                rows.append(Measured(criterion, case, sample, timing))
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
        words = {word: _verdict(claim, results, word) for word in _words(claim)}
        judgements.append(Judgement(
            claim.name, claim.text, claim.where, words.get("described", "not decidable"), words.get("specific"),
            results, alternatives, controls, claim.ours,
        ))  # fmt: skip
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


def _words(claim: Claim) -> list[Word]:
    return list(dict.fromkeys(statement.criterion.word for statement in claim.statements))


def _verdict(claim: Claim, tests: Sequence[Test], word: Word) -> Verdict:
    """Combine the outcomes of one word's tests."""
    if claim.exploratory:
        return "exploratory"
    distinct: set[Outcome] = set()
    for statement in claim.statements:
        criterion = statement.criterion
        outcomes = {test.outcome for test in tests if test.statistic == criterion.statistic}
        if criterion.word == word:
            distinct |= _combined(criterion, outcomes)
    if distinct & set(DIRECTIONS):
        return "direction only"
    if "yes" in distinct:
        return "yes" if len(distinct) == 1 else "partly"
    if distinct & {"no", "reversed"}:
        return "reversed" if "no" not in distinct else "no"
    if distinct == {"not measured"}:
        return "not measured"
    return "open" if "open" in distinct else "not decidable"


def _combined(criterion: Criterion, outcomes: set[Outcome]) -> set[Outcome]:
    """Return what the outcomes of a statement's cases amount to."""
    if criterion.combine == "any" and "yes" in outcomes:
        return {"yes"}
    if criterion.combine == "contrast" and len(outcomes) > 1 and not outcomes & set(DIRECTIONS):
        return {"no"} if outcomes & {"no", "reversed"} else outcomes - {"yes"}
    return outcomes
