"""Claims about stripes: do they make a network compose, and how do they change it?

In C10 and C23, which compare training data, "bumps alone" means the same number of bumps without stripes. In C12 and
C22, which compare with failing networks, it means all training bumps. Smoothness (C12) is measured as for penalties
(C8): see `penalties_claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray

from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering.depth import spread_excess
from recombine.papers.forced_rendering.penalties_claims import log_roughness
from recombine.papers.forced_rendering.stripes import (
    FULL,
    PERCENT,
    PERCENT_ALONE,
    UNTRAINED,
    WITHOUT,
    all_bumps,
    striped,
    untrained,
    with_bumps,
)
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement
from recombine.reproduction.criteria import Criterion, above, below, effect
from recombine.reproduction.tables import first_hidden, listed_attribute

CONTROLS = {f"failing over {other}": (samples.FAILING, other) for other in (samples.WHOLE, samples.UNTRAINED)}
Comparison = Callable[[xarray.Dataset, int], Sample]
"""Function that returns a sample from the study's Dataset for a number of bumps added to the stripes."""


def _by_bumps(compare: Comparison, chosen: Callable[[int, Mapping[str, Any]], bool], measures: str = "") -> Samples:
    """Return one case per number of bumps accepted by `chosen`, given `shown` (50) and `many` (100) as attributes."""

    def cases(data: Data) -> dict[str, Sample]:
        result = data["stripes"]
        numbers = [bumps for bumps in listed_attribute(result, "added") if chosen(bumps, result.attrs)]
        return {with_bumps(bumps): replace(compare(result, bumps), measures=measures) for bumps in numbers}

    return cases


def _score(name: str) -> Comparison:
    return lambda result, bumps: samples.measured(striped(result, bumps), name)


def _gain(result: xarray.Dataset, bumps: int) -> Sample:
    """Return the accuracy with stripes minus that with the same number of bumps and no stripes."""
    return samples.difference("ood_accuracy", striped(result, bumps), result.sel(family=WITHOUT, bumps=bumps))


def _less_all_bumps(statistic: samples.Statistic) -> Comparison:
    """Compare a statistic between networks trained on stripes and some bumps and those trained on all bumps."""
    return lambda result, bumps: samples.difference(statistic, striped(result, bumps), all_bumps(result))


def _smoothing(statistic: samples.Statistic) -> Comparison:
    """Compare a statistic between networks trained on all bumps and those trained on stripes and some bumps."""
    return lambda result, bumps: samples.difference(statistic, all_bumps(result), striped(result, bumps))


def hidden_stages(values: xarray.DataArray) -> list[int]:
    """Return the indices of the hidden stages that at least one network has."""
    present = np.flatnonzero(values.notnull().any("seed").values)
    return [int(stage) for stage in present if 0 < stage < present[-1]]


def other_additive(data: Data) -> dict[str, Sample]:
    """Return additivity in the interior of the hold-out, and for the unweighted sum of the network's stripes."""
    names = {"interior only": "additive_inside", "unweighted D(x, ∅) + D(∅, y)": "additive_unweighted"}
    trained = 0 in listed_attribute(data["stripes"], "added")
    return {case: _score(name)(data["stripes"], 0) for case, name in names.items() if trained}


def other_gains(data: Data) -> dict[str, Sample]:
    """Return gains for other numbers of bumps, gains over all training bumps, and the change in stripe share."""
    result = data["stripes"]
    many, added = int(result.attrs["many"]), listed_attribute(result, "added")
    gain = "held-out accuracy, less that of "
    alone = f"{gain}as many bumps without stripes"
    cases = dict(_by_bumps(_gain, lambda n, about: n not in (0, about["many"]), alone)(data))
    all_of_them = _less_all_bumps("ood_accuracy")(result, many)
    cases[f"{with_bumps(many)} against all training bumps"] = replace(all_of_them, measures=f"{gain}all bumps alone")
    fewest, most = min(added), max(added)
    if fewest < most:
        words = "share of outputs that goes from the stripes to a bump where they cross"
        fall = samples.difference("stripe_share", striped(result, fewest), striped(result, most))
        cases[f"{words}, {fewest} to {most} bumps"] = replace(fall, measures=words)
    return cases


def other_smoothing(data: Data) -> dict[str, Sample]:
    """Return results for other numbers of bumps, single stages and other points, and the excess of spread."""
    result, shown = data["stripes"], int(data["stripes"].attrs["shown"])
    rough = all_bumps(result)["roughness_held"]
    last = int(np.flatnonzero(rough.notnull().any("seed").values)[-1])
    stages = {f"layer {k - 1}": k for k in hidden_stages(rough)} | {"output": last}
    cases = dict(_by_bumps(_smoothing(log_roughness), lambda n, about: n != about["shown"])(data))
    for name, k in stages.items():
        cases[name] = _smoothing(partial(log_roughness, stage=k))(result, shown)
    others: dict[str, tuple[str, samples.PerSeed]] = {
        "kept points": ("roughness of kept points, decades", partial(log_roughness, name="roughness_kept")),
        "whole grid": ("roughness of the whole grid, decades", partial(log_roughness, name="roughness")),
        "spread of log10 dv": ("spread at the output, held-out less kept points, decades", spread_excess),
    }
    for case, (words, statistic) in others.items():
        sample = _smoothing(statistic)(result, shown)
        cases[case] = replace(sample, measures=f"{words}, bumps alone against stripes and bumps")
    return cases


def _less_untrained(statistic: samples.Statistic) -> Comparison:
    """Compare a statistic between networks trained on stripes and some bumps and the same networks before training."""
    return lambda result, bumps: samples.difference(
        statistic, striped(result, bumps), untrained(result), untrained=True
    )


BANDS: dict[str, samples.Statistic] = {
    "orientation": "first_orientation",
    "alignment": "first_alignment",
    "all units alike": lambda own: first_hidden(own["stripe_index"]),
}
"""Other scores of the first stage."""


def _bands(criterion: Criterion, compared: Callable[[samples.Statistic], Comparison], needed: str) -> Statement:
    """Return a statement on the first stage's band index; alternatives are other scores and numbers of bumps."""

    def cases(data: Data) -> dict[str, Sample]:
        if needed not in data["stripes"]["family"]:
            return {}
        return dict(_by_bumps(compared("first_band"), lambda n, about: n == about["shown"])(data))

    def otherwise(data: Data) -> dict[str, Sample]:
        result = data["stripes"]
        if needed not in result["family"]:
            return {}
        others = {name: compared(own)(result, int(result.attrs["shown"])) for name, own in BANDS.items()}
        return {**others, **_by_bumps(compared("first_band"), lambda n, about: n != about["shown"])(data)}

    return Statement(criterion, cases, otherwise)


def _by_percent(chosen: Callable[[int], bool], *, errors: bool = False) -> Samples:
    """Return gains in accuracy from stripes at chosen percentages of bumps; `errors` adds error ratios at every one."""

    def cases(data: Data) -> dict[str, Sample]:
        result = data["stripes"]
        percents = [percent for percent in listed_attribute(result, "percents") if percent]  # 0 % has no counterpart
        pairs = {p: [result.sel(family=own, bumps=p) for own in (PERCENT, PERCENT_ALONE)] for p in percents}
        gains = {f"{p} %": samples.difference("ood_accuracy", *pair) for p, pair in pairs.items() if chosen(p)}
        words = "error without over with stripes, decades"
        ratios = {p: samples.ratio("ood_mse", *reversed(pair)) for p, pair in pairs.items() if errors}
        return gains | {f"{p} %, {words}": replace(own, measures=f"held-out {words}") for p, own in ratios.items()}

    return cases


_claim = partial(Claim, studies=("stripes",))
CLAIMS = (
    _claim(
        "C10",
        "Stripes alone compose, additively; a few bumps make proper bumps",
        "§4.2, Fig. 4b",
        (
            Statement(
                above("held-out accuracy of networks trained on stripes alone", 0.9),
                _by_bumps(_score("ood_accuracy"), lambda n, _: n == 0),
                _by_bumps(_score("ood_accuracy"), lambda n, _: n > 0, "held-out accuracy"),
            ),
            Statement(
                above("variance of their held-out outputs explained by the best sum of the two training stripes", 0.5),
                _by_bumps(_score("additive"), lambda n, _: n == 0),
                other_additive,
            ),
            Statement(
                below("held-out error over blank with many bumps", 0.5),
                _by_bumps(_score("ood_over_blank"), lambda n, about: n == about["many"]),
                _by_bumps(
                    _score("ood_over_blank"), lambda n, about: n not in (0, about["many"]), "held-out error over blank"
                ),
            ),
            Statement(
                effect("held-out accuracy with many bumps, less that of as many bumps without stripes", 0.5),
                _by_bumps(_gain, lambda n, about: n > 0 and n == about["many"]),
                other_gains,
            ),
        ),
    ),
    _claim(
        "C12",
        "Stripes keep the manifold smooth across the held-out region",
        "§4.2, Fig. 4d",
        (
            Statement(
                effect(
                    "roughness of log10 dv over held-out points, bumps alone over stripes and bumps, decades",
                    0.05,
                    stage="hidden stages and output",
                ),
                _by_bumps(_smoothing(log_roughness), lambda n, about: n == about["shown"]),
                other_smoothing,
                partial(samples.controlled, statistic=log_roughness, pairs=CONTROLS),
            ),
        ),
        beside=("controls",),
    ),
    _claim(
        "C22",
        "First-stage units of stripe-trained networks are banded, as penalised embeddings are",
        "§4.2, Fig. 4e, 3b",
        (
            _bands(
                effect("band index of first-stage maps, stripes and bumps less untrained", 0.1),
                _less_untrained,
                UNTRAINED,
            ),
            _bands(
                effect("band index of first-stage maps, stripes and bumps less bumps alone", 0.1, word="specific"),
                _less_all_bumps,
                FULL,
            ),
        ),
    ),
    _claim(
        "C23",
        "Stripes and a few per cent of the bumps compose where those bumps alone do not",
        "App. D, Fig. 7b",
        (
            Statement(
                effect("held-out accuracy, with less without stripes, at a few per cent of the bumps", 0.3),
                _by_percent(lambda percent: percent <= 5),
                _by_percent(lambda percent: percent > 5, errors=True),
            ),
        ),
    ),
)
