"""Samples of the depth study: of the usual depth, of other depths, of each stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.samples import sample, trained
from recombine.reproduction.claims import Data, Sample

if TYPE_CHECKING:
    import xarray

Statistic = Callable[["xarray.Dataset"], "xarray.DataArray"]
"""One number per seed, from the Dataset of one code and depth."""


def usual_depth(data: Data) -> int:
    """The depth that tests are about."""
    return int(data["depth"].attrs["shown"])


def networks_of(data: Data, code: str, depth: int) -> xarray.Dataset:
    """The part of one code and depth."""
    return data["depth"].sel(encoding=code, depth=depth)


def trained_depths(data: Data, code: str) -> list[int]:
    """Depths that were trained with this code."""
    own = data["depth"].sel(encoding=code)
    return [int(depth) for depth in own["depth"].values if bool(trained(own.sel(depth=depth)).any())]


def at_usual_depth(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code, at the usual depth."""
    cases = {}
    for code in CODES:
        networks = networks_of(data, code, usual_depth(data))
        cases[code] = sample(statistic(networks), networks)
    return cases


def at_other_depths(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code and depth, at all but the usual depth."""
    cases = {}
    for code in CODES:
        for depth in trained_depths(data, code):
            if depth != usual_depth(data):
                networks = networks_of(data, code, depth)
                cases[f"{code}, depth {depth}"] = sample(statistic(networks), networks)
    return cases


def with_measure(data: Data, words: str, statistic: Statistic) -> dict[str, Sample]:
    """By code, at the usual depth, with the measure in words."""
    return {f"{code}, {words}": one for code, one in at_usual_depth(data, statistic).items()}


def at_each_stage(
    data: Data, words: str, number: Callable[[xarray.Dataset, int], xarray.DataArray], first: int = 1
) -> dict[str, Sample]:
    """By code and stage, at the usual depth: all stages from the first on but the output."""
    cases = {}
    for code in CODES:
        networks = networks_of(data, code, usual_depth(data))
        stages = int(networks["factorization"].notnull().any("seed").sum())
        for stage in range(first, stages - 1):
            cases[f"{code}, {words} {stage}"] = sample(number(networks, stage), networks)
    return cases
