"""Whether memorising and composing networks sit in different kernel regimes. Exploratory: the paper contradicts itself.

A.4 calls a kernel of one Schmidt term, a single product of one kernel per factor, "purely factorized"; A.5 calls a
single N-factor term the "pure memorization regime", with weight in single-factor terms as its opposite. Over bumps both
are said of the same kernel: that of the right images *is* one product, k(x, x′) k(y, y′). So neither number says which
regime composes, and the distance to the right images' own kernel stands beside them. Numbers are given without a
verdict, each composing arm against the same network without the remedy.
"""

from __future__ import annotations

from recombine.papers.forced_rendering.regimes import RIVALS
from recombine.papers.forced_rendering.samples import difference
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect


def _less_failing(data: Data, name: str, sign: int, words: str = "") -> dict[str, Sample]:
    """A number of composing networks less that of failing ones, or the other way round for a sign of −1."""
    pairs = {pair[0]: [data["regimes"].sel(arm=arm) for arm in pair] for pair in RIVALS.items()}
    return {f"{arm}{words}": difference(name, *own[::sign]) for arm, own in pairs.items()}


CLAIMS = (
    Claim(
        "C18",
        "Memorising and composing networks sit in different kernel regimes (A.4 calls one product of kernels purely "
        "factorized, A.5 calls one N-factor term memorisation: they disagree on which is which)",
        "App. A.4–A.5",
        statements=(
            Statement(
                effect("distance of the kernel to the ideal's, failing less composing", 0.0),
                lambda data: _less_failing(data, "kernel_distance", -1),
            ),
            Statement(
                effect("effective number of Schmidt terms, failing less composing", 0.0),
                lambda data: _less_failing(data, "schmidt_rank", -1),
            ),
            Statement(
                effect("PF_Coeff, weight in single-factor terms, composing less failing", 0.0),
                lambda data: _less_failing(data, "single_factor", 1),
                lambda data: _less_failing(data, "single_factor_absolute", 1, ", absolute weights"),
            ),
        ),
        studies=("regimes",),
        exploratory=True,
    ),
)
