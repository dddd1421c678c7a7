"""How much a stage's steps differ in the hold-out from those of the same factor values outside it.

A *step* is the distance between a stage's activations at two grid points that are neighbours along one factor. Its
*reference* is the median length of the same step (the same two values of that factor) at those values of the other
factors for which both ends are kept. A stage that treats factors independently has the same length for every value of
the others, so its steps equal their references; where points are superposed, blank or misplaced, steps are shorter or
longer. A step's *change* is |log10(length / reference)|, at most `MOST`.

`step_change` is the mean change inside the hold-out (both ends held out) or across its border (one end), whichever is
larger, less the mean change of kept steps. Steps without a reference do not count; along a factor with categories, a
step leads to the next category.

Known answers: 0 for a stage that is a sum or a product of single-factor codes, 1 for a stage that is constant in the
hold-out, log10 2 for a sum of factor codes scaled by 2 in a hold-out without a border.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.metrics.registry import Column, Need, Stage, stage_metric

MOST = 1.0
"""Largest change of a step, a factor of 10; without a limit, a single step of length 0 would decide the mean."""
AT_ONCE = 256
"""Number of features in double precision at once, few enough for a cache; wide stages would need gigabytes."""
ROUNDING = 1e-6
"""Steps below this fraction of the RMS distance from the mean activation count as 0."""


def step_change(
    features: Float[Tensor, "*member point feature"], shape: tuple[int, ...], held_out: Bool[Tensor, " point"]
) -> Float[Tensor, "*member"]:
    """Return how much steps in the hold-out differ from the same steps outside it, in decades; NaN without reference.

    >>> codes = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0))
    >>> held_out = ((codes - 2).abs() <= 1).all(dim=1)
    >>> step_change(codes, (5, 5), held_out).item()
    0.0
    >>> step_change(torch.where(held_out[:, None], 2.0, codes), (5, 5), held_out).item()
    1.0
    """
    lead, mask = features.ndim - 2, held_out.to(features.device).reshape(shape)
    spread, squares = torch.zeros(()), [torch.zeros(())] * len(shape)
    for part in features.split(AT_ONCE, dim=-1):
        centred = part.double() - part.double().mean(dim=-2, keepdim=True)
        spread = spread.to(centred) + centred.square().sum(dim=-1).mean(dim=-1)
        grid = centred.unflatten(-2, shape)
        squares = [own.to(grid) + grid.diff(dim=lead + k).square().sum(dim=-1) for k, own in enumerate(squares)]
    floor = ROUNDING * spread.sqrt()[..., None, None]
    changes: dict[int, list[Tensor]] = {0: [], 1: [], 2: []}
    for factor in range(len(shape)):
        lengths = squares[factor].sqrt().movedim(lead + factor, lead)
        lengths = lengths.reshape(*lengths.shape[: lead + 1], -1)  # (…, step, values of the other factors)
        ends = mask.movedim(factor, 0).reshape(shape[factor], -1).int()
        held_ends = ends[1:] + ends[:-1]  # 0: a kept step, 1: across the border, 2: inside
        reference = torch.where(held_ends == 0, lengths, torch.nan).nanmedian(dim=-1, keepdim=True).values
        change = (lengths.clamp(min=floor) / reference.clamp(min=floor)).log10().abs().clamp(max=MOST)
        for count, own in changes.items():
            own.append(change[..., held_ends == count])
    kept, across, inside = (torch.cat(own, dim=-1).nanmean(dim=-1) for own in changes.values())
    return torch.fmax(across, inside) - kept


@stage_metric(
    "step_change",
    Column(
        "step_change", "how much steps in the hold-out differ from the same steps outside it, in decades", "§3.4",
        heading="step change",
    ),
    needs=(Need.HOLDOUT,),
    in_studies=False,
)  # fmt: skip
def evaluate_step_change(stage: Stage) -> dict[str, Tensor]:
    return {"step_change": step_change(stage.features, stage.grid.shape, stage.held_out)}
