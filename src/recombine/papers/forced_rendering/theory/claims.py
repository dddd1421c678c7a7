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
from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.samples import sample
from recombine.papers.forced_rendering.theory.labels import COMPOSING, FAMILIES, INITIAL
from recombine.papers.forced_rendering.theory.statistics import (
    all_products,
    held_loss,
    held_loss_of_output,
    held_products,
    held_products_brightest,
    held_products_finer,
    hole_width,
    hole_width_of_first,
    hole_width_of_last,
    kept_products,
    linear_split,
    linear_split_of_last,
    linear_split_of_output,
    local_loss,
    loss,
    mixing,
    mixing_of_first,
    mixing_of_output,
    nonlinear_split,
    placed,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect

if TYPE_CHECKING:
    import xarray

Statistic = Callable[["xarray.Dataset"], "xarray.DataArray"]
WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
PRODUCTS, SPLIT, LOSS, MIXING, WIDTH = 0.5, 0.1, 0.1, 0.05, 0.1
"""The smallest differences that matter."""


def differences(
    data: Data, statistic: Statistic, others: Mapping[str, str], sign: int, words: str = ""
) -> dict[str, Sample]:
    """By architecture, a number of failing networks less that of others, or the other way round for a sign of −1.

    Untrained networks need not have learnt; all others must.
    """
    result, samples = data["theory"], {}
    for family, (failing, *_) in FAMILIES.items():
        own, control = (result.sel(arm=arm) for arm in (failing, others[family]))
        networks = (own,) if others[family] in INITIAL else (own, control)
        samples[f"{family}{words}"] = sample(sign * (statistic(own) - statistic(control)), *networks)
    return samples


def _against_composing(data: Data, statistic: Statistic, sign: int, words: str = "") -> dict[str, Sample]:
    return differences(data, statistic, COMPOSING, sign, words)


def _against_whole(data: Data, statistic: Statistic, sign: int, words: str = "") -> dict[str, Sample]:
    return differences(data, statistic, WHOLE, sign, words)


def _against_untrained(data: Data, statistic: Statistic, sign: int) -> dict[str, Sample]:
    return differences(data, statistic, UNTRAINED, sign, " against untrained")


# -- C27: products -----------------------------------------------------------------------------------------------------


def more_products(data: Data) -> dict[str, Sample]:
    """By architecture."""
    return _against_composing(data, held_products, 1)


def more_products_otherwise(data: Data) -> dict[str, Sample]:
    """A smaller error, other pixels, and other points."""
    return {
        **_against_composing(data, held_products_finer, 1, ", a third of the error"),
        **_against_composing(data, held_products_brightest, 1, ", brightest pixels"),
        **_against_composing(data, all_products, 1, ", whole grid, brightest pixels"),
        **_against_composing(data, kept_products, 1, ", kept points, brightest pixels"),
    }


def more_products_than_controls(data: Data) -> dict[str, Sample]:
    """Networks that saw the whole grid, and untrained ones."""
    whole = _against_whole(data, held_products, 1, " against whole grid")
    return {**whole, **_against_untrained(data, held_products, 1)}


# -- C28: blocks -------------------------------------------------------------------------------------------------------


def blocks_kept(data: Data) -> dict[str, Sample]:
    """By architecture."""
    return _against_composing(data, linear_split, -1)


def blocks_kept_otherwise(data: Data) -> dict[str, Sample]:
    """Other stages, and a flow in the place of the linear map."""
    return {
        **_against_composing(data, linear_split_of_last, -1, ", last hidden stage"),
        **_against_composing(data, nonlinear_split, -1, ", last hidden stage, after a flow"),
        **_against_composing(data, linear_split_of_output, -1, ", output"),
    }


def blocks_kept_by_controls(data: Data) -> dict[str, Sample]:
    """Networks that saw the whole grid, and untrained ones."""
    whole = _against_whole(data, linear_split, -1, " against whole grid")
    return {**whole, **_against_untrained(data, linear_split, -1)}


# -- C29: what is lost -------------------------------------------------------------------------------------------------


def factors_lost(data: Data) -> dict[str, Sample]:
    """By architecture."""
    return _against_composing(data, held_loss, 1)


def factors_lost_otherwise(data: Data) -> dict[str, Sample]:
    """The output, all points, and the Jacobian's rank."""
    return {
        **_against_composing(data, held_loss_of_output, 1, ", output"),
        **_against_composing(data, loss, 1, ", all points"),
        **_against_composing(data, local_loss, 1, ", rank of the Jacobian at the output"),
    }


def factors_lost_by_controls(data: Data) -> dict[str, Sample]:
    """Networks that saw the whole grid, and untrained ones."""
    whole = _against_whole(data, held_loss, 1, " against whole grid")
    return {**whole, **_against_untrained(data, held_loss, 1)}


# -- C30: the hole -----------------------------------------------------------------------------------------------------


def more_mixing(data: Data) -> dict[str, Sample]:
    """By architecture."""
    return _against_whole(data, mixing, 1)


def more_mixing_otherwise(data: Data) -> dict[str, Sample]:
    """Other stages."""
    return {
        **_against_whole(data, mixing_of_output, 1, ", output"),
        **_against_whole(data, mixing_of_first, 1, ", first hidden stage"),
    }


def more_mixing_than_controls(data: Data) -> dict[str, Sample]:
    """Composing networks, and untrained ones."""
    composing = _against_composing(data, mixing, 1, " against composing")
    return {**composing, **_against_untrained(data, mixing, 1)}


def narrower_hole(data: Data) -> dict[str, Sample]:
    """By architecture."""
    return _against_whole(data, hole_width, -1)


def narrower_hole_otherwise(data: Data) -> dict[str, Sample]:
    """Other stages, and held-out outputs beside those of points far away."""
    return {
        **_against_whole(data, hole_width_of_last, -1, ", last hidden stage"),
        **_against_whole(data, hole_width_of_first, -1, ", first hidden stage"),
        **_against_whole(data, placed, -1, ", share of held-out outputs that are not beside far ones"),
    }


def narrower_hole_than_controls(data: Data) -> dict[str, Sample]:
    """Composing networks, and untrained ones."""
    composing = _against_composing(data, hole_width, -1, " against composing")
    return {**composing, **_against_untrained(data, hole_width, -1)}


CLAIMS = (
    Claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "functions, than what composing ones draw",
        "App. A.1, Eq. 13, 17",
        statements=(
            Statement(
                effect("products per pixel in held-out outputs, failing less composing", PRODUCTS),
                more_products, more_products_otherwise, more_products_than_controls,
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
                blocks_kept, blocks_kept_otherwise, blocks_kept_by_controls,
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
                factors_lost, factors_lost_otherwise, factors_lost_by_controls,
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
                more_mixing, more_mixing_otherwise, more_mixing_than_controls,
            ),
            Statement(
                effect("width of the hole at the output, in steps, whole grid less failing", WIDTH),
                narrower_hole, narrower_hole_otherwise, narrower_hole_than_controls,
            ),
        ),
        studies=("theory",),
        ours=True,
    ),
)  # fmt: skip
