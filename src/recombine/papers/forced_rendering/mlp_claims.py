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
from functools import partial

import xarray

from recombine.papers.forced_rendering.depth_claims import networks_of, trained_depths
from recombine.papers.forced_rendering.mlp import CNN_ARM, MLP_ARM
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.samples import Majority, sample
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

Compared = Callable[["xarray.Dataset", "xarray.Dataset"], "xarray.DataArray"]
"""One number per seed, from the Datasets of a CNN and an MLP."""
Contrast = Callable[["xarray.DataArray"], "xarray.DataArray"]
"""One number per seed, from the contrasts over stages."""


def matched_depth(data: Data) -> int:
    """Depth of the MLP with as many stages as the CNN, or the one nearest to it."""
    wanted = int(data["mlp"].attrs["cnn_depth"]) + 1
    return min(listed_attribute(data["mlp"], "mlp_depths"), key=lambda depth: (abs(depth - wanted), depth))


def _cnns(data: Data, code: str) -> xarray.Dataset:
    return data["mlp"].sel(encoding=code, decoder=CNN_ARM, depth=int(data["mlp"].attrs["cnn_depth"]))


def _mlps(data: Data, code: str, depth: int) -> xarray.Dataset:
    return data["mlp"].sel(encoding=code, decoder=MLP_ARM, depth=depth)


def _matched_mlps(data: Data) -> dict[str, xarray.Dataset]:
    """By code."""
    return {code: _mlps(data, code, matched_depth(data)) for code in CODES}


def _other_mlps(data: Data, code: str) -> dict[str, xarray.Dataset]:
    """MLPs of all but the matched depth."""
    depths = [depth for depth in listed_attribute(data["mlp"], "mlp_depths") if depth != matched_depth(data)]
    return {f"{code}, MLP of depth {depth}": _mlps(data, code, depth) for depth in depths}


def _compared(data: Data, compared: Compared, words: str = "") -> dict[str, Sample]:
    """By code, CNN and MLP at the matched depth; with the measure in words."""
    cases = {}
    for code, mlp in _matched_mlps(data).items():
        cnn = _cnns(data, code)
        cases[f"{code}{words}"] = sample(compared(cnn, mlp), cnn, mlp)
    return cases


def _at_other_depths(data: Data, compared: Compared) -> dict[str, Sample]:
    """By code and depth of the MLP, at all but the matched depth."""
    cases = {}
    for code in CODES:
        cnn = _cnns(data, code)
        for name, mlp in _other_mlps(data, code).items():
            cases[name] = sample(compared(cnn, mlp), cnn, mlp)
    return cases


# -- the volume's sign -----------------------------------------------------------------------------------------------


def _smaller_inside(networks: xarray.Dataset, contrast: Contrast) -> Sample:
    """Of how many networks the volume is smaller in the held-out region than outside."""
    values = contrast(networks["contrast"])
    return sample((values < 0).astype(float).where(values.notnull()), networks, estimated=Majority.of)


def _larger_inside(networks: xarray.Dataset, contrast: Contrast) -> Sample:
    """Of how many networks it is larger."""
    return _smaller_inside(networks, lambda values: -contrast(values))


def cnn_contrast_alternatives(data: Data) -> dict[str, Sample]:
    """At the output, and CNNs of other depths where the depth study has them."""
    cases = {f"{code}, CNN, at the output": _smaller_inside(_cnns(data, code), at_output) for code in CODES}
    for code in CODES:
        for depth in _other_cnn_depths(data, code):
            cases[f"{code}, CNN of depth {depth}"] = _smaller_inside(networks_of(data, code, depth), mean_after_input)
    return cases


def _other_cnn_depths(data: Data, code: str) -> list[int]:
    if "depth" not in data:
        return []
    return [depth for depth in trained_depths(data, code) if depth != int(data["mlp"].attrs["cnn_depth"])]


def mlp_contrast_alternatives(data: Data) -> dict[str, Sample]:
    """At the output, and MLPs of other depths."""
    matched = _matched_mlps(data).items()
    cases = {f"{code}, MLP, at the output": _larger_inside(own, at_output) for code, own in matched}
    for code in CODES:
        cases |= {name: _larger_inside(own, mean_after_input) for name, own in _other_mlps(data, code).items()}
    return cases


# -- how much and how evenly factorization is lost -------------------------------------------------------------------


def further_fall(cnn: xarray.Dataset, mlp: xarray.Dataset, name: str = "factorization") -> xarray.DataArray:
    """Fall of F, first hidden stage to output, MLP less CNN."""
    return fall(mlp[name]) - fall(cnn[name])


def evener_change(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Largest share of the variation of F within a quarter of relative depth, CNN less MLP."""
    return unevenness(cnn["factorization"]) - unevenness(mlp["factorization"])


def _roughness(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean absolute second difference of F over stages, as a share of its total variation; 0 where there is none."""
    own = networks["factorization"]
    whole = total_variation(own)
    rough = abs(own.isel(stage=slice(1, None)).diff("stage", n=2)).mean("stage")
    return (rough / whole).where(whole != 0, 0.0)


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
                lambda data: {f"{code}, CNN": _smaller_inside(_cnns(data, code), mean_after_input) for code in CODES},
                cnn_contrast_alternatives,
            ),
            Statement(
                effect(
                    "share of MLPs with more volume (log10 dv, mean over stages) in the held-out region than outside, "
                    "less a half",
                    MAJORITY,
                ),
                lambda data: {
                    f"{code}, MLP": _larger_inside(own, mean_after_input) for code, own in _matched_mlps(data).items()
                },
                mlp_contrast_alternatives,
            ),
            Statement(
                effect("fall of factorization F, first hidden stage to output, MLP less CNN", LEAST_FALL),
                lambda data: _compared(data, further_fall),
                lambda data: {
                    **_compared(data, partial(further_fall, name="factorization_of_means"), ", ratio of means"),
                    **_at_other_depths(data, further_fall),
                },
            ),
            Statement(
                effect("largest share of the variation of F within a quarter of the depth, CNN less MLP", LEAST_SHARE),
                lambda data: _compared(data, evener_change),
                lambda data: {
                    **_compared(data, lambda cnn, mlp: _roughness(cnn) - _roughness(mlp), ", roughness over variation"),
                    **_at_other_depths(data, evener_change),
                },
            ),
        ),
        studies=("mlp",),
        beside=("depth",),
    ),
)
