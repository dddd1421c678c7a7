"""Whether examples of single factors make a network compose, and what they do to it.

"Bumps alone" are as many bumps without stripes in C10 and C23, where data are compared, and all training bumps of the
usual networks in C12 and C22, where what failing networks look like is. A network counts where it learnt its own
training examples (`recombine.papers.forced_rendering.scores`).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray

from recombine.papers.forced_rendering.depth import spread_excess
from recombine.papers.forced_rendering.samples import (
    FAILING,
    UNTRAINED,
    WHOLE,
    Statistic,
    controlled,
    difference,
    measured,
    ratio,
    sample,
)
from recombine.papers.forced_rendering.stripes import FULL, PERCENT, PERCENT_ALONE, WITH, WITHOUT
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below, effect
from recombine.reproduction.tables import first_hidden, listed_attribute

FEW_PERCENT = 5
"""Up to which per cent of the bumps stripes are claimed to help."""


def striped(data: Data, bumps: int) -> xarray.Dataset:
    """Networks trained on stripes and so many bumps."""
    return data["stripes"].sel(family=WITH, bumps=bumps)


def all_bumps(data: Data) -> xarray.Dataset:
    """Networks trained on all training bumps and no stripes."""
    return data["stripes"].sel(family=FULL, bumps=data["stripes"].attrs["full"])


def added(data: Data) -> list[int]:
    """Numbers of bumps beside the stripes."""
    return listed_attribute(data["stripes"], "added")


def some(data: Data) -> int:
    """The number of bumps in Fig. 4d–e: 50 in the paper's settings."""
    return int(data["stripes"].attrs["shown"])


def many(data: Data) -> int:
    """The number of bumps that make proper bumps: 100 in the paper's settings."""
    return int(data["stripes"].attrs["many"])


def with_bumps(bumps: int) -> str:
    """The name of a case."""
    return f"stripes and {bumps} bumps" if bumps else "stripes alone"


# -- C10: composing ----------------------------------------------------------------------------------------------------


def gain_with_other_numbers(data: Data) -> dict[str, Sample]:
    """Other numbers of bumps, each against as many without stripes; against all training bumps; and shares.

    Shares of stripes and bump (`conjunctions`) are 1 together, so that one falls by what the other rises. A change by
    half of the output is asked for, as a gain by half of the bumps is.
    """
    cases = _gain(data, [bumps for bumps in added(data) if bumps != many(data)])
    cases[f"{with_bumps(many(data))} against all training bumps"] = _less_all_bumps(data, "ood_accuracy", many(data))
    fewest, most = min(added(data)), max(added(data))
    if fewest < most:
        name = f"share of outputs that goes from the stripes to a bump where they cross, {fewest} to {most} bumps"
        cases[name] = difference("stripe_share", striped(data, fewest), striped(data, most))
    return cases


def _score(data: Data, name: str, numbers: list[int]) -> dict[str, Sample]:
    return {with_bumps(bumps): measured(striped(data, bumps), name) for bumps in numbers if bumps in added(data)}


def _gain(data: Data, numbers: list[int]) -> dict[str, Sample]:
    # Where stripes alone were trained, there is no family of bumps without stripes.
    return {
        with_bumps(bumps): difference(
            "ood_accuracy", striped(data, bumps), data["stripes"].sel(family=WITHOUT, bumps=bumps)
        )
        for bumps in numbers
        if bumps
    }


def _less_all_bumps(data: Data, statistic: Statistic, bumps: int) -> Sample:
    """With stripes and so many bumps less with all training bumps and no stripes."""
    return difference(statistic, striped(data, bumps), all_bumps(data))


# -- C12: a smooth manifold --------------------------------------------------------------------------------------------


def excess_otherwise(data: Data) -> dict[str, Sample]:
    """Other numbers of bumps, the hidden stages, and roughness instead of spread."""
    full, own = all_bumps(data), striped(data, some(data))
    cases = {with_bumps(bumps): _excess(data, bumps) for bumps in added(data) if bumps != some(data)}
    excess = full["spread_excess"] - own["spread_excess"]
    for stage in hidden_stages(excess):
        cases[f"layer {stage - 1}"] = sample(excess.isel(stage=stage), full, own)
    rough = ratio(lambda part: part["roughness_held"].isel(stage=slice(1, None)).mean("stage"), full, own)
    return {**cases, "median |Laplacian| in the hold-out, log10 ratio": rough}


def _excess(data: Data, bumps: int) -> Sample:
    """The excess of spread at the output, of bumps alone less that of stripes and so many bumps."""
    return difference(spread_excess, all_bumps(data), striped(data, bumps))


def hidden_stages(values: xarray.DataArray) -> list[int]:
    """Numbers of the hidden stages that any network has."""
    present = np.flatnonzero(values.notnull().any("seed").values)
    return [int(stage) for stage in present if 0 < stage < present[-1]]


# -- C23: per cent -----------------------------------------------------------------------------------------------------


def gain_otherwise(data: Data) -> dict[str, Sample]:
    """More per cent; and errors instead of accuracy."""
    more = {f"{percent} %": _percent_gain(data, percent) for percent in _percents(data) if percent > FEW_PERCENT}
    for percent in _percents(data):
        alone_first = reversed(_at_percent(data, percent))
        more[f"{percent} %, error without over with stripes, decades"] = ratio("ood_mse", *alone_first)
    return more


def _percents(data: Data) -> list[int]:
    """Those with networks without stripes; there is none for 0 %."""
    return [percent for percent in listed_attribute(data["stripes"], "percents") if percent]


def _at_percent(data: Data, percent: int) -> list[xarray.Dataset]:
    """With and without stripes."""
    return [data["stripes"].sel(family=family, bumps=percent) for family in (PERCENT, PERCENT_ALONE)]


def _percent_gain(data: Data, percent: int) -> Sample:
    return difference("ood_accuracy", *_at_percent(data, percent))


_claim = partial(Claim, studies=("stripes",))
CLAIMS = (
    _claim(
        "C10",
        "Stripes alone compose, additively; a few bumps make proper bumps",
        "§4.2, Fig. 4b",
        (
            Statement(
                above("held-out accuracy of networks trained on stripes alone", 0.9),
                lambda data: _score(data, "ood_accuracy", [0]),
                lambda data: _score(data, "ood_accuracy", [bumps for bumps in added(data) if bumps]),
            ),
            Statement(
                above("variance of their held-out outputs explained by the best sum of the two training stripes", 0.5),
                lambda data: _score(data, "additive", [0]),
                lambda data: (
                    {
                        "interior only": measured(striped(data, 0), "additive_inside"),
                        "unweighted D(x, ∅) + D(∅, y)": measured(striped(data, 0), "additive_unweighted"),
                    }
                    if 0 in added(data)
                    else {}
                ),
            ),
            Statement(
                below("held-out error over blank with many bumps", 0.5),
                lambda data: _score(data, "ood_over_blank", [many(data)]),
                lambda data: _score(data, "ood_over_blank", [n for n in added(data) if n not in (0, many(data))]),
            ),
            Statement(
                effect("held-out accuracy with many bumps, less that of as many bumps without stripes", 0.5),
                lambda data: _gain(data, [many(data)]),
                gain_with_other_numbers,
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
                    "spread of log10 dv at the output, held-out less kept points, bumps alone less stripes and bumps",
                    0.1,
                ),
                lambda data: {with_bumps(some(data)): _excess(data, some(data))},
                excess_otherwise,
                lambda data: controlled(
                    data,
                    spread_excess,
                    {"failing less whole grid": (FAILING, WHOLE), "failing less untrained": (FAILING, UNTRAINED)},
                ),
            ),
        ),
        beside=("controls",),
    ),
    _claim(
        "C22",
        "First-stage units of stripe-trained networks are banded, as penalised embeddings are",
        "§4.2, Fig. 4e, 3b",
        (
            Statement(
                effect("band index of first-stage maps, stripes and bumps less bumps alone", 0.1),
                lambda data: {with_bumps(some(data)): _less_all_bumps(data, "first_band", some(data))},
                lambda data: {
                    "orientation": _less_all_bumps(data, "first_orientation", some(data)),
                    "alignment": _less_all_bumps(data, "first_alignment", some(data)),
                    "all units alike": _less_all_bumps(data, lambda own: first_hidden(own["stripe_index"]), some(data)),
                    **{
                        with_bumps(bumps): _less_all_bumps(data, "first_band", bumps)
                        for bumps in added(data)
                        if bumps != some(data)
                    },
                },
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
                lambda data: {f"{p} %": _percent_gain(data, p) for p in _percents(data) if p <= FEW_PERCENT},
                gain_otherwise,
            ),
        ),
    ),
)
