"""Samples from studies' Datasets: which networks count, and numbers per network.

A network counts only if it learnt what it was trained on: its error there is below a tenth of that of a blank image,
and more than 95 % of its bumps are in place (tasks without bumps: the error alone). That is what scores over all kept
combinations tell where those are the training data; where they are not, a Dataset has scores of the training examples
(`fit`), and these are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import xarray

from recombine.reproduction.claims import Data, Sample
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.intervals import CONFIDENCE, Estimate, Interval, Share

LEARNT_ERROR, LEARNT_ACCURACY = Learnt().largest_error, Learnt().smallest_accuracy
"""As criteria declare them; the error is over that of a blank image."""
FAILING_ERROR = 0.5
"""Over that of a blank image."""
COMPOSING_ACCURACY = 0.9


def learnt(networks: xarray.Dataset) -> xarray.DataArray:
    """Whether each network learnt what it was trained on."""
    if "training_over_blank" in networks:
        accuracy = networks["training_accuracy"]
        return (networks["training_over_blank"] < LEARNT_ERROR) & ((accuracy > LEARNT_ACCURACY) | accuracy.isnull())
    fitted = networks["id_over_blank"] < LEARNT_ERROR
    return fitted & (networks["id_accuracy"] > LEARNT_ACCURACY) if "id_accuracy" in networks else fitted


def trained(networks: xarray.Dataset) -> xarray.DataArray:
    """Whether each network was trained, to its end or not."""
    return networks["trained"] == 1 if "trained" in networks else networks["id_over_blank"].notnull()


def sample(
    values: xarray.DataArray,
    *networks: xarray.Dataset,
    estimated: Callable[[np.ndarray], Estimate] | None = None,
) -> Sample:
    """Numbers over seeds, of the seeds whose networks all learnt.

    `networks` are those that each number is about, over the same seeds: one Dataset, or those that are compared. The
    estimate is a trimmed mean unless another one is given.
    """
    were_trained = [np.asarray(trained(part).values, dtype=bool) for part in networks]
    counted = [np.asarray(learnt(part).values) & own for part, own in zip(networks, were_trained, strict=True)]
    shares = [own.sum() / max(1, there.sum()) for own, there in zip(counted, were_trained, strict=True)]
    return Sample(
        np.asarray(values.values, dtype=float), np.logical_and.reduce(counted), np.logical_and.reduce(were_trained),
        estimated, float(min(shares)),
    )  # fmt: skip


PerSeed = Callable[[xarray.Dataset], xarray.DataArray]
"""One number per seed, from the Dataset's part of one arm."""
Statistic = str | PerSeed
"""Such a function, or the name of a variable."""


def number(networks: xarray.Dataset, statistic: Statistic) -> xarray.DataArray:
    """A statistic of some networks."""
    return networks[statistic] if isinstance(statistic, str) else statistic(networks)


def measured(networks: xarray.Dataset, statistic: Statistic) -> Sample:
    """A statistic of the networks that learnt."""
    return sample(number(networks, statistic), networks)


def measured_by(networks: xarray.Dataset, statistic: Statistic, words: str, *dims: str) -> dict[str, Sample]:
    """A statistic of every arm along some dimensions that was trained; `words` make a case's name of its labels."""
    cases = {}
    for labels in product(*(networks[dim].values for dim in dims)):
        arm = dict(zip(dims, labels, strict=True))
        own = networks.sel(arm)
        if trained(own).any():
            cases[words.format(**arm)] = measured(own, statistic)
    return cases


def difference(statistic: Statistic, own: xarray.Dataset, other: xarray.Dataset, *, untrained: bool = False) -> Sample:
    """A statistic of some networks less that of others, seed by seed; `untrained` others need not have learnt."""
    values = number(own, statistic) - number(other, statistic)
    return sample(values, own) if untrained else sample(values, own, other)


def ratio(statistic: Statistic, own: xarray.Dataset, other: xarray.Dataset, *, untrained: bool = False) -> Sample:
    """The same as log10 of one over the other."""
    values = decades(number(own, statistic), number(other, statistic))
    return sample(values, own) if untrained else sample(values, own, other)


def some_distances(values: xarray.DataArray) -> list[int]:
    """The smallest, a middle and the largest distance at which there are values."""
    there = [int(d) for d in values["distance"].values if values.sel(distance=d).notnull().any()]
    return list(dict.fromkeys(there[k] for k in np.linspace(0, len(there) - 1, 3).astype(int))) if there else []


def decades(above: xarray.DataArray, below: xarray.DataArray) -> xarray.DataArray:
    """log10 of one number over another."""
    ratio = above / below
    return ratio.copy(data=np.log10(ratio.values))


def majority(values: xarray.DataArray, networks: xarray.Dataset) -> Sample:
    """Share of the networks whose value is above 0, less a half."""
    return sample((values > 0).astype(float).where(values.notnull()), networks, estimated=Majority.of)


@dataclass(frozen=True)
class Majority(Share):
    """A share of networks, less a half; with Wilson's interval.

    >>> Majority.of([1, 1, 1, 0]).value
    0.25
    """

    @property
    def value(self) -> float:
        """The share less a half."""
        return super().value - 0.5

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The share's, less a half."""
        own = Share(self.count, self.networks).interval(confidence)
        return Interval(own.value - 0.5, own.low - 0.5, own.high - 0.5, own.networks)

    def tail(self, bound: float) -> float:
        """The share's."""
        return Share(self.count, self.networks).tail(bound + 0.5)


# -- controls ----------------------------------------------------------------------------------------------------------
# Networks that the control study measures beside failing ones.


STRIPE_BUMPS = 100
"""Bumps beside the stripes of the composing CNN."""
FAILING, STRIPED = "failing", f"stripes and {STRIPE_BUMPS} bumps"
WHOLE, UNTRAINED = "whole grid", "untrained"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"
CONTROLS = {
    FAILING: (STRIPED, WHOLE, UNTRAINED),
    UNPENALISED: (PENALISED, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
}
"""Each failing arm, and the networks of the same architecture that it is compared with."""
INITIAL = {UNTRAINED: FAILING, LOW_RANK_UNTRAINED: UNPENALISED}
"""Each untrained arm, and the arm whose networks it has before their first step."""


def controlled(
    data: Data, statistic: Statistic, pairs: Mapping[str, tuple[str, str]], compared: Callable[..., Sample] = difference
) -> dict[str, Sample]:
    """By case, a number of one arm of the control study compared with that of another, seed by seed.

    All networks must have learnt, unless they are untrained. Without the control study's Dataset there is no sample.
    """
    if "controls" not in data:
        return {}
    arms = data["controls"]
    return {
        case: compared(statistic, arms.sel(arm=own), arms.sel(arm=other), untrained=other in INITIAL)
        for case, (own, other) in pairs.items()
    }


def less_controls(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """A number of failing networks less that of each control, by the control's name."""
    pairs = {f"less {other}": (failing, other) for failing, others in CONTROLS.items() for other in others}
    return controlled(data, statistic, pairs)
