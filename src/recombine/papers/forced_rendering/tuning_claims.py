"""Whether early stages are tuned to stripes and late ones to bumps, and more so with more bumps.

Judged on the stripe study's networks. Indices are means over a stage's units. *Changes along stages* are from the first
hidden stage to the output: a rise of 0.05 is 0.05 of the units' variance, however deep the network is. *Late stages*
are the last hidden one and the output; their slope is per e-fold of bumps (natural logarithm), the stricter reading,
and needs all of a seed's networks with bumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np
import xarray

from recombine.papers.forced_rendering.samples import PerSeed, difference, sample
from recombine.papers.forced_rendering.stripes_claims import added, all_bumps, hidden_stages, many, striped, with_bumps
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.tables import fall, first_hidden, last_hidden, output

STRIPE, LOCAL = "stripe_index", "localisation_index"


# -- C13: along stages -------------------------------------------------------------------------------------------------


def _change(data: Data, bumps: int, name: str, *, falling: bool) -> Sample:
    """Fall or rise from the first hidden stage to the output, of stripes and bumps less that of bumps alone."""
    sign = 1 if falling else -1
    return difference(lambda own: sign * fall(own[name]), striped(data, bumps), all_bumps(data))


def _change_otherwise(data: Data, name: str, *, falling: bool) -> dict[str, Sample]:
    cases = {with_bumps(bumps): _change(data, bumps, name, falling=falling) for bumps in added(data) if not bumps}
    own, full = striped(data, many(data)), all_bumps(data)
    gap = own[name] - full[name]
    for stage in hidden_stages(gap)[1:]:
        rise = gap.isel(stage=stage) - first_hidden(gap)
        cases[f"to layer {stage - 1}"] = sample(-rise if falling else rise, own, full)
    return cases


# -- C24: with more bumps ----------------------------------------------------------------------------------------------


def _late(values: xarray.DataArray) -> xarray.DataArray:
    return (last_hidden(values) + output(values)) / 2


def _slopes(data: Data, readings: Mapping[str, PerSeed]) -> dict[str, Sample]:
    """Least-squares slopes of numbers against the logarithm of the bumps, seed by seed."""
    numbers = np.array([bumps for bumps in added(data) if bumps])
    if len(numbers) < 2:
        return {}
    networks = [striped(data, int(bumps)) for bumps in numbers]
    centred = np.log(numbers) - np.log(numbers).mean()
    weights = centred / np.square(centred).sum()
    return {
        name: sample(
            reduce(add, (read(own) * weight for own, weight in zip(networks, weights, strict=True))), *networks
        )
        for name, read in readings.items()
    }


OTHERWISE: dict[str, PerSeed] = {
    "last hidden stage": lambda own: last_hidden(own[LOCAL]),
    "output": lambda own: output(own[LOCAL]),
    "stripe index, falling": lambda own: -_late(own[STRIPE]),
}
"""Other readings of what sharpens with more bumps."""
CLAIMS = (
    Claim(
        "C13",
        "Tuning is stripe-like in early and bump-like in late stages of stripe-trained networks",
        "§4.2, Fig. 4e–f, 15",
        statements=(
            Statement(
                effect("fall of the stripe index, first hidden stage to output, with stripes less bumps alone", 0.05),
                lambda data: {with_bumps(many(data)): _change(data, many(data), STRIPE, falling=True)},
                lambda data: _change_otherwise(data, STRIPE, falling=True),
            ),
            Statement(
                effect(
                    "rise of the localisation index, first hidden stage to output, with stripes less bumps alone", 0.05
                ),
                lambda data: {with_bumps(many(data)): _change(data, many(data), LOCAL, falling=False)},
                lambda data: _change_otherwise(data, LOCAL, falling=False),
            ),
        ),
        studies=("stripes",),
    ),
    Claim(
        "C24",
        "Tuning sharpens as bumps accumulate",
        "App. E.4",
        statements=(
            Statement(
                effect("slope of late stages' localisation index against ln(bumps beside the stripes)", 0.02),
                lambda data: _slopes(data, {"late stages": lambda own: _late(own[LOCAL])}),
                lambda data: _slopes(data, OTHERWISE),
            ),
        ),
        studies=("stripes",),
    ),
)
