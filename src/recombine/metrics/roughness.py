"""How rough the volume element is from one grid point to the next (Fig. 3c, 4d).

Conventions: the Laplacian of a map over a factor grid is the sum of its second differences along every factor,
f(i + 1) − 2 f(i) + f(i − 1), in steps of the grid whatever the factors' spacing. It is there at inner points, which
have both neighbours along every factor; a factor with fewer than three values leaves none. `roughness` is the median of
its absolute value over inner points: of all, or of those in a region. The point in the middle decides which region that
is; its neighbours may lie in the other. Of an even number of points the median is the mean of the middle two.

It looks at neighbours, while the spread about the mean of a region (`recombine.metrics.volume_statistics`) looks at the
whole region: a steady slope has spread and no roughness. The median leaves out the few large values at a region's
border. Where the metric is one of finite differences, the volume at the grid's own border is of one-sided ones, and
points next to it see the change; they are few too.

Known answers: a constant or linear map has roughness 0; Σ (i_a)² / 2 over n factors has n; a chessboard of n factors
with values ±c has 4 n c.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from recombine.checks import checked, grid_shape
from recombine.metrics.registry import Column, Need, Stage, stage_metric
from recombine.metrics.volume_statistics import FLOORED, log_volume


@checked
def laplacian(values: Float[Tensor, "*member point"], shape: tuple[int, ...]) -> Float[Tensor, "*member point"]:
    """Second differences of a map, summed over factors.

    Parameters
    ----------
    values
        A number at every grid point, in the grid's order.
    shape
        Number of values of each factor.

    Returns
    -------
    Tensor
        One number per point, in double precision; NaN on the border of the grid.

    Examples
    --------
    >>> laplacian(torch.tensor([0.0, 1.0, 4.0, 9.0]), (4,)).tolist()
    [nan, 2.0, 2.0, nan]
    """
    shape = grid_shape(shape, values.shape[-1])
    if min(shape) < 3:
        return torch.full_like(values, torch.nan, dtype=torch.float64)
    lead = values.ndim - 1
    grid = values.double().unflatten(-1, shape)
    inner = torch.stack([_second_difference(grid, lead, axis, shape) for axis in range(len(shape))]).sum(dim=0)
    return functional.pad(inner, (1, 1) * len(shape), value=math.nan).flatten(lead)


def _second_difference(grid: Tensor, lead: int, axis: int, shape: tuple[int, ...]) -> Tensor:
    """Along one factor, at inner points."""
    for other in range(len(shape)):
        if other != axis:
            grid = grid.narrow(lead + other, 1, shape[other] - 2)
    return grid.diff(n=2, dim=lead + axis)


@checked
def roughness(
    values: Float[Tensor, "*member point"], shape: tuple[int, ...], region: Bool[Tensor, " point"] | None = None
) -> Float[Tensor, "*member"]:
    """Median absolute Laplacian of a map over inner points.

    Parameters
    ----------
    values
        A number at every grid point, in the grid's order.
    shape
        Number of values of each factor.
    region
        True at the points that count; all by default.

    Returns
    -------
    Tensor
        One number per member; NaN where no inner point counts.

    Examples
    --------
    >>> roughness(torch.tensor([0.0, 1.0, 4.0, 9.0, 17.0]), (5,)).item()
    2.0
    """
    shape = grid_shape(shape, values.shape[-1])
    counted = _inner(shape) if region is None else _inner(shape) & region.cpu()
    return _median(laplacian(values, shape)[..., counted].abs())


def _inner(shape: tuple[int, ...]) -> Bool[Tensor, " point"]:
    """Which points have both neighbours along every factor; on the host."""
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[tuple(slice(1, -1) for _ in shape)] = True
    return mask.flatten()


def _median(values: Tensor) -> Tensor:
    """Over the last axis; torch's own takes the lower of the middle two, and its quantile limits how many there are."""
    count = values.shape[-1]
    if not count:
        return values.new_full(values.shape[:-1], torch.nan)
    ordered = values.sort(dim=-1).values
    middle = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return torch.where(values.isnan().any(dim=-1), torch.nan, middle)


@stage_metric(
    "roughness",
    Column("log_volume_roughness", f"median absolute Laplacian {FLOORED}", "Fig. 3c", study="roughness"),
    needs=(Need.METRIC, Need.WHOLE_GRID),
)
def evaluate_roughness(stage: Stage) -> dict[str, Tensor]:
    """How rough the volume is over the grid."""
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
    """How rough the volume is over the held-out points, and over the kept ones."""
    volume, shape = log_volume(stage.metric), stage.grid.shape
    return {
        "log_volume_roughness_held": roughness(volume, shape, stage.held_out),
        "log_volume_roughness_kept": roughness(volume, shape, ~stage.held_out),
    }
