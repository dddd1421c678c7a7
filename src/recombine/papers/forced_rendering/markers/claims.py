"""Is factorization kept through the forward pass what composing needs? (§5)

Judged on all networks of the marker study that learnt. That composing *needs* factorization means that networks that
compose have more of it than networks of the same architecture that fail; the paper's mean over the forward pass is that
over hidden stages and output. Its sign is the claim's own: composing networks have more. The bound, an AUROC of 0.75,
is where a marker tells better than half-way between chance and always. "Near the top" is the best quarter of all
markers, each scored on architectures that it was not chosen on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from recombine.papers.forced_rendering.markers.labels import (
    FACTORIZATION,
    FALL,
    MEAN,
    OUTPUT,
    SPREAD,
    WHOLE_GRID,
)
from recombine.papers.forced_rendering.markers.scoring import RESAMPLES, Table, aurocs, left_out, more_telling
from recombine.papers.forced_rendering.markers.tables import counted, table_of
from recombine.papers.forced_rendering.samples import trained
from recombine.reproduction.claims import Claim, Data, Statement
from recombine.reproduction.criteria import above, below
from recombine.reproduction.intervals import Estimate, Resampled
from recombine.reproduction.samples import Sample

if TYPE_CHECKING:
    import xarray

TELLING = 0.75
"""AUROC from which on a marker counts as telling."""
TOP = 0.25
"""Share of the markers that may be more telling than one near the top."""


def _of_networks(networks: xarray.Dataset, estimated: Callable[[Table], Estimate]) -> Sample:
    """A number of all networks that learnt together."""

    def of_rows(rows: np.ndarray) -> Estimate:
        return estimated(table_of(networks, rows.astype(int)))

    number = networks.sizes["network"]
    was_trained = np.asarray(trained(networks).values, dtype=bool)
    return Sample(np.arange(number, dtype=float), counted(networks), was_trained, of_rows)


def _resampled(value: float, draws: np.ndarray, table: Table) -> Resampled:
    """With as many networks as there are arms of the rarer outcome: networks of one arm are hardly several."""
    finite = draws[np.isfinite(draws)]
    number = table.fewest if np.isfinite(value) and len(finite) else 0
    return Resampled(float(value), tuple(finite.tolist()) or (float("nan"),), number)


def _mean_auroc(marker: int, position: int, sign: float, table: Table) -> Estimate:
    """AUROC of one marker at one position, mean over architectures."""
    one = Table(
        table.values[:, [marker]][:, :, [position]], table.composing, table.accuracy, table.architecture, table.arm
    )
    values = []
    for scores in (aurocs(one), aurocs(one, RESAMPLES)):
        there = np.isfinite(scores[:, :, 0, 0])
        total = np.where(there, scores[:, :, 0, 0], 0.0).sum(axis=1)
        mean = np.divide(total, there.sum(axis=1), out=np.full(len(total), np.nan), where=there.any(axis=1))
        values.append(mean if sign > 0 else 1 - mean)
    return _resampled(values[0][0], values[1], table)


Found = tuple[Table, np.ndarray, np.ndarray]
"""Networks that learnt, left-out scores of all markers, and the same in resamples."""


def _scored(networks: xarray.Dataset) -> Found:
    table = table_of(networks)
    return table, left_out(aurocs(table)), left_out(aurocs(table, RESAMPLES))


def _rank(found: Callable[[], Found], marker: int, others: Sequence[int], table: Table) -> Estimate:
    """Share of some other markers that are more telling."""
    _, scores, draws = found()
    chosen = [*(other for other in others if other != marker), marker]
    value, resampled = (more_telling(part[:, chosen], len(chosen) - 1) for part in (scores, draws))
    return _resampled(value[0], resampled, table)


def _index(networks: xarray.Dataset, dim: str, name: str) -> int:
    return [str(value) for value in networks[dim].values].index(name)


def telling(networks: xarray.Dataset, marker: str, position: str, sign: float = 1.0) -> Sample:
    """AUROC of a marker at a position, composing networks having the larger (or smaller) values."""
    places = _index(networks, "marker", marker), _index(networks, "position", position)
    return _of_networks(networks, partial(_mean_auroc, *places, sign))


def ranks(networks: xarray.Dataset, cases: Mapping[str, str], others: Sequence[int] | None = None) -> dict[str, Sample]:
    """By case, the share of the other markers, or of some, that are more telling than one."""
    found = cache(partial(_scored, networks))  # all ranks are from the same resamples
    every = range(networks.sizes["marker"]) if others is None else others
    return {
        case: _of_networks(networks, partial(_rank, found, _index(networks, "marker", marker), every))
        for case, marker in cases.items()
    }


def factorization_cases(data: Data) -> dict[str, Sample]:
    """F over the forward pass."""
    return {"F, mean over hidden stages and output": telling(data["markers"], FACTORIZATION, MEAN)}


def factorization_alternatives(data: Data) -> dict[str, Sample]:
    """F elsewhere and otherwise, its fall, and without networks that were trained on everything."""
    networks = data["markers"]
    composed = networks.isel(network=np.flatnonzero(networks["data"].values != WHOLE_GRID))
    return {
        "F at the output": telling(networks, FACTORIZATION, OUTPUT),
        "fall of F, first hidden stage to output (smaller)": telling(networks, FACTORIZATION, FALL, -1.0),
        "F over held-out points": telling(networks, "factorization_held", MEAN),
        "F by finite differences": telling(networks, "factorization_differences", MEAN),
        "without networks trained on the whole grid": telling(composed, FACTORIZATION, MEAN),
    }


def top_cases(data: Data) -> dict[str, Sample]:
    """F and dv, each at the position and with the sign chosen on other architectures."""
    return ranks(data["markers"], {"factorization F": FACTORIZATION, "spread of log10 dv": SPREAD})


def top_alternatives(data: Data) -> dict[str, Sample]:
    """Other forms of both, and F among markers that need no held-out targets."""
    networks = data["markers"]
    free = [k for k, needs in enumerate(networks["needs_targets"].values) if not needs]
    cases = {
        "F over held-out points": "factorization_held",
        "spread of log10 dv, held-out points": "spread_held",
        "spread of log10 dv, held-out less kept": "spread_excess",
        "roughness of log10 dv": "roughness",
    }
    return {
        **ranks(networks, cases),
        **ranks(networks, {"F among markers that need no held-out targets": FACTORIZATION}, free),
    }


CLAIMS = (
    Claim(
        "C21",
        "Factorization kept through the forward pass is what composing needs; F and dv are near the top of what tells "
        "composing from failing networks",
        "§5",
        (
            Statement(
                above("AUROC for composing against failing networks, mean over architectures", TELLING),
                factorization_cases,
                factorization_alternatives,
            ),
            Statement(
                below("share of other markers that are more telling (AUROC, architectures left out)", TOP),
                top_cases,
                top_alternatives,
            ),
        ),
        ("markers",),
    ),
)
