"""Whether the data needed for 90 % grows as N³ with bumps, and whether 90 % is reached at all.

The exponent is judged on the paper's network with bumps over the whole grid. Read literally, the paper's bumps lie
outside the hold-out and 90 % is to be reached inside; there may be no such threshold. So the second statement asks for
the share of networks, as many at each N, that reach 90 % with the largest set that is affordable (4N² bumps, several
for every combination outside the hold-out); more than half of them have to.

Exponents of protocols in which 90 % is never reached do not exist and are no alternatives; the second statement has
those protocols. A curved growth is looked at by the local exponent, of a parabola at the largest N.

The exponent with stripes is not tested. All 2N of them are always given: where they suffice without a bump, it is 1 by
construction. It is in the Dataset and the figure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray

from recombine.papers.forced_rendering.threshold import EXPONENT, LOCAL, estimated_exponent
from recombine.papers.forced_rendering.threshold_design import (
    BUMPS,
    CUBIC,
    LITERAL,
    PRIMARY,
    TARGET,
    spelt,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above
from recombine.reproduction.intervals import Estimate, Share

MOST = 0.5
"""The share of networks above which 90 % counts as reached."""
CURVED = "growth at the largest N, by a parabola"


def reached(data: Data) -> dict[str, Sample]:
    """The paper's network at every N together."""
    return {spelt(name): _reached(cells) for name, cells in _kept(data).items() if name == str(LITERAL)}


def other_reached(data: Data) -> dict[str, Sample]:
    """Each N alone, and the small network by protocol."""
    samples = {}
    for name, cells in _kept(data).items():
        if name == str(LITERAL):
            samples = {f"N = {size}": _reached(cells.sel(size=[size])) for size in cells["size"].values}
        else:
            samples[spelt(name)] = _reached(cells)
    return samples


def _primary(data: Data) -> xarray.Dataset:
    return data["threshold"].sel(protocol=str(PRIMARY), family=BUMPS)


def _small_exponents(data: Data) -> dict[str, Sample]:
    """By protocol of the small network, where there is an exponent."""
    result = data["threshold"].sel(family=BUMPS)
    small = [name for name in result["protocol"].values if name.endswith("/small")]
    cells = {spelt(name): result.sel(protocol=name) for name in small}
    return {name: _exponent(own) for name, own in cells.items() if np.isfinite(own["exponent"].item())}


def _kept(data: Data) -> dict[str, xarray.Dataset]:
    """Cells with bumps outside the hold-out, by protocol."""
    result = data["threshold"].sel(family=BUMPS)
    return {str(name): result.sel(protocol=name) for name in result["protocol"].values if name.startswith("kept/")}


def _exponent(cells: xarray.Dataset, name: str = EXPONENT) -> Sample:
    """All networks of a protocol and family; the estimate is of all of them together."""
    return _sample(cells, cells["accuracy"], cells["examples"].notnull(), lambda _: estimated_exponent(cells, name))


def _reached(cells: xarray.Dataset) -> Sample:
    """Whether networks with the largest set reach the target in the box."""
    accuracy = cells["held_out_accuracy"]
    values = (accuracy >= TARGET).where(accuracy.notnull())
    return _sample(cells, values, cells["examples"] == cells["largest"], Share.of)


def _sample(
    cells: xarray.Dataset,
    values: xarray.DataArray,
    trained: xarray.DataArray,
    estimated: Callable[[np.ndarray], Estimate],
) -> Sample:
    """Networks of all sizes, one after the other; those count that learnt their training set."""
    flat = [part.transpose("size", "network").values.ravel() for part in (values, cells["learnt"] == 1, trained)]
    return Sample(flat[0].astype(float), flat[1], flat[2], estimated)


CLAIMS = (
    Claim(
        "C11",
        "Data needed for 90 % accuracy grows as N³ with bumps alone (with stripes as N: not tested)",
        "§4.2, Fig. 4c",
        statements=(
            Statement(
                above("exponent of N, bumps alone", CUBIC),
                lambda data: {spelt(str(PRIMARY)): _exponent(_primary(data))},
                alternatives=lambda data: {CURVED: _exponent(_primary(data), LOCAL), **_small_exponents(data)},
            ),
            Statement(
                above("share of networks that reach 90 % in the held-out box with the most bumps outside it", MOST),
                reached,
                alternatives=other_reached,
            ),
        ),
        studies=("threshold",),
    ),
)
