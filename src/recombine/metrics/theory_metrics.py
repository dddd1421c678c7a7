"""Stage metrics of the paper's theory (Appendix A, §3.4), each defined where its function is.

The factorization tests (Eq. 23–28) are fitted to kept points and scored at held-out ones; without a hold-out a random
fifth of the points is left out. A stage that does not vary, or a hold-out that leaves nothing to predict, has NaN. The
others are a kernel's place between memorisation and factorization, what is lost of the factors, and what becomes of
their distribution and its hole. They share one Gram matrix per stage (`Stage.grams`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.metrics.factorization import above_delta, partial_factorization
from recombine.metrics.registry import Column, Need, Stage, stage_metric
from recombine.theory.factorization import (
    NONE,
    Factorization,
    best_grouping,
    linear_factorization,
    nonlinear_factorization,
    unit_selectivity,
)
from recombine.theory.projections import USEFUL
from recombine.theory.reversibility import jacobian_rank, local_loss
from recombine.theory.transport import additivity, hole_dependence, hole_geometry

UNITS = 1 << 12
"""Of a stage, that are looked at at a time."""
PERMUTATIONS = 19
"""Of a stage's linear test: just enough for p = 0.05."""

T = TypeVar("T")


@stage_metric(
    "linear_factorization",
    Column(
        "linear_factorization", "R² at held-out points of coordinates, each from one factor alone, after the best "
        "linear map", "Eq. 24",
    ),
    Column("linear_factorization_p", "its p-value among permuted combinations (at least 0.05)", "Eq. 24"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
    thorough=True,
)  # fmt: skip
def evaluate_linear_factorization(stage: Stage) -> dict[str, Tensor]:
    """Whether a stage is blocks of one factor each, up to a linear map."""
    return _tested(stage, "linear_factorization", partial(linear_factorization, permutations=PERMUTATIONS))


@stage_metric(
    "nonlinear_factorization",
    Column(
        "nonlinear_factorization", "the same after an invertible flow, or what it gives back if that is less",
        "Eq. 25–27",
    ),
    Column("nonlinear_factorization_p", "its p-value; NaN where the score is below 0.9", "Eq. 25–27"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
    thorough=True,
)  # fmt: skip
def evaluate_nonlinear_factorization(stage: Stage) -> dict[str, Tensor]:
    """Whether a stage is blocks of one factor each, up to an invertible map that a small flow learns."""
    return _tested(stage, "nonlinear_factorization", nonlinear_factorization)


@stage_metric(
    "partial_grouping",
    Column(
        "grouping", "number of the group that a factor is in, in the grouping whose blocks predict best", "Eq. 28",
        dims=("factor",), labels=True,
    ),
    needs=(Need.THREE_FACTORS,),
    in_studies=False,
    thorough=True,
)  # fmt: skip
def evaluate_partial_grouping(stage: Stage) -> dict[str, Tensor]:
    """Which factors a stage holds together: 0, 0, 1 is {x, y}, {z}."""
    factors = len(stage.grid.shape)
    groups = stage.gram.new_full((*stage.gram.shape[:-2], factors), torch.nan)
    for members, result in _over_varying(stage, best_grouping):
        numbers = [
            [next(number for number, group in enumerate(grouping) if factor in group) for factor in range(factors)]
            for grouping in result.groupings
        ]
        groups.view(-1, factors)[members] = torch.tensor(numbers)[result.best.cpu()].to(groups)
    return {"grouping": groups}


@stage_metric(
    "unit_selectivity",
    Column(
        "unit_selectivity", "share of units' variance that each unit's best factor explains alone, no map being "
        "applied: structural modularity", "A.2",
    ),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
    thorough=True,
)  # fmt: skip
def evaluate_unit_selectivity(stage: Stage) -> dict[str, Tensor]:
    """How far a stage has separate units for separate factors; units that do not vary have no say."""
    parts = [unit_selectivity(part, stage.grid.shape) for part in stage.features.split(UNITS, dim=-1)]
    varying = torch.cat([part.factor != NONE for part in parts], dim=-1)
    best = torch.cat([part.share.amax(dim=-1) for part in parts], dim=-1) * varying
    return {"unit_selectivity": best.sum(dim=-1) / torch.where(varying.any(dim=-1), varying.sum(dim=-1), torch.nan)}


def _tested(stage: Stage, name: str, test: Callable[..., Factorization]) -> dict[str, Tensor]:
    """Score and p-value of each member."""
    score = stage.gram.new_full(stage.gram.shape[:-2], torch.nan)
    p_value = score.clone()
    for members, result in _over_varying(stage, test):
        score.view(-1)[members] = torch.minimum(result.score, result.recovered).to(score)
        p_value.view(-1)[members] = result.p_value.to(score)
    return {name: score, f"{name}_p": p_value}


def _over_varying(stage: Stage, test: Callable[..., T]) -> list[tuple[Tensor, T]]:
    """Places of the members whose stage varies, and what a test says of them; nothing if it cannot be made."""
    centred, plain = (gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1).flatten() for gram in stage.grams)
    members = torch.nonzero(centred > USEFUL * plain).flatten()
    coordinates = stage.coordinates.reshape(-1, *stage.coordinates.shape[-2:])
    held_out = stage.held_out if bool(stage.held_out.any()) else None
    if not len(members):
        return []
    try:
        return [(members, test(coordinates[members], stage.grid.shape, held_out))]
    except InvalidValue:  # a value that is never kept, too few points
        return []


@stage_metric(
    "kernel_axis",
    Column("partial_factorization", "weight of single-factor terms in the stage's cosine kernel", "Eq. 33, 35"),
    Column("above_delta", "partial_factorization, scaled so that the delta kernel has 0 and additive ones 1", "A.5"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
)
def evaluate_kernel_axis(stage: Stage) -> dict[str, Tensor]:
    """Where a stage's kernel lies between memorisation and factorization; `schmidt_rank` is A.4's reading of it."""
    _, gram = stage.grams
    length = gram.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    inverse = (1 / length).nan_to_num(posinf=0.0)
    cosine = gram * inverse[..., :, None] * inverse[..., None, :]
    share = partial_factorization(cosine, stage.grid.shape)
    return {"partial_factorization": share, "above_delta": above_delta(share, stage.grid.shape)}


@stage_metric(
    "factor_recovery",
    Column(
        "factor_recovery", "R² of the best of a few decoders, linear or not, at points that it was not fitted on",
        "A.3", dims=("factor",),
    ),
    needs=(Need.FOUR_POINTS,),
    in_studies=False,
    thorough=True,
)  # fmt: skip
def evaluate_factor_recovery(stage: Stage) -> dict[str, Tensor]:
    """What of the factors a stage still has, however it mixes them."""
    return {"factor_recovery": stage.recovery.score()}


@stage_metric(
    "factor_recovery_held_out",
    Column(
        "factor_recovery_held", "the same, of points that are held out: what is lost there", "A.3", dims=("factor",)
    ),
    needs=(Need.FOUR_POINTS, Need.HOLDOUT),
    in_studies=False,
    thorough=True,
)
def evaluate_factor_recovery_held_out(stage: Stage) -> dict[str, Tensor]:
    """What of the factors a stage still has where combinations are new; decoders are fitted to other points."""
    return {"factor_recovery_held": stage.recovery.score(stage.held_out)}


@stage_metric(
    "reversibility",
    Column("jacobian_rank", "number of directions in which the stage moves, mean over points", "A.3"),
    Column(
        "local_loss", "share of points where a factor moves the stage in no direction of its own", "A.3", ("factor",)
    ),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_reversibility(stage: Stage) -> dict[str, Tensor]:
    """Where a stage loses factors, from its metric tensor."""
    return {
        "jacobian_rank": jacobian_rank(stage.metric).double().mean(dim=-1),
        "local_loss": local_loss(stage.metric),
    }


@stage_metric(
    "additivity",
    Column("additivity", "share of the stage's variance that is a sum of functions of one factor each", "§3.4"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
)
def evaluate_additivity(stage: Stage) -> dict[str, Tensor]:
    """How far a stage is a sum of a block per factor."""
    return {"additivity": additivity(stage.gram, stage.grid.shape)}


@stage_metric(
    "hole_dependence",
    Column("hole_dependence", "distance correlation between the factors' main effects over kept points", "§3.4"),
    needs=(Need.SEVERAL_FACTORS, Need.HOLDOUT),
    in_studies=False,
    thorough=True,
)
def evaluate_hole_dependence(stage: Stage) -> dict[str, Tensor]:
    """How far the hole makes a stage's factors depend on one another."""
    return {"hole_dependence": hole_dependence(stage.gram, stage.grid.shape, stage.held_out)}


@stage_metric(
    "hole",
    Column("hole_openness", "distance of held-out images to kept ones over that of the points, in steps", "§3.4"),
    Column("hole_misplaced", "share of held-out images that are beside those of kept points far away", "§3.4"),
    needs=(Need.HOLDOUT, Need.WHOLE_GRID),
    in_studies=False,
)
def evaluate_hole(stage: Stage) -> dict[str, Tensor]:
    """Whether the hole stays open along a network."""
    hole = hole_geometry(stage.gram, stage.grid.shape, stage.held_out)
    return {"hole_openness": hole.openness.mean(dim=-1), "hole_misplaced": hole.misplaced.double().mean(dim=-1)}
