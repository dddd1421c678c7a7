"""Samples for claims: one number per network, and which networks are included.

A network is included only if it learnt its training data by the rule of the criterion (`Learnt`): by default, its error
is below a tenth of a blank image's and more than 95 % of its bumps are in place (for tasks without bumps, only the
error matters). A claim about another score passes its own `fit`. If the training data are all kept
(not held-out) combinations, scores on these are used. Otherwise, the Dataset contains scores on the training examples
(`scores.training_fit`), which are used instead. An *arm* is an experimental condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import sub
from typing import Any

import numpy as np
import xarray

from recombine.reproduction.claims import Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, Fit, Learnt, above, below, effect
from recombine.reproduction.intervals import CONFIDENCE, Estimate, Interval, Share

COMPOSING_ACCURACY = 0.9

PerSeed = Callable[[xarray.Dataset], xarray.DataArray]
"""Function that computes one number per seed from one arm's slice of a Dataset."""
Statistic = str | PerSeed
"""A function as above, or the name of a variable."""


def fit(networks: xarray.Dataset) -> Fit:
    """Return how well each network fits its training data."""
    error = networks[_error(networks)]
    score = networks.get(f"{_error(networks).partition('_')[0]}_accuracy")  # NaN: there were no bumps to locate
    scores = np.full(error.shape, np.nan) if score is None else np.asarray(score.values, dtype=float)
    return Fit(np.asarray(error.values, dtype=float), scores, np.asarray(trained(networks).values, dtype=bool))


def learnt(networks: xarray.Dataset) -> xarray.DataArray:
    """Return whether each network learnt its training data, by the default rule (for figures and rankings)."""
    return networks[_error(networks)].copy(data=Learnt().learnt(fit(networks)))


def trained(networks: xarray.Dataset) -> xarray.DataArray:
    """Return whether each network was trained, even if it diverged."""
    return networks["trained"] == 1 if "trained" in networks else networks[_error(networks)].notnull()


def _error(networks: xarray.Dataset) -> str:
    return "training_over_blank" if "training_over_blank" in networks else "id_over_blank"


def sample(
    values: xarray.DataArray, *networks: xarray.Dataset, estimated: Callable[[np.ndarray], Estimate] | None = None,
    fit: Callable[[xarray.Dataset], Fit] = fit,
) -> Sample:  # fmt: skip
    """Return a sample of one value per seed, using only seeds whose `networks` all learnt (default: trimmed mean)."""
    return Sample(np.asarray(values.values, dtype=float), tuple(fit(part) for part in networks), estimated)


def number(networks: xarray.Dataset, statistic: Statistic) -> xarray.DataArray:
    """Return an arm's statistic for each seed."""
    return networks[statistic] if isinstance(statistic, str) else statistic(networks)


def measured(networks: xarray.Dataset, statistic: Statistic, fit: Callable[[xarray.Dataset], Fit] = fit) -> Sample:
    """Return a sample of a statistic, restricted to networks that learnt."""
    return sample(number(networks, statistic), networks, fit=fit)


def case(words: str, compute: Callable[[], Sample]) -> dict[str, Sample]:
    """Return one case, or none if it needs a variable or label that the Datasets, of an earlier version, lack."""
    try:
        return {words: compute()}
    except KeyError:
        return {}


def measured_by(networks: xarray.Dataset, statistic: Statistic, words: str, *dims: str) -> dict[str, Sample]:
    """Return the sample of a statistic for every trained arm along `dims`; `words` is the template for case names."""
    cases: dict[str, Sample] = {}
    for labels in product(*(networks[dim].values for dim in dims)):
        arm = dict(zip(dims, labels, strict=True))
        own = networks.sel(arm)
        if trained(own).any():
            cases |= case(words.format(**arm), partial(measured, own, statistic))
    return cases


def decades(numerator: xarray.DataArray, denominator: xarray.DataArray) -> xarray.DataArray:
    """Return log10 of a ratio; -inf where it is 0."""
    quotient = numerator / denominator
    with np.errstate(divide="ignore"):
        return quotient.copy(data=np.log10(quotient.values))


def difference(
    statistic: Statistic, own: xarray.Dataset, other: xarray.Dataset, *, untrained: bool = False,
    by: Callable[..., xarray.DataArray] = sub, fit: Callable[[xarray.Dataset], Fit] = fit,
) -> Sample:  # fmt: skip
    """Compare a statistic of two arms, seed by seed; if the other arm is `untrained`, it need not have learnt."""
    values = by(number(own, statistic), number(other, statistic))
    return sample(values, own, fit=fit) if untrained else sample(values, own, other, fit=fit)


ratio = partial(difference, by=decades)
"""The same comparison, as log10 of the ratio."""


def some_distances(values: xarray.DataArray) -> list[int]:
    """Return the smallest, a middle and the largest distance with non-missing values."""
    present = [int(d) for d in values["distance"].values if values.sel(distance=d).notnull().any()]
    return list(dict.fromkeys(present[k] for k in np.linspace(0, len(present) - 1, 3).astype(int))) if present else []


FAILS = {
    "over_blank": above("held-out error over blank", 0.5),
    "accuracy": below("held-out accuracy", COMPOSING_ACCURACY),
}
COMPOSES = {
    "accuracy": above("held-out accuracy", COMPOSING_ACCURACY),
    "over_blank": below("held-out error over blank", 0.5),
}
"""Criteria for failing and composing networks, keyed by held-out score."""


def held_out_statements(
    criteria: Mapping[str, Criterion], *parts: Callable[..., Mapping[str, Sample]]
) -> tuple[Statement, ...]:
    """Return one statement per held-out score; `parts` compute cases and alternatives from data and score name."""
    return tuple(
        Statement(criterion, *(partial(part, score=score) for part in parts)) for score, criterion in criteria.items()
    )


def majority(values: xarray.DataArray, networks: xarray.Dataset) -> Sample:
    """Return the share of networks with a positive value, minus 0.5."""
    return sample((values > 0).astype(float).where(values.notnull()), networks, estimated=Majority.of)


@dataclass(frozen=True)
class Majority(Share):
    """A share of networks minus 0.5, with its Wilson interval."""

    @property
    def value(self) -> float:
        return super().value - 0.5

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        own = Share(self.count, self.networks).interval(confidence)
        return Interval(own.value - 0.5, own.low - 0.5, own.high - 0.5, own.networks)

    def tail(self, bound: float) -> float:
        return Share(self.count, self.networks).tail(bound + 0.5)


# Arms of the control study. They are defined here because other studies compare their statistics with them.
FAILING, STRIPED = "failing", "stripes and 100 bumps"
WHOLE, UNTRAINED = "whole grid", "untrained"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"
CONTROLS = {
    FAILING: (STRIPED, WHOLE, UNTRAINED),
    UNPENALISED: (PENALISED, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
}
"""Failing arms, mapped to the arms of the same architecture that each is compared with."""
INITIAL = {UNTRAINED: FAILING, LOW_RANK_UNTRAINED: UNPENALISED}
"""Untrained arms, mapped to the arms whose initial weights they share."""


def controlled(
    data: Data, statistic: Statistic, pairs: Mapping[str, tuple[str, str]], compared: Callable[..., Sample] = difference
) -> dict[str, Sample]:
    """Compare a statistic between pairs of arms of the control study, if available, seed by seed."""
    if "controls" not in data:
        return {}
    arms, cases = data["controls"], dict[str, Sample]()
    for words, (own, other) in pairs.items():
        both = arms.sel(arm=own), arms.sel(arm=other)
        cases |= case(words, partial(compared, statistic, *both, untrained=other in INITIAL))
    return cases


def specific(
    words: str, smallest: float, statistic: Callable[..., xarray.DataArray], other: str = STRIPED, **fields: Any
) -> Statement:
    """Return the statement that a statistic is larger in failing CNNs than in others, by default composing ones.

    Both have the same architecture. The differences to the other controls, and those of low-rank decoders, are beside
    it. The criterion's parameters are passed to the statistic.
    """

    def differences(data: Data, others: Mapping[str, tuple[str, ...]], **parameters: float | str) -> dict[str, Sample]:
        pairs = {f"less {own}": (failing, own) for failing, arms in others.items() for own in arms}
        return controlled(data, partial(statistic, **parameters), pairs)

    beside = {failing: tuple(arm for arm in arms if arm != other) for failing, arms in CONTROLS.items()}
    contrast = "trained less untrained CNNs" if other in INITIAL else "failing less composing CNNs"
    criterion = effect(f"{words}, {contrast}", smallest, word="specific", **fields)
    return Statement(
        criterion, partial(differences, others={FAILING: (other,)}), controls=partial(differences, others=beside)
    )
