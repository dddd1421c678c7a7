"""Whether a gap in rotation is filled by blending its edges.

Inside the gap, at least a quarter of it away from either edge, outputs are regressed on the truth and on the true
images at the edges (`regression`): −1 for a network that draws the truth, 1 for one that blends. "Error at mid-gap" is
that at the angle in the middle, over the error of a blank image.

"Stages stay smooth" is compared with the bump task, whose failing networks do not: how rough log10 of the volume (here
the speed) is inside the hold-out over outside, in decades, mean over the network's own stages. Networks of the two
tasks are paired by their numbers, which have nothing to do with one another.
"""

from __future__ import annotations

import xarray

from recombine.papers.forced_rendering.controls import FAILING
from recombine.papers.forced_rendering.rotation import MANY, ONE
from recombine.papers.forced_rendering.samples import decades, difference, measured
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect

PREFIX = "many_"


def otherwise_blended(data: Data) -> dict[str, Sample]:
    """Other angles and regressions, several digits, and stages beside those of the bump task."""
    own, many = data["rotation"], _many(data)
    samples = {
        "inner angles": measured(own, "edges_less_truth_inner"),
        "whole gap, on truth and linear blend": measured(own, "blend_less_truth"),
    }
    if many is not None:
        samples[MANY] = measured(many, "edges_less_truth")
    if "controls" in data and FAILING in data["controls"]["arm"].values:
        bumps = data["controls"].sel(arm=FAILING)
        count = min(bumps.sizes["seed"], own.sizes["seed"])
        pair = (part.isel(seed=slice(count)) for part in (bumps, own))
        samples["roughness of stages, bump task's less rotation's (decades)"] = difference(_rougher_inside, *pair)
    return samples


def otherwise_failed(data: Data) -> dict[str, Sample]:
    """The whole gap, and several digits."""
    own, many = data["rotation"], _many(data)
    samples = {"whole gap": measured(own, "ood_over_blank")}
    if many is not None:
        samples[MANY] = measured(many, "mid_gap_error")
    return samples


def _many(data: Data) -> xarray.Dataset | None:
    """The networks on several digits, by the names that numbers have for one."""
    result = data["rotation"]
    names = [str(name) for name, values in result.data_vars.items() if values.dims == ("seed",)]
    names = [name for name in names if name.startswith(PREFIX)]
    return result[names].rename({name: name.removeprefix(PREFIX) for name in names}) if names else None


def _rougher_inside(networks: xarray.Dataset) -> xarray.DataArray:
    """log10 of the roughness of log10 volume inside the hold-out over outside, mean over stages but the input."""
    inside = decades(networks["roughness_held"], networks["roughness_kept"])
    return inside.isel(stage=slice(1, None)).mean("stage")


CLAIMS = (
    Claim(
        "C15",
        "A gap in rotation is filled by blending its edges, though stages stay smooth",
        "App. E.2, Fig. 9",
        statements=(
            Statement(
                effect("weight of the images at the edges less that of the truth, in outputs inside the gap", 0.1),
                lambda data: {ONE: measured(data["rotation"], "edges_less_truth")},
                alternatives=otherwise_blended,
            ),
            Statement(
                above("error at mid-gap over blank", 0.3),
                lambda data: {ONE: measured(data["rotation"], "mid_gap_error")},
                alternatives=otherwise_failed,
            ),
        ),
        studies=("rotation",),
        beside=("controls",),
    ),
)
