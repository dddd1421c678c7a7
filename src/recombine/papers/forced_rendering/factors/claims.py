"""Whether remedies that make networks compose two factors do so for three, four and five. All claims are ours.

By number of factors, networks trained on all kept combinations. *In place*: the brightest pixel is within one pixel of
the bump's x and y, which are the factors that were never seen together. Beside it, the share of held-out outputs that
show the right value of *every* factor, and the error over that of a blank image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.factors.labels import (
    ALL_KEPT,
    CNN_ALONE,
    CNN_ISOLATED,
    COORDINATE,
    LOW_RANK_PENALISED,
)
from recombine.papers.forced_rendering.samples import sample
from recombine.reproduction.claims import Claim, Data, Statement
from recombine.reproduction.criteria import above, below, effect
from recombine.reproduction.samples import Sample

if TYPE_CHECKING:
    import xarray

COMPOSES, FAILS, LEAST_GAIN = 0.9, 0.5, 0.3


def _networks(data: Data, arm: str) -> dict[str, xarray.Dataset]:
    """An arm's networks by number of factors, in words."""
    result = data["factors"].sel(arm=arm, data=ALL_KEPT)
    return {f"{int(count)} factors": result.sel(count=count) for count in result["count"].values}


def _of(data: Data, arm: str, name: str, words: str = "") -> dict[str, Sample]:
    return {f"{case}{words}": sample(own[name], own) for case, own in _networks(data, arm).items()}


# -- C31: CNNs alone -----------------------------------------------------------------------------------------------


def cnn_in_place(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, CNN_ALONE, "ood_accuracy")


def cnn_right(data: Data) -> dict[str, Sample]:
    """Every factor's value."""
    return _of(data, CNN_ALONE, "all_values_accuracy", ", every value right")


def cnn_error(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, CNN_ALONE, "ood_over_blank")


# -- C32: isolated factors -----------------------------------------------------------------------------------------


def isolated_in_place(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, CNN_ISOLATED, "ood_accuracy")


def isolated_right(data: Data) -> dict[str, Sample]:
    """Every factor's value."""
    return _of(data, CNN_ISOLATED, "all_values_accuracy", ", every value right")


def isolated_gain(data: Data) -> dict[str, Sample]:
    """Against CNNs alone, seed by seed."""
    alone = _networks(data, CNN_ALONE)
    return {case: sample(own["ood_accuracy"] - alone[case]["ood_accuracy"], own, alone[case])
            for case, own in _networks(data, CNN_ISOLATED).items()}  # fmt: skip


# -- C33: low-rank embeddings --------------------------------------------------------------------------------------


def low_rank_in_place(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, LOW_RANK_PENALISED, "ood_accuracy")


def low_rank_right(data: Data) -> dict[str, Sample]:
    """Every factor's value."""
    return _of(data, LOW_RANK_PENALISED, "all_values_accuracy", ", every value right")


# -- C34: coordinates ----------------------------------------------------------------------------------------------


def coordinate_in_place(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, COORDINATE, "ood_accuracy")


def coordinate_right(data: Data) -> dict[str, Sample]:
    """Every factor's value."""
    return _of(data, COORDINATE, "all_values_accuracy", ", every value right")


def coordinate_error(data: Data) -> dict[str, Sample]:
    """By number of factors."""
    return _of(data, COORDINATE, "ood_over_blank")


CLAIMS = (
    Claim(
        "C31",
        "CNNs fail to compose x and y whether there are two, three, four or five factors",
        "§3.2",
        statements=(
            Statement(below("held-out bumps in place, CNN alone", COMPOSES), cnn_in_place, cnn_right),
            Statement(above("held-out error over blank, CNN alone", FAILS), cnn_error),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C32",
        "Examples of isolated factors make CNNs compose two to five factors",
        "§4.2",
        statements=(
            Statement(
                above("held-out bumps in place, CNN with isolated factors", COMPOSES), isolated_in_place, isolated_right
            ),
            Statement(
                effect("held-out bumps in place, with less without isolated factors", LEAST_GAIN), isolated_gain
            ),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C33",
        "Low-rank embeddings with both penalties compose two to five factors",
        "§4.1",
        statements=(
            Statement(above("held-out bumps in place, low-rank, penalties", COMPOSES), low_rank_in_place,
                      low_rank_right),
        ),
        studies=("factors",),
        ours=True,
    ),
    Claim(
        "C34",
        "Decoders that render each pixel from code and coordinate compose two to five factors with no remedy",
        "E.3",
        statements=(
            Statement(above("held-out bumps in place, coordinate MLP", COMPOSES), coordinate_in_place,
                      coordinate_right),
            Statement(below("held-out error over blank, coordinate MLP", FAILS), coordinate_error),
        ),
        studies=("factors",),
        ours=True,
    ),
)  # fmt: skip
