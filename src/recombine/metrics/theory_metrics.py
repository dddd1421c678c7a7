"""Stage metrics of the paper's theory (Appendix A, §3.4).

A kernel's place between memorisation and factorization, what is lost of the factors, and what becomes of their
distribution and its hole. Each is defined where its function is: `kernel_axis`, and `reversibility`, `transport` and
`holes` of `recombine.theory`. They share one Gram matrix per stage (`Stage.grams`).
"""

from __future__ import annotations

from torch import Tensor

from recombine.metrics.factorization import partial_factorization
from recombine.metrics.kernel_axis import above_delta
from recombine.metrics.registry import Column, Need, Stage, stage_metric
from recombine.theory.reversibility import jacobian_rank, local_loss
from recombine.theory.transport import additivity, hole_dependence, hole_geometry


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
