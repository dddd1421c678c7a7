"""All markers in the order of how telling they are, with intervals. No torch here.

Signs are chosen for all of them: a marker tells as well where composing networks have less of it. Networks trained on
the whole grid do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recombine.papers.forced_rendering.markers.model import MODEL_RESAMPLES, model_left_out
from recombine.papers.forced_rendering.markers.pairs import Table, aurocs
from recombine.papers.forced_rendering.markers.scoring import left_out, overall, spearman
from recombine.papers.forced_rendering.markers.tables import never_shown, table_of
from recombine.reproduction.intervals import Interval, Resampled

if TYPE_CHECKING:
    import xarray

RANKING_RESAMPLES = 2000


@dataclass(frozen=True)
class Ranked:
    """One marker."""

    name: str
    title: str
    needs_targets: bool
    auroc: Interval
    """Left out."""
    spearman: float
    """With OOD accuracy, left out."""
    position: str
    """The one that all architectures together choose; empty where there is none."""
    higher: bool
    """Whether composing networks have the larger values there."""


def ranking(networks: xarray.Dataset) -> list[Ranked]:
    """Markers from the most telling on; those without a score are last.

    Parameters
    ----------
    networks
        The marker study's Dataset.

    Returns
    -------
    list of Ranked
        All markers.
    """
    table = table_of(never_shown(networks))
    scores = aurocs(table)
    value, draws = left_out(scores)[0], left_out(aurocs(table, RANKING_RESAMPLES))
    correlations, (positions, signs) = spearman(table), overall(scores[0])
    places = [str(name) for name in networks["position"].values]
    ranked = [
        Ranked(
            str(name),
            str(networks["title"].values[k]),
            bool(networks["needs_targets"].values[k]),
            interval(value[k], draws[:, k], table),
            float(correlations[k]),
            places[positions[k]] if positions[k] >= 0 else "",
            bool(signs[k] > 0),
        )
        for k, name in enumerate(networks["marker"].values)
    ]
    return sorted(ranked, key=lambda marker: -np.nan_to_num(marker.auroc.value, nan=-1.0))


def model(networks: xarray.Dataset) -> Interval:
    """Left-out AUROC of the logistic model of the best few."""
    table = table_of(never_shown(networks))
    value = model_left_out(table)[0]
    return interval(value, model_left_out(table, MODEL_RESAMPLES) if np.isfinite(value) else np.array([]), table)


def interval(value: float, draws: np.ndarray, table: Table) -> Interval:
    """A number with the 95 % interval of its resamples; NaN where there are none."""
    finite = draws[np.isfinite(draws)]
    if not len(finite) or not np.isfinite(value):
        return Interval(float(value), np.nan, np.nan, len(table.arm))
    return Resampled(float(value), tuple(finite.tolist()), len(table.arm)).interval()
