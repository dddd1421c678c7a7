"""Whether MLPs fail in another way than CNNs.

Compared are the CNN of the usual depth and the MLP with as many stages, seed by seed; other depths are alternatives. A
CNN of depth d has d + 1 hidden stages, an MLP of depth d has d, so that the CNN of depth 4 stands beside the MLP of
depth 5. The held-out contrast of log10 dv and F do not depend on the scale of the code, which differs between the two
where factors are rate-coded.

The paper says that MLPs warp the held-out region the opposite way, and not which way either does. Read here: CNNs have
less volume in the held-out region than outside (a contrast below 0), MLPs more. That is what CNNs of seeds 0 to 31 had.
The contrast of a network is its mean over hidden stages and output.
"""

from __future__ import annotations

from collections.abc import Callable

import xarray

from recombine.papers.forced_rendering.depth_claims import factorization_fall, networks_of, trained_depths
from recombine.papers.forced_rendering.mlp import CNN_ARM, MLP_ARM
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.samples import Statistic, difference, majority
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.tables import fall, listed_attribute, mean_after_input, total_variation, unevenness
from recombine.reproduction.tables import output as at_output

MAJORITY = 0.2
"""How far above a half a share of networks has to be: more than 70 % of them."""
LEAST_FALL = 0.02
"""The smallest difference in the fall of F that matters."""
LEAST_SHARE = 0.1
"""The smallest difference in unevenness that matters, as a share of the variation."""

Place = Callable[[xarray.DataArray], xarray.DataArray]
"""From numbers over stages to one per seed."""


def matched_depth(data: Data) -> int:
    """Depth of the MLP with as many stages as the CNN, or the one nearest to it."""
    wanted = int(data["mlp"].attrs["cnn_depth"]) + 1
    return min(listed_attribute(data["mlp"], "mlp_depths"), key=lambda depth: (abs(depth - wanted), depth))


def _cnns(data: Data, code: str) -> xarray.Dataset:
    return data["mlp"].sel(encoding=code, decoder=CNN_ARM, depth=int(data["mlp"].attrs["cnn_depth"]))


def _mlps(data: Data, code: str) -> xarray.Dataset:
    """Those of the matched depth."""
    return data["mlp"].sel(encoding=code, decoder=MLP_ARM, depth=matched_depth(data))


def _other_mlps(data: Data, code: str) -> dict[str, xarray.Dataset]:
    """MLPs of all but the matched depth."""
    own, matched = data["mlp"].sel(encoding=code, decoder=MLP_ARM), matched_depth(data)
    depths = [depth for depth in listed_attribute(data["mlp"], "mlp_depths") if depth != matched]
    return {f"{code}, MLP of depth {depth}": own.sel(depth=depth) for depth in depths}


def _mlps_less_cnns(data: Data, statistic: Statistic, words: str = "") -> dict[str, Sample]:
    """By code, MLP less CNN at the matched depth; with the measure in words."""
    return {f"{code}{words}": difference(statistic, _mlps(data, code), _cnns(data, code)) for code in CODES}


def _at_other_depths(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code and depth of the MLP, at all but the matched depth."""
    return {
        name: difference(statistic, mlp, _cnns(data, code))
        for code in CODES
        for name, mlp in _other_mlps(data, code).items()
    }


# -- the volume's sign -----------------------------------------------------------------------------------------------


def _outside(networks: xarray.Dataset, place: Place = mean_after_input) -> Sample:
    """Of how many networks the volume is smaller in the held-out region than outside."""
    return majority(-place(networks["contrast"]), networks)


def _inside(networks: xarray.Dataset, place: Place = mean_after_input) -> Sample:
    """Of how many networks it is larger."""
    return majority(place(networks["contrast"]), networks)


def cnn_contrast_alternatives(data: Data) -> dict[str, Sample]:
    """At the output, and CNNs of other depths where the depth study has them."""
    cases = {f"{code}, CNN, at the output": _outside(_cnns(data, code), at_output) for code in CODES}
    usual = int(data["mlp"].attrs["cnn_depth"])
    for code in CODES if "depth" in data else ():
        depths = [depth for depth in trained_depths(data, code) if depth != usual]
        cases |= {f"{code}, CNN of depth {depth}": _outside(networks_of(data, code, depth)) for depth in depths}
    return cases


# -- how much and how evenly factorization is lost -------------------------------------------------------------------


def _evenness(networks: xarray.Dataset) -> xarray.DataArray:
    """Largest share of the variation of F within a quarter of relative depth, with a minus."""
    return -unevenness(networks["factorization"])


def _smoothness(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean absolute second difference of F over stages, as a share of its total variation, with a minus; else 0."""
    own = networks["factorization"]
    whole = total_variation(own)
    rough = abs(own.isel(stage=slice(1, None)).diff("stage", n=2)).mean("stage")
    return -(rough / whole).where(whole != 0, 0.0)


CLAIMS = (
    Claim(
        "C17",
        "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically",
        "App. E.3, Fig. 13–14",
        statements=(
            Statement(
                effect(
                    "share of CNNs with less volume (log10 dv, mean over stages) in the held-out region than outside, "
                    "less a half",
                    MAJORITY,
                ),
                lambda data: {f"{code}, CNN": _outside(_cnns(data, code)) for code in CODES},
                cnn_contrast_alternatives,
            ),
            Statement(
                effect(
                    "share of MLPs with more volume (log10 dv, mean over stages) in the held-out region than outside, "
                    "less a half",
                    MAJORITY,
                ),
                lambda data: {f"{code}, MLP": _inside(_mlps(data, code)) for code in CODES},
                lambda data: {
                    **{f"{code}, MLP, at the output": _inside(_mlps(data, code), at_output) for code in CODES},
                    **{name: _inside(own) for code in CODES for name, own in _other_mlps(data, code).items()},
                },
            ),
            Statement(
                effect("fall of factorization F, first hidden stage to output, MLP less CNN", LEAST_FALL),
                lambda data: _mlps_less_cnns(data, factorization_fall),
                lambda data: {
                    **_mlps_less_cnns(data, lambda own: fall(own["factorization_of_means"]), ", ratio of means"),
                    **_at_other_depths(data, factorization_fall),
                },
            ),
            Statement(
                effect("largest share of the variation of F within a quarter of the depth, CNN less MLP", LEAST_SHARE),
                lambda data: _mlps_less_cnns(data, _evenness),
                lambda data: {
                    **_mlps_less_cnns(data, _smoothness, ", roughness over variation"),
                    **_at_other_depths(data, _evenness),
                },
            ),
        ),
        studies=("mlp",),
        beside=("depth",),
    ),
)
