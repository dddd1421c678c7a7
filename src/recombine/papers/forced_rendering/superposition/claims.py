"""What the failing networks draw instead, and with which kernel.

All numbers are of the hold-out's interior. The first case of a claim is the bump-coded CNN of the usual depth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.controls.differences import less_controls
from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.majority import Majority
from recombine.papers.forced_rendering.samples import sample, trained
from recombine.papers.forced_rendering.superposition.labels import CNN_ARM, CONTRASTS, COSINE, DARK, SIMILARITIES
from recombine.papers.forced_rendering.superposition.statistics import (
    aligned_artefacts,
    averages_superposed,
    beyond_truth,
    binary_kernel,
    contrast,
    equally_superposed,
    over_product,
    over_radial,
    over_rivals,
    over_truth,
    several_peaks,
    superposed,
    superposed_outputs,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect

if TYPE_CHECKING:
    import xarray

Statistic = Callable[["xarray.Dataset"], "xarray.DataArray"]
SUPERPOSED = 0.2
"""Smallest difference of variance explained that matters."""


def _networks(data: Data, code: str = "bump", decoder: str = CNN_ARM) -> xarray.Dataset:
    return data["superposition"].sel(encoding=code, decoder=decoder)


def _of(data: Data, statistic: Statistic, code: str = "bump") -> Sample:
    networks = _networks(data, code)
    return sample(statistic(networks), networks)


def _others(data: Data, statistic: Statistic, *besides: str) -> dict[str, Sample]:
    """The other codes, but for those in `besides`, and the other decoders with bump codes."""
    result, samples = data["superposition"], {}
    for code in (str(name) for name in result["encoding"].values if name not in ("bump", *besides)):
        samples[code] = _of(data, statistic, code)
    for decoder in (str(name) for name in result["decoder"].values if name not in (CNN_ARM, DARK)):
        networks = _networks(data, decoder=decoder)
        if trained(networks).any():
            samples[f"bump, {decoder}"] = sample(statistic(networks), networks)
    return samples


# -- C2: superposition -----------------------------------------------------------------------------------------------


def superposition_cases(data: Data) -> dict[str, Sample]:
    """By code."""
    return {code: _of(data, superposed, code) for code in CODES}


def superposition_alternatives(data: Data) -> dict[str, Sample]:
    """Other forms of superposition, over the truth, share of seeds, other codes and decoders."""
    forms: dict[str, Statistic] = {
        "of the network's own outputs": superposed_outputs,
        "equal weights": equally_superposed,
        "D(x̄) + D(ȳ)": averages_superposed,
        "beyond the truth": beyond_truth,
        "less the truth": over_truth,
    }
    samples = {f"{code}, {words}": _of(data, form, code) for code in CODES for words, form in forms.items()}
    for code in CODES:
        networks = _networks(data, code)
        values = superposed(networks)
        many = (values > SUPERPOSED).astype(float).where(values.notnull())
        samples[f"{code}, share of seeds less a half"] = sample(many, networks, estimated=Majority.of)
    return {**samples, **_others(data, superposed, *CODES)}


def superposition_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, superposed)


# -- C3: the kernel --------------------------------------------------------------------------------------------------


def kernel_cases(data: Data) -> dict[str, Sample]:
    """Cosine similarity."""
    return {"bump": _of(data, binary_kernel)}


def kernel_alternatives(data: Data) -> dict[str, Sample]:
    """Other similarities and rows, against each rival alone, and the rate code."""
    others = [name for name in SIMILARITIES if name != COSINE]
    return {
        **{f"bump, {name}": _of(data, partial(over_rivals, similarity=name)) for name in others},
        "bump, less the product kernel alone": _of(data, over_product),
        "bump, less the radial kernel alone": _of(data, over_radial),
        "rate": _of(data, binary_kernel, "rate"),
    }


def kernel_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, over_rivals)


# -- C14: blocks -----------------------------------------------------------------------------------------------------


def block_cases(data: Data) -> dict[str, Sample]:
    """Bump less rate code: held-out with kept outputs, cosine similarity."""
    return {COSINE: _bump_less_rate(data, contrast)}


def block_alternatives(data: Data) -> dict[str, Sample]:
    """Other similarities, the full matrix, dark bumps."""
    samples = {name: _bump_less_rate(data, partial(contrast, blocks=name)) for name in CONTRASTS if name != COSINE}
    for name in CONTRASTS:
        samples[f"{name}, dark bumps"] = _bump_less_rate(data, partial(contrast, blocks=name), DARK)
    return samples


def _bump_less_rate(data: Data, statistic: Statistic, decoder: str = CNN_ARM) -> Sample:
    bump, rate = (_networks(data, code, decoder) for code in CODES)
    return sample(statistic(bump) - statistic(rate), bump, rate)


# -- C19: artefacts --------------------------------------------------------------------------------------------------


def several_cases(data: Data) -> dict[str, Sample]:
    """The bump code."""
    return {"bump": _of(data, several_peaks)}


def aligned_cases(data: Data) -> dict[str, Sample]:
    """The bump code."""
    return {"bump": _of(data, aligned_artefacts)}


def several_alternatives(data: Data) -> dict[str, Sample]:
    """By code, depth and decoder."""
    return _others(data, several_peaks)


def aligned_alternatives(data: Data) -> dict[str, Sample]:
    """By code, depth and decoder."""
    return _others(data, aligned_artefacts)


CLAIMS = (
    Claim(
        "C2",
        "Held-out outputs superpose memorised ones",
        "§3.3, Fig. 1d",
        statements=(
            Statement(
                effect("variance explained by training images that share x or y, less by ones that share neither",
                       SUPERPOSED),
                superposition_cases,
                superposition_alternatives,
                superposition_controls,
            ),
        ),
        studies=("superposition",),
        beside=("controls",),
    ),
    Claim(
        "C3",
        "The learnt kernel is a binary factorized one",
        "§3.3, Fig. 1e",
        statements=(
            Statement(
                effect("correlation of the OR kernel less that of the better of product and radial kernels", 0.05),
                kernel_cases,
                kernel_alternatives,
                kernel_controls,
            ),
        ),
        studies=("superposition",),
        beside=("controls",),
    ),
    Claim(
        "C14",
        "Bump codes give stronger blocks than rate codes",
        "E.1, Fig. 8",
        statements=(
            Statement(effect("block contrast, bump less rate code", 0.1), block_cases, block_alternatives),
        ),
        studies=("superposition",),
    ),
    Claim(
        "C19",
        "Artefacts are several bumps, aligned with the true x and y",
        "§3.2–3.3",
        statements=(
            Statement(
                above("share of interior outputs with two or more separate peaks", 0.25),
                several_cases,
                several_alternatives,
            ),
            Statement(
                effect("peaks off the truth within 1 px of its row or column, over chance", 0.2),
                aligned_cases,
                aligned_alternatives,
            ),
        ),
        studies=("superposition",),
    ),
)  # fmt: skip
