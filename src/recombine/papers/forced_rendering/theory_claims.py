"""Whether failing and composing networks differ as the paper's theory says (§3.4, App. A). All comparisons are ours.

The appendix defines what a factorized, a reversible and a complex map are, and says that failing networks lose these;
it measures none of it. Here networks without a remedy are compared, seed by seed, with those of the same architecture
that compose: stripes and 100 bumps for CNNs, both penalties for the low-rank decoder. Stripes do not make MLPs compose;
theirs are compared with MLPs trained on the whole grid. So are all where the paper blames the hole in the data (§3.4).
Networks trained on the whole grid and untrained ones are controls of every comparison.

The settings (an error of 0.3 for counting products, which stages count, scores not below 0) and the smallest
differences that matter were fixed with networks of seeds 0 to 7 in view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter

import xarray

from recombine.papers.forced_rendering.samples import sample
from recombine.papers.forced_rendering.theory import COMPOSING, FAMILIES, INITIAL
from recombine.reproduction.claims import Claim, Data, Sample, Samples, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden
from recombine.reproduction.tables import output as at_output

Statistic = Callable[["xarray.Dataset"], "xarray.DataArray"]
"""One number per seed, from the Dataset's part of one arm."""
WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
PRODUCTS, SPLIT, LOSS, MIXING, WIDTH = 0.5, 0.1, 0.1, 0.05, 0.1
"""The smallest differences that matter."""


def _against(others: Mapping[str, str], statistic: Statistic, sign: int, words: str = "") -> Samples:
    """By architecture, a number of failing networks less that of others, or the other way round for a sign of −1.

    Untrained networks need not have learnt; all others must.
    """

    def samples(data: Data) -> dict[str, Sample]:
        result, found = data["theory"], {}
        for family, (failing, *_) in FAMILIES.items():
            own, control = (result.sel(arm=arm) for arm in (failing, others[family]))
            networks = (own,) if others[family] in INITIAL else (own, control)
            found[f"{family}{words}"] = sample(sign * (statistic(own) - statistic(control)), *networks)
        return found

    return samples


def _together(*parts: Samples) -> Samples:
    return lambda data: {case: own for part in parts for case, own in part(data).items()}


def _less_whole_and_untrained(statistic: Statistic, sign: int) -> Samples:
    whole = _against(WHOLE, statistic, sign, " against whole grid")
    return _together(whole, _against(UNTRAINED, statistic, sign, " against untrained"))


def _less_composing_and_untrained(statistic: Statistic, sign: int) -> Samples:
    composing = _against(COMPOSING, statistic, sign, " against composing")
    return _together(composing, _against(UNTRAINED, statistic, sign, " against untrained"))


# -- numbers per seed --------------------------------------------------------------------------------------------------


def held_products(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean number of products in held-out outputs, over that of the right images there."""
    return networks["held_products"] - networks["target_products"]


def clipped(score: xarray.DataArray) -> xarray.DataArray:
    """R² that is not below 0: how wrong a prediction is that predicts nothing has no meaning."""
    return score.clip(min=0)


def linear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Score of the linear test, mean over the hidden stages; below 0 nothing is predicted, which counts as 0."""
    return mean_of_hidden(clipped(networks["linear_factorization"]))


def linear_split_of_last(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the last hidden stage."""
    return last_hidden(clipped(networks["linear_factorization"]))


def linear_split_of_output(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the output."""
    return at_output(clipped(networks["linear_factorization"]))


def nonlinear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Score of the flow at the last hidden stage, the only one that has it."""
    return clipped(networks["nonlinear_factorization"]).max("stage")


def lost(name: str, place: Callable[[xarray.DataArray], xarray.DataArray]) -> Statistic:
    """What a share lacks of 1, at a stage."""
    return lambda networks: 1 - place(networks[name])


held_loss = lost("factor_recovery_held", last_hidden)
"""What is lost of the factors at held-out points, at the last hidden stage."""
mixing = lost("additivity", last_hidden)
"""Share of the last hidden stage's variance that is no sum of blocks."""
placed = lost("hole_misplaced", at_output)
"""Share of held-out outputs that are not beside those of kept points far away."""


def local_loss(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of points at which a factor moves the output in no direction of its own."""
    return at_output(networks["local_loss"])


def hole_width(networks: xarray.Dataset) -> xarray.DataArray:
    """Width of the hole at the output, in steps between kept neighbours."""
    return at_output(networks["hole_openness"])


CLAIMS = (
    Claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "functions, than what composing ones draw",
        "App. A.1, Eq. 13, 17",
        statements=(
            Statement(
                effect("products per pixel in held-out outputs, failing less composing", PRODUCTS),
                _against(COMPOSING, held_products, 1),
                _together(
                    _against(COMPOSING, itemgetter("held_products_finer"), 1, ", a third of the error"),
                    _against(COMPOSING, itemgetter("held_products_brightest"), 1, ", brightest pixels"),
                    _against(COMPOSING, itemgetter("all_products"), 1, ", whole grid, brightest pixels"),
                    _against(COMPOSING, itemgetter("kept_products"), 1, ", kept points, brightest pixels"),
                ),
                _less_whole_and_untrained(held_products, 1),
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
    Claim(
        "C28",
        "Composing networks keep the factors in blocks, up to an invertible map, where failing ones do not",
        "§5, App. A.2, Eq. 24–27",
        statements=(
            Statement(
                effect(
                    "R² of blocks after a linear map, held-out points, hidden stages, composing less failing", SPLIT
                ),
                _against(COMPOSING, linear_split, -1),
                _together(
                    _against(COMPOSING, linear_split_of_last, -1, ", last hidden stage"),
                    _against(COMPOSING, nonlinear_split, -1, ", last hidden stage, after a flow"),
                    _against(COMPOSING, linear_split_of_output, -1, ", output"),
                ),
                _less_whole_and_untrained(linear_split, -1),
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
    Claim(
        "C29",
        "Failing networks mix factors irreversibly: what a decoder finds of them at held-out combinations is lost",
        "App. A.3",
        statements=(
            Statement(
                effect("1 − R² of factors decoded at held-out points, last hidden stage, failing less composing", LOSS),
                _against(COMPOSING, held_loss, 1),
                _together(
                    _against(COMPOSING, lost("factor_recovery_held", at_output), 1, ", output"),
                    _against(COMPOSING, lost("factor_recovery", last_hidden), 1, ", all points"),
                    _against(COMPOSING, local_loss, 1, ", rank of the Jacobian at the output"),
                ),
                _less_whole_and_untrained(held_loss, 1),
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
    Claim(
        "C30",
        "The hole in the data warps the stages: they are less a sum of one block per factor than in networks that saw "
        "the whole grid, and the hole is narrower",
        "§3.4",
        statements=(
            Statement(
                effect("share of the last hidden stage that is no sum of blocks, failing less whole grid", MIXING),
                _against(WHOLE, mixing, 1),
                _together(
                    _against(WHOLE, lost("additivity", at_output), 1, ", output"),
                    _against(WHOLE, lost("additivity", first_hidden), 1, ", first hidden stage"),
                ),
                _less_composing_and_untrained(mixing, 1),
            ),
            Statement(
                effect("width of the hole at the output, in steps, whole grid less failing", WIDTH),
                _against(WHOLE, hole_width, -1),
                _together(
                    _against(WHOLE, lambda own: last_hidden(own["hole_openness"]), -1, ", last hidden stage"),
                    _against(WHOLE, lambda own: first_hidden(own["hole_openness"]), -1, ", first hidden stage"),
                    _against(WHOLE, placed, -1, ", share of held-out outputs that are not beside far ones"),
                ),
                _less_composing_and_untrained(hole_width, -1),
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
)
