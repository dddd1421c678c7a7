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

from recombine.papers.forced_rendering.samples import PerSeed, difference
from recombine.papers.forced_rendering.theory import COMPOSING, FAMILIES, FLOW, INITIAL
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden
from recombine.reproduction.tables import output as at_output

WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
PRODUCTS, SPLIT, LOSS, MIXING, WIDTH = 0.5, 0.1, 0.1, 0.05, 0.1
"""The smallest differences that matter."""
Place = Callable[[xarray.DataArray], xarray.DataArray]
"""From numbers over stages to one per seed."""


def _against(data: Data, others: Mapping[str, str], statistic: PerSeed, words: str) -> dict[str, Sample]:
    """By architecture, a number of failing networks less that of others.

    Untrained networks need not have learnt; all others must.
    """
    return {
        f"{family}{words}": difference(
            statistic,
            data["theory"].sel(arm=failing),
            data["theory"].sel(arm=others[family]),
            untrained=others[family] in INITIAL,
        )
        for family, (failing, *_) in FAMILIES.items()
    }


def _compared(
    criterion: Criterion, others: Mapping[str, str], statistic: PerSeed, otherwise: Mapping[str, PerSeed]
) -> Statement:
    """Failing networks less others; beside it other statistics, and as controls the other kinds of networks."""
    beside = {"whole grid": WHOLE} if others is COMPOSING else {"composing": COMPOSING}

    def alternatives(data: Data) -> dict[str, Sample]:
        parts = [_against(data, others, own, f", {words}") for words, own in otherwise.items()]
        return {case: own for part in parts for case, own in part.items()}

    def controls(data: Data) -> dict[str, Sample]:
        arms = {**beside, "untrained": UNTRAINED}
        parts = [_against(data, own, statistic, f" against {words}") for words, own in arms.items()]
        return {case: own for part in parts for case, own in part.items()}

    return Statement(criterion, lambda data: _against(data, others, statistic, ""), alternatives, controls)


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


def at(place: Place, name: str) -> PerSeed:
    """A number at a stage."""
    return lambda networks: place(networks[name])


def lost(place: Place, name: str) -> PerSeed:
    """What a share lacks of 1, at a stage."""
    return lambda networks: 1 - place(networks[name])


def minus(statistic: PerSeed) -> PerSeed:
    """For what failing networks are said to have less of."""
    return lambda networks: -statistic(networks)


held_loss = lost(last_hidden, "factor_recovery_held")
"""What is lost of the factors at held-out points, at the last hidden stage."""
mixing = lost(last_hidden, "additivity")
"""Share of the last hidden stage's variance that is no sum of blocks."""
hole_width = at(at_output, "hole_openness")
"""Width of the hole at the output, in steps between kept neighbours."""


CLAIMS = (
    Claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "functions, than what composing ones draw",
        "App. A.1, Eq. 13, 17",
        statements=(
            _compared(
                effect("products per pixel in held-out outputs, failing less composing", PRODUCTS),
                COMPOSING,
                held_products,
                {
                    "a third of the error": itemgetter("held_products_finer"),
                    "brightest pixels": itemgetter("held_products_brightest"),
                    "whole grid, brightest pixels": itemgetter("all_products"),
                    "kept points, brightest pixels": itemgetter("kept_products"),
                },
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
            _compared(
                effect(
                    "R² of blocks after a linear map, held-out points, hidden stages, composing less failing", SPLIT
                ),
                COMPOSING,
                minus(linear_split),
                {
                    "last hidden stage": lambda own: -last_hidden(clipped(own["linear_factorization"])),
                    # the last hidden stage is the only one with a flow
                    "last hidden stage, after a flow": lambda own: -clipped(own[FLOW]).max("stage"),
                    "output": lambda own: -at_output(clipped(own["linear_factorization"])),
                },
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
            _compared(
                effect("1 − R² of factors decoded at held-out points, last hidden stage, failing less composing", LOSS),
                COMPOSING,
                held_loss,
                {
                    "output": lost(at_output, "factor_recovery_held"),
                    "all points": lost(last_hidden, "factor_recovery"),
                    "rank of the Jacobian at the output": at(at_output, "local_loss"),
                },
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
            _compared(
                effect("share of the last hidden stage that is no sum of blocks, failing less whole grid", MIXING),
                WHOLE,
                mixing,
                {"output": lost(at_output, "additivity"), "first hidden stage": lost(first_hidden, "additivity")},
            ),
            _compared(
                effect("width of the hole at the output, in steps, whole grid less failing", WIDTH),
                WHOLE,
                minus(hole_width),
                {
                    "last hidden stage": minus(at(last_hidden, "hole_openness")),
                    "first hidden stage": minus(at(first_hidden, "hole_openness")),
                    "share of held-out outputs that are not beside far ones": minus(lost(at_output, "hole_misplaced")),
                },
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
)
