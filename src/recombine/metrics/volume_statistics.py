"""How the volume element varies over a factor grid, and whether the held-out region differs (Fig. 2e–f).

Conventions: `log_volume` is log10 of the volume element, floored at `FLOOR` so that flat places count as flat, not as
infinitely so. Spreads are standard deviations over points. Regions: *held* (held out) and *kept*. A region's spread is
about its own mean, so that a region of larger or smaller volume as a whole has no more spread for it; the *excess* is
the held-out region's spread less the kept one's. Deviations are from the mean of the kept points.

Known answers: a stage of constant volume has spread, contrast and deviations 0; one whose volume is ten times as large
in the held-out region as elsewhere has contrast 1 and excess 0.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked
from recombine.metrics.geometry import volume_element
from recombine.metrics.registry import Column, Need, Stage, stage_metric

FLOOR = 1e-8
"""Volume elements below this count as this."""


@checked
def log_volume(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """log10 of the volume element, floored.

    Parameters
    ----------
    metric
        Metric tensor at every point.

    Returns
    -------
    Tensor
        One number per point, at least log10 of `FLOOR`.

    Examples
    --------
    >>> import torch
    >>> log_volume(torch.stack([torch.eye(2) * 100, torch.zeros(2, 2)])).tolist()
    [2.0, -8.0]
    """
    return volume_element(metric).clamp(min=FLOOR).log10()


@checked
def held_out_statistics(
    volume: Float[Tensor, "*member point"], held_out: Bool[Tensor, " point"]
) -> dict[str, Float[Tensor, "*member"]]:
    """How log10 of the volume varies over the held-out points, and how they differ from the kept ones.

    Parameters
    ----------
    volume
        `log_volume` at every grid point.
    held_out
        True where a point is held out.

    Returns
    -------
    dict of Tensor
        One number per member: the standard deviation (`spread_held`), the same less that of the kept points
        (`spread_excess`), the mean minus that of the kept points (`contrast`), and the root mean square distance to the
        mean of the kept points (`deviation_held`).
    """
    held, kept = volume[..., held_out], volume[..., ~held_out]
    spread, mean = held.std(dim=-1, correction=0), kept.mean(dim=-1)
    return {
        "spread_held": spread,
        "spread_excess": spread - kept.std(dim=-1, correction=0),
        "contrast": held.mean(dim=-1) - mean,
        "deviation_held": (held - mean[..., None]).square().mean(dim=-1).sqrt(),
    }


FLOORED = f"of log10 volume, floored at {FLOOR:g}"
"""In descriptions of columns."""


@stage_metric(
    "volume_spread_differences",
    Column(
        "log_volume_spread_differences", f"standard deviation {FLOORED}, by finite differences", "Eq. 6",
        study="spread_differences",
    ),
    needs=(Need.DIFFERENCES,),
)  # fmt: skip
def evaluate_volume_spread_differences(stage: Stage) -> dict[str, Tensor]:
    """How the volume by differences varies over the grid."""
    return {"log_volume_spread_differences": log_volume(stage.differences).std(dim=-1, correction=0)}


@stage_metric(
    "volume_spread",
    Column("log_volume", f"log10 volume at each point, floored at {FLOOR:g}", "Eq. 6, 39", dims=("point",)),
    Column("log_volume_spread", f"standard deviation {FLOORED}", "Fig. 2e–f", study="spread"),
    needs=(Need.METRIC,),
)
def evaluate_volume_spread(stage: Stage) -> dict[str, Tensor]:
    """log10 of the volume over the grid, and how it varies."""
    volume = log_volume(stage.metric)
    return {"log_volume": volume, "log_volume_spread": volume.std(dim=-1, correction=0)}


@stage_metric(
    "volume_kept",
    Column("log_volume_spread_kept", f"standard deviation {FLOORED}, kept points", study="spread_kept"),
    Column(
        "log_volume_deviation_kept", f"RMS distance {FLOORED}, of kept points to their mean", study="deviation_kept"
    ),
    needs=(Need.METRIC,),
)  # fmt: skip
def evaluate_volume_kept(stage: Stage) -> dict[str, Tensor]:
    """How the volume varies over the kept points; its distance to their mean is that spread again."""
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
        "log_volume_deviation_held", f"RMS distance {FLOORED}, of held-out points to the mean of kept points",
        study="deviation_held",
    ),
    needs=(Need.METRIC, Need.HOLDOUT),
    version=2,
)  # fmt: skip
def evaluate_volume_held_out(stage: Stage) -> dict[str, Tensor]:
    """How the volume varies over the held-out points, and how they differ from the kept ones."""
    statistics = held_out_statistics(log_volume(stage.metric), stage.held_out)
    return {f"log_volume_{name}": value for name, value in statistics.items()}
