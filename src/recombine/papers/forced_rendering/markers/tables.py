"""The marker study's Dataset as tables for scoring. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recombine.papers.forced_rendering.markers.labels import COMPOSING, WHOLE_GRID
from recombine.papers.forced_rendering.markers.pairs import Table
from recombine.papers.forced_rendering.samples import learnt, trained

if TYPE_CHECKING:
    import xarray


def never_shown(networks: xarray.Dataset) -> xarray.Dataset:
    """Networks that were not trained on the combinations that count as held out."""
    return networks.isel(network=np.flatnonzero(networks["data"].values != WHOLE_GRID))


def counted(networks: xarray.Dataset) -> np.ndarray:
    """Which networks learnt."""
    return np.asarray((learnt(networks) & trained(networks)).values, dtype=bool)


def table_of(networks: xarray.Dataset, chosen: np.ndarray | None = None) -> Table:
    """Markers of the networks that learnt, or of some."""
    rows = counted(networks) if chosen is None else chosen
    accuracy = np.asarray(networks["ood_accuracy"].values, dtype=float)
    every = Table(
        np.asarray(networks["value"].transpose("network", "marker", "position").values, dtype=float),
        accuracy >= COMPOSING,
        accuracy,
        np.asarray(networks["decoder"].values, dtype=str),
        np.asarray(networks["code"].values, dtype=str),
        np.asarray(networks["arm"].values, dtype=str),
    )
    return every.part(rows)
