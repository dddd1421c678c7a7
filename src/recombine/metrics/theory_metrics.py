"""Stage metrics from the paper's theory (Appendix A, §3.4), based on the functions in `recombine.theory`.

The factorization tests (Eq. 23–28) are fitted to kept points and scored at held-out ones; without a hold-out, a random
fifth of the points is left out. They are NaN for a constant stage, or if no held-out point can be predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

PERMUTATIONS = 19
"""Number of permutations in the linear test, just enough for p = 0.05."""


@stage_metric(
    "linear_factorization",
    Column(
        "linear_factorization", "R² at held-out points of coordinates that are each predicted from one factor, "
        "after the best linear map", "Eq. 24",
    ),
    Column("linear_factorization_p", "p-value of the linear test, by permuting combinations (at least 0.05)", "Eq. 24"),
    needs=(Need.SEVERAL_FACTORS,),
    thorough=True,
)  # fmt: skip
def evaluate_linear_factorization(stage: Stage) -> dict[str, Tensor]:
    return _tested(stage, "linear_factorization", partial(linear_factorization, permutations=PERMUTATIONS))


@stage_metric(
    "nonlinear_factorization",
    Column(
        "nonlinear_factorization", "the same R² after an invertible flow, or after inverting the flow if that is lower",
        "Eq. 25–27",
    ),
    Column("nonlinear_factorization_p", "p-value of the nonlinear test; NaN if the score is below 0.9", "Eq. 25–27"),
    needs=(Need.SEVERAL_FACTORS,),
    thorough=True,
)  # fmt: skip
def evaluate_nonlinear_factorization(stage: Stage) -> dict[str, Tensor]:
    return _tested(stage, "nonlinear_factorization", nonlinear_factorization)


@stage_metric(
    "partial_grouping",
    Column(
        "grouping", "index of each factor's group, in the grouping that predicts best", "Eq. 28",
        dims=("factor",), labels=True,
    ),
    needs=(Need.THREE_FACTORS,),
    thorough=True,
)  # fmt: skip
def evaluate_partial_grouping(stage: Stage) -> dict[str, Tensor]:
    # for example, 0, 0, 1 stands for {x, y}, {z}
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
        "unit_selectivity", "fraction of a unit's variance that its best factor explains alone, mean over units "
        "(structural modularity)", "A.2",
    ),
    needs=(Need.SEVERAL_FACTORS,),
    thorough=True,
)  # fmt: skip
def evaluate_unit_selectivity(stage: Stage) -> dict[str, Tensor]:
    found = unit_selectivity(stage.features, stage.grid.shape)
    varying = (found.factor != NONE).sum(dim=-1)
    return {"unit_selectivity": found.share.amax(dim=-1).sum(dim=-1) / torch.where(varying > 0, varying, torch.nan)}


def _tested(stage: Stage, name: str, test: Callable[..., Factorization]) -> dict[str, Tensor]:
    """Return the score and p-value of a factorization test for each member."""
    score = stage.gram.new_full(stage.gram.shape[:-2], torch.nan)
    p_value = score.clone()
    for members, result in _over_varying(stage, test):
        score.view(-1)[members] = torch.minimum(result.score, result.recovered).to(score)
        p_value.view(-1)[members] = result.p_value.to(score)
    return {name: score, f"{name}_p": p_value}


def _over_varying(stage: Stage, test: Callable[..., Any]) -> list[tuple[Tensor, Any]]:
    """Return the indices of members whose stage varies, with test results for them; empty if no test is possible."""
    centred, plain = (gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1).flatten() for gram in stage.grams)
    members = torch.nonzero(centred > USEFUL * plain).flatten()
    coordinates = stage.coordinates.reshape(-1, *stage.coordinates.shape[-2:])
    held_out = stage.held_out if bool(stage.held_out.any()) else None
    if not len(members):
        return []
    try:
        return [(members, test(coordinates[members], stage.grid.shape, held_out))]
    except InvalidValue:  # all points with some value are held out, or there are too few points
        return []


@stage_metric(
    "kernel_axis",
    Column("partial_factorization", "weight fraction of single-factor terms in the cosine kernel", "Eq. 33, 35"),
    Column("above_delta", "partial_factorization, scaled to 0 for the delta kernel and 1 for additive ones", "A.5"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
)
def evaluate_kernel_axis(stage: Stage) -> dict[str, Tensor]:
    # factorization in the sense of A.5; `schmidt_rank` is factorization in the sense of A.4
    _, gram = stage.grams
    length = gram.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    inverse = (1 / length).nan_to_num(posinf=0.0)
    cosine = gram * inverse[..., :, None] * inverse[..., None, :]
    share = partial_factorization(cosine, stage.grid.shape)
    return {"partial_factorization": share, "above_delta": above_delta(share, stage.grid.shape)}


@stage_metric(
    "factor_recovery",
    Column(
        "factor_recovery", "cross-validated R² of the best of several linear and nonlinear decoders",
        "A.3", dims=("factor",),
    ),
    needs=(Need.FOUR_POINTS,),
    thorough=True,
)  # fmt: skip
def evaluate_factor_recovery(stage: Stage) -> dict[str, Tensor]:
    return {"factor_recovery": stage.recovery.score()}


@stage_metric(
    "factor_recovery_held_out",
    Column("factor_recovery_held", "factor_recovery at held-out points", "A.3", dims=("factor",)),
    needs=(Need.FOUR_POINTS, Need.HOLDOUT),
    thorough=True,
)
def evaluate_factor_recovery_held_out(stage: Stage) -> dict[str, Tensor]:
    return {"factor_recovery_held": stage.recovery.score(stage.held_out)}


@stage_metric(
    "reversibility",
    Column("jacobian_rank", "number of directions in which the factors move the stage, mean over points", "A.3"),
    Column(
        "local_loss", "fraction of points where a factor adds no independent direction to the stage", "A.3", ("factor",)
    ),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_reversibility(stage: Stage) -> dict[str, Tensor]:
    return {
        "jacobian_rank": jacobian_rank(stage.metric).double().mean(dim=-1),
        "local_loss": local_loss(stage.metric),
    }


@stage_metric(
    "additivity",
    Column("additivity", "fraction of the stage's variance explained by a sum of single-factor functions", "§3.4"),
    needs=(Need.SEVERAL_FACTORS,),
    in_studies=False,
)
def evaluate_additivity(stage: Stage) -> dict[str, Tensor]:
    return {"additivity": additivity(stage.gram, stage.grid.shape)}


@stage_metric(
    "hole_dependence",
    Column("hole_dependence", "distance correlation between the factors' main effects over kept points", "§3.4"),
    needs=(Need.SEVERAL_FACTORS, Need.HOLDOUT),
    thorough=True,
)
def evaluate_hole_dependence(stage: Stage) -> dict[str, Tensor]:
    return {"hole_dependence": hole_dependence(stage.gram, stage.grid.shape, stage.held_out)}


@stage_metric(
    "hole",
    Column("hole_openness", "distance from held-out to kept activations, relative to that in factor space", "§3.4"),
    Column("hole_misplaced", "fraction of held-out activations close to those of distant kept points", "§3.4"),
    needs=(Need.HOLDOUT, Need.WHOLE_GRID),
    in_studies=False,
)
def evaluate_hole(stage: Stage) -> dict[str, Tensor]:
    hole = hole_geometry(stage.gram, stage.grid.shape, stage.held_out)
    return {"hole_openness": hole.openness.mean(dim=-1), "hole_misplaced": hole.misplaced.double().mean(dim=-1)}
