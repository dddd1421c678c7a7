"""How fast stages move across the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.rotation.labels import INPUT

if TYPE_CHECKING:
    import xarray


def gap_speed(result: xarray.Dataset) -> xarray.DataArray:
    """The largest ratio, over the network's own stages, of the speed inside the gap to that outside.

    The input is left out: it is 1 there whatever the network does.
    """
    return result["stage_speed"].sel(stage=result["stage"] != INPUT).max("stage")
