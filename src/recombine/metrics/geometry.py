"""Local geometry of a stage: volume element, factorization and cross-terms, over the grid and in the held-out region
(Eq. 6–7, 39–42; §3.4; Fig. 2e–f, 3c, 4d).

All metrics are functions of the metric tensor g over the factors (`recombine.metrics.stages`). Factorization is either
averaged over points (as in the paper) or computed from the averaged g (as in the published scripts).

Spreads are standard deviations over points. Points are either *held* (held out) or *kept*. The spread of a region is
around its own mean; the *excess* is the held-out spread minus the kept spread. Deviations are from the kept mean,
except for their excess: it compares the RMS deviations of both regions from the mean of the whole grid, so it also
counts a shift in the level of the held-out region (with its sign lost).

The Laplacian of a map over the grid is the sum of its second differences f(i + 1) − 2 f(i) + f(i − 1) along every
factor, in grid steps. It is defined at inner points, which have both neighbours along every factor (possibly in another
region). The median ignores the few large values at the borders of a region or of the grid.

Known answers: g = I has volume 1, factorization 1 and cross-term 0; two factors that move a stage in the same direction
have volume 0, factorization ½ and cross-term 1, regardless of their units. A stage of constant volume has spread,
contrast and deviations 0; one whose volume is ten times as large in the held-out region has contrast 1, excess of the
spread 0 and, if a fraction p of the points is held out, excess of the deviation 1 − 2p. A constant or linear map has
roughness 0; Σ (i_a)² / 2 over n factors has roughness n; a checkerboard of ±c has 4 n c.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.metrics.registry import Column, Need, Stage, stage_metric

FLOOR = 1e-8
"""Smaller volume elements are raised to this value."""
FLOORED = f"of log10 volume, floored at {FLOOR:g}"


def volume_element(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """Return √det g (Eq. 6, 39) at each point: the factor by which the volume of a cell of factor space is scaled.

    >>> volume_element(torch.eye(2) * 3).item()
    3.0
    """
    return torch.linalg.det(metric.double()).clamp(min=0).sqrt()


def local_factorization(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """Return 1 − |g_ab| / (|g_aa| + |g_bb|) at each point (Eq. 7, 42), averaged over pairs of factors.

    Pairs in which neither factor moves the stage are left out; the result is NaN if all pairs are.

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
    """Return |g_ab| / √(g_aa g_bb) at each point, averaged over pairs of factors.

    Pairs with a factor that does not move the stage are left out; the result is NaN if all pairs are.

    >>> cross_terms(torch.eye(2)).item(), cross_terms(torch.tensor([[9.0, 3.0], [3.0, 1.0]])).item()
    (0.0, 1.0)
    """
    metric = metric.double()
    lengths = metric.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    lengths = torch.where(lengths > 0, lengths, torch.nan)
    cosines = metric.abs() / lengths[..., :, None] / lengths[..., None, :]
    pairs = torch.stack([cosines[..., a, b] for a, b in combinations(range(metric.shape[-1]), 2)])
    return pairs.clamp(max=1).nanmean(dim=0)  # values may exceed 1 by rounding


def log_volume(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """Return log10 of the volume element at each point, floored at `FLOOR`.

    >>> log_volume(torch.stack([torch.eye(2) * 100, torch.zeros(2, 2)])).tolist()
    [2.0, -8.0]
    """
    return volume_element(metric).clamp(min=FLOOR).log10()


def roughness(
    values: Float[Tensor, "*member point"], shape: tuple[int, ...], region: Bool[Tensor, " point"] | None = None
) -> Float[Tensor, "*member"]:
    """Return the median absolute Laplacian of a map over the inner points of a grid or region; NaN if there are none.

    >>> roughness(torch.tensor([0.0, 1.0, 4.0, 9.0, 17.0]), (5,)).item()
    2.0
    """
    inside = tuple(slice(1, -1) for _ in shape)
    grid = values.double().unflatten(-1, shape)
    differences = []
    for axis in range(len(shape)):
        across = (..., *(slice(None) if other == axis else own for other, own in enumerate(inside)))
        differences.append(grid[across].diff(n=2, dim=axis - len(shape)))
    laplacian = torch.stack(differences).sum(dim=0)
    counted = torch.ones(shape, dtype=torch.bool) if region is None else region.cpu().reshape(shape)
    inner = laplacian[..., counted[inside]].abs()
    if not inner.shape[-1]:
        return inner.new_full(inner.shape[:-1], torch.nan)
    # use numpy: `torch.median` takes the lower middle value, and `torch.quantile` limits the input size
    return torch.as_tensor(np.median(inner.cpu().numpy(), axis=-1), device=inner.device)


@stage_metric(
    "cross_term",
    Column("cross_term", "|g_xy| / √(g_xx g_yy), mean over points", "§3.4"),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
)
def evaluate_cross_term(stage: Stage) -> dict[str, Tensor]:
    return {"cross_term": cross_terms(stage.metric).nanmean(dim=-1)}


@stage_metric(
    "cross_term_held_out",
    Column("cross_term_held", "|g_xy| / √(g_xx g_yy), mean over held-out points", "§3.4"),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS, Need.HOLDOUT),
)
def evaluate_cross_term_held_out(stage: Stage) -> dict[str, Tensor]:
    return {"cross_term_held": cross_terms(stage.metric[..., stage.held_out, :, :]).nanmean(dim=-1)}


@stage_metric("features", Column("features", "numbers per grid point", heading="features", form="d"), in_studies=False)
def evaluate_features(stage: Stage) -> dict[str, Tensor]:
    return {"features": torch.full(stage.features.shape[:-2], stage.features.shape[-1])}


@stage_metric(
    "metric",
    Column("metric", "g = JᵀJ at each point", "Eq. 5, 38", dims=("point", "factor", "other_factor")),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_metric(stage: Stage) -> dict[str, Tensor]:
    return {"metric": stage.metric}


@stage_metric(
    "local_factorization",
    Column("factorization", "1 − |g_xy| / (|g_xx| + |g_yy|) at each point", "Eq. 7, 42", dims=("point",)),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
    in_studies=False,
)
def evaluate_local_factorization(stage: Stage) -> dict[str, Tensor]:
    return {"factorization": local_factorization(stage.metric)}


@stage_metric(
    "factorization",
    Column(
        "factorization_mean", "mean of factorization over points", "Eq. 7, 42",
        heading="factorization", panel="factorization", line="mean over points", study="factorization",
    ),
    Column(
        "factorization_of_means", "factorization of the mean |g|, as in the published scripts", "Eq. 7",
        panel="factorization", line="of means",
    ),
    needs=(Need.METRIC, Need.SEVERAL_FACTORS),
)  # fmt: skip
def evaluate_factorization(stage: Stage) -> dict[str, Tensor]:
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
    factorization = local_factorization(stage.metric)
    return {
        "factorization_held": factorization[..., stage.held_out].nanmean(dim=-1),
        "factorization_kept": factorization[..., ~stage.held_out].nanmean(dim=-1),
    }


@stage_metric(
    "factorization_differences",
    Column("factorization_differences", "factorization_mean from finite differences, even if g is exact", "Eq. 7"),
    needs=(Need.DIFFERENCES, Need.SEVERAL_FACTORS),
)
def evaluate_factorization_differences(stage: Stage) -> dict[str, Tensor]:
    return {"factorization_differences": local_factorization(stage.differences).nanmean(dim=-1)}


@stage_metric(
    "volume",
    Column("volume", "√det g at each point", "Eq. 6, 39", dims=("point",)),
    Column("log_volume_mean", "mean of log10 volume over points where it is not 0", heading="log10 volume"),
    Column("log_volume_std", "std of log10 volume over points where it is not 0", heading="std of log10 volume"),
    needs=(Need.METRIC,),
    in_studies=False,
)
def evaluate_volume(stage: Stage) -> dict[str, Tensor]:
    volume = volume_element(stage.metric)
    logarithm = torch.where(volume > 0, volume, torch.nan).log10()
    mean = logarithm.nanmean(dim=-1)
    variance = (logarithm - mean[..., None]).square().nanmean(dim=-1)
    return {"volume": volume, "log_volume_mean": mean, "log_volume_std": variance.sqrt()}


@stage_metric(
    "volume_spread_differences",
    Column(
        "log_volume_spread_differences", f"standard deviation {FLOORED}, from finite differences", "Eq. 6",
        study="spread_differences",
    ),
    needs=(Need.DIFFERENCES,),
)  # fmt: skip
def evaluate_volume_spread_differences(stage: Stage) -> dict[str, Tensor]:
    return {"log_volume_spread_differences": log_volume(stage.differences).std(dim=-1, correction=0)}


@stage_metric(
    "volume_spread",
    Column("log_volume", f"log10 volume at each point, floored at {FLOOR:g}", "Eq. 6, 39", dims=("point",)),
    Column("log_volume_spread", f"standard deviation {FLOORED}", "Fig. 2e–f", study="spread"),
    needs=(Need.METRIC,),
)
def evaluate_volume_spread(stage: Stage) -> dict[str, Tensor]:
    volume = log_volume(stage.metric)
    return {"log_volume": volume, "log_volume_spread": volume.std(dim=-1, correction=0)}


@stage_metric(
    "volume_kept",
    Column("log_volume_spread_kept", f"standard deviation {FLOORED}, kept points", study="spread_kept"),
    Column(
        "log_volume_deviation_kept", f"RMS deviation {FLOORED}, of kept points from their mean", study="deviation_kept"
    ),
    needs=(Need.METRIC,),
)  # fmt: skip
def evaluate_volume_kept(stage: Stage) -> dict[str, Tensor]:
    # the RMS deviation of the kept points from their own mean is their standard deviation
    spread = log_volume(stage.metric)[..., ~stage.held_out].std(dim=-1, correction=0)
    return {"log_volume_spread_kept": spread, "log_volume_deviation_kept": spread}


@stage_metric(
    "volume_held_out",
    Column("log_volume_spread_held", f"standard deviation {FLOORED}, held-out points", study="spread_held"),
    Column(
        "log_volume_spread_excess", f"standard deviation {FLOORED}, of held-out points minus that of kept points",
        "Fig. 2e–f", study="spread_excess",
    ),
    Column("log_volume_contrast", f"mean {FLOORED}, held-out minus kept points", study="contrast"),
    Column(
        "log_volume_deviation_held", f"RMS deviation {FLOORED}, of held-out points from the mean of kept points",
        study="deviation_held",
    ),
    Column(
        "log_volume_deviation_excess",
        f"RMS deviation {FLOORED}, from the whole grid's mean, held-out minus kept points",
        "Fig. 2e–f", study="deviation_excess",
    ),
    needs=(Need.METRIC, Need.HOLDOUT),
    version=3,
)  # fmt: skip
def evaluate_volume_held_out(stage: Stage) -> dict[str, Tensor]:
    volume = log_volume(stage.metric)
    held, kept = volume[..., stage.held_out], volume[..., ~stage.held_out]
    spread, mean = held.std(dim=-1, correction=0), kept.mean(dim=-1)
    level = volume.mean(dim=-1, keepdim=True)
    deviations = [(part - level).square().mean(dim=-1).sqrt() for part in (held, kept)]
    return {
        "log_volume_spread_held": spread,
        "log_volume_spread_excess": spread - kept.std(dim=-1, correction=0),
        "log_volume_contrast": held.mean(dim=-1) - mean,
        "log_volume_deviation_held": (held - mean[..., None]).square().mean(dim=-1).sqrt(),
        "log_volume_deviation_excess": deviations[0] - deviations[1],
    }


@stage_metric(
    "roughness",
    Column("log_volume_roughness", f"median absolute Laplacian {FLOORED}", "Fig. 3c", study="roughness"),
    needs=(Need.METRIC, Need.WHOLE_GRID),
)
def evaluate_roughness(stage: Stage) -> dict[str, Tensor]:
    return {"log_volume_roughness": roughness(log_volume(stage.metric), stage.grid.shape)}


@stage_metric(
    "roughness_held_out",
    Column(
        "log_volume_roughness_held", f"median absolute Laplacian {FLOORED}, held-out points", "Fig. 4d",
        study="roughness_held",
    ),
    Column(
        "log_volume_roughness_kept", f"median absolute Laplacian {FLOORED}, kept points", "Fig. 4d",
        study="roughness_kept",
    ),
    needs=(Need.METRIC, Need.HOLDOUT, Need.WHOLE_GRID),
)  # fmt: skip
def evaluate_roughness_held_out(stage: Stage) -> dict[str, Tensor]:
    volume, shape = log_volume(stage.metric), stage.grid.shape
    return {
        "log_volume_roughness_held": roughness(volume, shape, stage.held_out),
        "log_volume_roughness_kept": roughness(volume, shape, ~stage.held_out),
    }
