"""Local geometry of a stage: volume element, factorization and cross-terms (Eq. 6–7, 39–42; §3.4).

Conventions
-----------
All numbers come from a metric tensor g over the factors, see `recombine.metrics.metric_tensors`.

- `volume_element` is √det g.
- `local_factorization` is 1 − |g_xy| / (|g_xx| + |g_yy|), in [½, 1]; for n factors the mean over all pairs. It is
  averaged over points (the paper) or taken of the averaged g (the published scripts).
- `cross_terms` is |g_xy| / √(g_xx g_yy), the absolute cosine between the stage's two tangents, in [0, 1]; for n factors
  the mean over all pairs. It is normalised by the geometric mean: by g_xx + g_yy it would be 1 − F, the loss of
  factorization, which is small wherever one factor moves a stage much more than the other, whatever the angle between
  them. A pair with a factor that does not move the stage has no cosine and is left out; so is a point where no pair has
  one.

Known answers: g = I has volume 1, factorization 1 and cross-term 0; two factors that move a stage in the same direction
have volume 0, factorization ½ and cross-term 1, the latter whatever the units of a factor.
"""

from __future__ import annotations

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.metrics.registry import Column, Need, Stage, stage_metric


def volume_element(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """√det g (Eq. 6, 39) at each point: how much a unit cell of factor space is enlarged.

    >>> volume_element(torch.eye(2) * 3).item()
    3.0
    """
    return torch.linalg.det(metric.double()).clamp(min=0).sqrt()


def local_factorization(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """1 − |g_ab| / (|g_aa| + |g_bb|) at each point (Eq. 7, 42), averaged over pairs of factors.

    A pair of factors that both leave the stage unmoved is left out; NaN where all pairs are.

    >>> local_factorization(torch.eye(2)).item(), local_factorization(torch.ones(2, 2)).item()
    (1.0, 0.5)
    """
    metric = metric.double().abs()
    pairs = [
        1 - metric[..., a, b] / (metric[..., a, a] + metric[..., b, b])
        for a, b in combinations(range(metric.shape[-1]), 2)
    ]
    return torch.stack(pairs).nanmean(dim=0)


def cross_terms(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """|g_ab| / √(g_aa g_bb) at each point, averaged over pairs of factors.

    A pair of which one factor leaves the stage unmoved is left out; NaN where all pairs are.

    >>> cross_terms(torch.eye(2)).item(), cross_terms(torch.tensor([[9.0, 3.0], [3.0, 1.0]])).item()
    (0.0, 1.0)
    """
    metric = metric.double()
    lengths = metric.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    lengths = torch.where(lengths > 0, lengths, torch.nan)
    cosines = metric.abs() / lengths[..., :, None] / lengths[..., None, :]
    pairs = torch.stack([cosines[..., a, b] for a, b in combinations(range(metric.shape[-1]), 2)])
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


@stage_metric("features", Column("features", "numbers per grid point", heading="features", form="d"), in_studies=False)
def evaluate_features(stage: Stage) -> dict[str, Tensor]:
    """How many numbers a stage has at each point."""
    return {"features": torch.full(stage.features.shape[:-2], stage.features.shape[-1])}


@stage_metric(
    "metric",
    Column("metric", "g = JᵀJ at each point", "Eq. 5, 38", dims=("point", "factor", "other_factor")),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_metric(stage: Stage) -> dict[str, Tensor]:
    """The metric tensor itself."""
    return {"metric": stage.metric}


@stage_metric(
    "local_factorization",
    Column("factorization", "1 − |g_xy| / (|g_xx| + |g_yy|) at each point", "Eq. 7, 42", dims=("point",)),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
    in_studies=False,
)
def evaluate_local_factorization(stage: Stage) -> dict[str, Tensor]:
    """Factorization at every point."""
    return {"factorization": local_factorization(stage.metric)}


@stage_metric(
    "factorization",
    Column(
        "factorization_mean", "mean of factorization over points", "Eq. 7, 42",
        heading="factorization", panel="factorization", line="mean over points", study="factorization",
    ),
    Column(
        "factorization_of_means", "factorization of the mean |g|, as the published scripts do", "Eq. 7",
        panel="factorization", line="of means",
    ),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
)  # fmt: skip
def evaluate_factorization(stage: Stage) -> dict[str, Tensor]:
    """Factorization of a stage, averaged in two ways."""
    return {
        "factorization_mean": local_factorization(stage.metric).nanmean(dim=-1),
        "factorization_of_means": local_factorization(stage.metric.double().abs().mean(dim=-3)),
    }


@stage_metric(
    "factorization_held_out",
    Column("factorization_held", "mean of factorization over held-out points", "Eq. 7, 42"),
    Column("factorization_kept", "mean of factorization over kept points", "Eq. 7, 42"),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS, Need.HOLDOUT),
)
def evaluate_factorization_held_out(stage: Stage) -> dict[str, Tensor]:
    """Factorization of a stage in the held-out region, and in the kept one."""
    factorization = local_factorization(stage.metric)
    return {
        "factorization_held": factorization[..., stage.held_out].nanmean(dim=-1),
        "factorization_kept": factorization[..., ~stage.held_out].nanmean(dim=-1),
    }


@stage_metric(
    "factorization_differences",
    Column("factorization_differences", "factorization_mean by finite differences, however g is computed", "Eq. 7"),
    needs=(Need.DIFFERENCES, Need.SEVERAL_FACTORS),
)
def evaluate_factorization_differences(stage: Stage) -> dict[str, Tensor]:
    """Factorization by differences between grid points."""
    return {"factorization_differences": local_factorization(stage.differences).nanmean(dim=-1)}


@stage_metric(
    "volume",
    Column("volume", "√det g at each point", "Eq. 6, 39", dims=("point",)),
    Column("log_volume_mean", "mean of log10 volume over points where it is not 0", heading="log10 volume"),
    Column("log_volume_std", "standard deviation of log10 volume over points where it is not 0", heading="its spread"),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_volume(stage: Stage) -> dict[str, Tensor]:
    """Volume at every point, and mean and spread of its logarithm at whatever scale a stage has."""
    volume = volume_element(stage.metric)
    logarithm = torch.where(volume > 0, volume, torch.nan).log10()
    mean = logarithm.nanmean(dim=-1)
    variance = (logarithm - mean[..., None]).square().nanmean(dim=-1)
    return {"volume": volume, "log_volume_mean": mean, "log_volume_std": variance.sqrt()}
