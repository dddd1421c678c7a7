"""Whether MLPs fail in another way than CNNs.

Compared are the CNN of the usual depth and the MLP with as many stages, seed by seed; MLPs of other depths are
alternatives. A CNN of depth d has d + 1 hidden stages, an MLP of depth d has d, so that the CNN of depth 4 stands
beside the MLP of depth 5. The held-out contrast of log10 dv and F do not depend on the scale of the code, which differs
between the two where factors are rate-coded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.mlp.labels import CNN_ARM, MLP_ARM
from recombine.papers.forced_rendering.samples import sample, share
from recombine.reproduction.claims import Claim, Data, Statement
from recombine.reproduction.criteria import above, effect
from recombine.reproduction.samples import Sample
from recombine.reproduction.stage_tables import fall, unevenness
from recombine.reproduction.stage_tables import output as at_output
from recombine.reproduction.tables import listed_attribute

if TYPE_CHECKING:
    import xarray

LEAST_FALL = 0.02
"""The smallest fall of F that matters; how evenly a smaller one is spread is not asked."""
LEAST_SHARE = 0.1
"""The smallest difference in unevenness that matters, as a share of the fall."""

Compared = Callable[["xarray.Dataset", "xarray.Dataset"], "xarray.DataArray"]
"""One number per seed, from the Datasets of a CNN and an MLP."""


def matched_depth(data: Data) -> int:
    """Depth of the MLP with as many stages as the CNN, or the one nearest to it."""
    wanted = int(data["mlp"].attrs["cnn_depth"]) + 1
    return min(listed_attribute(data["mlp"], "mlp_depths"), key=lambda depth: (abs(depth - wanted), depth))


def _pair(data: Data, code: str, depth: int) -> tuple[xarray.Dataset, xarray.Dataset]:
    """The CNN and an MLP."""
    own = data["mlp"].sel(encoding=code)
    cnn = own.sel(decoder=CNN_ARM, depth=int(data["mlp"].attrs["cnn_depth"]))
    return cnn, own.sel(decoder=MLP_ARM, depth=depth)


def _matched(data: Data, compared: Compared, sampled: Callable[..., Sample] = sample) -> dict[str, Sample]:
    """By code, at the matched depth."""
    pairs = {code: _pair(data, code, matched_depth(data)) for code in CODES}
    return {code: sampled(compared(*pair), *pair) for code, pair in pairs.items()}


def _otherwise(
    data: Data, words: str, compared: Compared, sampled: Callable[..., Sample] = sample
) -> dict[str, Sample]:
    """By code, at the matched depth, with the measure in words."""
    return {f"{code}, {words}": one for code, one in _matched(data, compared, sampled).items()}


def _other_depths(data: Data, compared: Compared, sampled: Callable[..., Sample] = sample) -> dict[str, Sample]:
    """By code and depth of the MLP, at all but the matched depth."""
    cases = {}
    for code in CODES:
        for depth in listed_attribute(data["mlp"], "mlp_depths"):
            if depth != matched_depth(data):
                pair = _pair(data, code, depth)
                cases[f"{code}, MLP of depth {depth}"] = sampled(compared(*pair), *pair)
    return cases


# -- the volume's sign -----------------------------------------------------------------------------------------------


def _opposite(first: xarray.DataArray, second: xarray.DataArray) -> xarray.DataArray:
    """1 where two numbers have opposite signs, 0 where not, NaN where one is missing."""
    product = first * second
    return (product < 0).where(product.notnull()).astype(float)


def _mean_contrast(networks: xarray.Dataset) -> xarray.DataArray:
    return networks["contrast"].isel(stage=slice(1, None)).mean("stage")


def opposite_contrast(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Whether the mean over stages has opposite signs."""
    return _opposite(_mean_contrast(cnn), _mean_contrast(mlp))


def opposite_output_contrast(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Whether the output's has opposite signs."""
    return _opposite(at_output(cnn["contrast"]), at_output(mlp["contrast"]))


def contrast_cases(data: Data) -> dict[str, Sample]:
    """By code, at the matched depth."""
    return _matched(data, opposite_contrast, share)


def contrast_alternatives(data: Data) -> dict[str, Sample]:
    """At the output, and at other depths."""
    return {
        **_otherwise(data, "at the output", opposite_output_contrast, share),
        **_other_depths(data, opposite_contrast, share),
    }


# -- how much and how evenly factorization is lost -------------------------------------------------------------------


def further_fall(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Fall of F, first hidden stage to output, MLP less CNN."""
    return fall(mlp["factorization"]) - fall(cnn["factorization"])


def further_fall_of_means(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """The same with the ratio of means over the grid."""
    return fall(mlp["factorization_of_means"]) - fall(cnn["factorization_of_means"])


def fall_cases(data: Data) -> dict[str, Sample]:
    """By code, at the matched depth."""
    return _matched(data, further_fall)


def fall_alternatives(data: Data) -> dict[str, Sample]:
    """Another convention, and other depths."""
    return {**_otherwise(data, "ratio of means", further_fall_of_means), **_other_depths(data, further_fall)}


def evener_fall(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Largest share of the fall within a quarter of relative depth, CNN less MLP."""
    return unevenness(cnn["factorization"], LEAST_FALL) - unevenness(mlp["factorization"], LEAST_FALL)


def _roughness(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean absolute second difference of F over stages, as a share of its fall."""
    own = networks["factorization"]
    whole = fall(own)
    return abs(own.isel(stage=slice(1, None)).diff("stage", n=2)).mean("stage") / whole.where(whole > LEAST_FALL)


def smoother_fall(cnn: xarray.Dataset, mlp: xarray.Dataset) -> xarray.DataArray:
    """Roughness over fall, CNN less MLP."""
    return _roughness(cnn) - _roughness(mlp)


def evenness_cases(data: Data) -> dict[str, Sample]:
    """By code, at the matched depth."""
    return _matched(data, evener_fall)


def evenness_alternatives(data: Data) -> dict[str, Sample]:
    """Roughness over fall, and other depths."""
    return {**_otherwise(data, "roughness over fall", smoother_fall), **_other_depths(data, evener_fall)}


CLAIMS = (
    Claim(
        "C17",
        "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically",
        "App. E.3, Fig. 13–14",
        statements=(
            Statement(
                above(
                    "share of seeds in which the held-out contrast of log10 dv has opposite signs in CNN and MLP", 0.5
                ),
                contrast_cases,
                contrast_alternatives,
            ),
            Statement(
                effect("fall of factorization F, first hidden stage to output, MLP less CNN", LEAST_FALL),
                fall_cases,
                fall_alternatives,
            ),
            Statement(
                effect("largest share of that fall within a quarter of the depth, CNN less MLP", LEAST_SHARE),
                evenness_cases,
                evenness_alternatives,
            ),
        ),
        studies=("mlp",),
    ),
)
