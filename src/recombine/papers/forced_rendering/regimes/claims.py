"""Whether memorising and composing networks sit in different kernel regimes. Exploratory: the paper contradicts itself.

A.4 calls a kernel of one Schmidt term, a single product of one kernel per factor, "purely factorized"; A.5 calls a
single N-factor term the "pure memorization regime", with weight in single-factor terms as its opposite. Over bumps both
are said of the same kernel: that of the right images *is* one product, k(x, x′) k(y, y′). So neither number says which
regime composes, and the distance to the right images' own kernel stands beside them. Numbers are given without a
verdict, each composing arm against the same network without the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.regimes.labels import RIVALS
from recombine.papers.forced_rendering.samples import sample
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect

if TYPE_CHECKING:
    import xarray


def nearer_the_ideal(data: Data) -> dict[str, Sample]:
    """By how much a composing network's kernel is nearer to that of the right images."""
    return {arm: sample(failing["kernel_distance"] - own["kernel_distance"], own, failing)
            for arm, own, failing in _pairs(data)}  # fmt: skip


def fewer_terms(data: Data) -> dict[str, Sample]:
    """By how much a composing network's kernel has fewer Schmidt terms: A.4's factorized regime."""
    return {arm: sample(failing["schmidt_rank"] - own["schmidt_rank"], own, failing)
            for arm, own, failing in _pairs(data)}  # fmt: skip


def more_single_factors(data: Data) -> dict[str, Sample]:
    """By how much a composing network's kernel has more weight in single-factor terms: A.5's factorized regime."""
    return {arm: sample(own["single_factor"] - failing["single_factor"], own, failing)
            for arm, own, failing in _pairs(data)}  # fmt: skip


def absolute_weights(data: Data) -> dict[str, Sample]:
    """The same with absolute instead of squared weights."""
    return {f"{arm}, absolute weights": sample(own["single_factor_absolute"] - failing["single_factor_absolute"], own,
                                               failing)
            for arm, own, failing in _pairs(data)}  # fmt: skip


def _pairs(data: Data) -> list[tuple[str, xarray.Dataset, xarray.Dataset]]:
    result = data["regimes"]
    return [(arm, result.sel(arm=arm), result.sel(arm=failing)) for arm, failing in RIVALS.items()]


CLAIMS = (
    Claim(
        "C18",
        "Memorising and composing networks sit in different kernel regimes (A.4 calls one product of kernels purely "
        "factorized, A.5 calls one N-factor term memorisation: they disagree on which is which)",
        "App. A.4–A.5",
        statements=(
            Statement(effect("distance of the kernel to the ideal's, failing less composing", 0.0), nearer_the_ideal),
            Statement(effect("effective number of Schmidt terms, failing less composing", 0.0), fewer_terms),
            Statement(
                effect("PF_Coeff, weight in single-factor terms, composing less failing", 0.0),
                more_single_factors,
                absolute_weights,
            ),
        ),
        studies=("regimes",),
        exploratory=True,
    ),
)
