"""Samples of the controls: what is found in failing networks, less what is found in others of the same architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.controls.labels import CONTROLS, INITIAL
from recombine.papers.forced_rendering.samples import sample
from recombine.reproduction.claims import Data, Sample

if TYPE_CHECKING:
    import xarray


def less_controls(data: Data, statistic: Callable[[xarray.Dataset], xarray.DataArray]) -> dict[str, Sample]:
    """A number of failing networks less that of each control, seed by seed.

    Parameters
    ----------
    data
        Datasets by study; without that of the control study there is no sample.
    statistic
        One number per seed, from the Dataset of one arm.

    Returns
    -------
    dict of Sample
        By the control's name. Failing networks must have learnt, and controls too unless they are untrained.
    """
    if "controls" not in data:
        return {}
    arms = data["controls"]
    samples = {}
    for failing, others in CONTROLS.items():
        own = arms.sel(arm=failing)
        for other in others:
            control = arms.sel(arm=other)
            networks = (own,) if other in INITIAL else (own, control)
            samples[f"less {other}"] = sample(statistic(own) - statistic(control), *networks)
    return samples
