"""Cross-terms of the metric tensor: whether two factors move a stage in the same direction (§3.4).

Conventions: the cross-term of two factors is |g_xy| / √(g_xx g_yy), the absolute cosine between the stage's two
tangents, in [0, 1]; for n factors the mean over all pairs. It is normalised by the geometric mean: by g_xx + g_yy it
would be 1 − F, the loss of factorization, which is small wherever one factor moves a stage much more than the other,
whatever the angle between them. A pair with a factor that does not move the stage has no cosine and is left out; so is
a point where no pair has one.

Known answers: g = I has 0, two factors that move a stage in the same direction 1, both whatever the units of a factor.
"""

from __future__ import annotations

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.metrics.registry import Column, Need, Stage, stage_metric


@checked
def cross_terms(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """|g_ab| / √(g_aa g_bb) at each point, averaged over pairs of factors.

    Parameters
    ----------
    metric
        Metric tensor at every point, of at least two factors.

    Returns
    -------
    Tensor
        One number per point, in double precision. A pair of which one factor leaves the stage unmoved is left out; NaN
        where all pairs are.

    Examples
    --------
    >>> cross_terms(torch.eye(2)).item(), cross_terms(torch.tensor([[9.0, 3.0], [3.0, 1.0]])).item()
    (0.0, 1.0)
    """
    factors = metric.shape[-1]
    if factors < 2:
        raise InvalidValue("factors", factors, "at least 2, for their cross-terms")
    metric = metric.double()
    lengths = metric.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    lengths = torch.where(lengths > 0, lengths, torch.nan)
    cosines = metric.abs() / lengths[..., :, None] / lengths[..., None, :]
    pairs = torch.stack([cosines[..., a, b] for a, b in combinations(range(factors), 2)])
    return pairs.clamp(max=1).nanmean(dim=0)  # beyond 1 by rounding alone


@stage_metric(
    "cross_term",
    Column("cross_term", "|g_xy| / √(g_xx g_yy), mean over points", "§3.4"),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
)
def evaluate_cross_term(stage: Stage) -> dict[str, Tensor]:
    """How far factors share directions, over the grid."""
    return {"cross_term": cross_terms(stage.metric).nanmean(dim=-1)}


@stage_metric(
    "cross_term_held_out",
    Column("cross_term_held", "|g_xy| / √(g_xx g_yy), mean over held-out points", "§3.4"),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS, Need.HOLDOUT),
)
def evaluate_cross_term_held_out(stage: Stage) -> dict[str, Tensor]:
    """How far factors share directions, over the held-out points."""
    return {"cross_term_held": cross_terms(stage.metric[..., stage.held_out, :, :]).nanmean(dim=-1)}
