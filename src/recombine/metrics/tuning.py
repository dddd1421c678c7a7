"""Tuning curves: what each neuron of a stage responds to (Appendix E.4; Fig. 4e–f, 15).

Conventions: a neuron's map is its activation over the factor grid; its tuning curve for a factor is the map's mean over
all other factors. Both indices come from the functional ANOVA of the map: its variance splits into a part for each
factor alone (main effects) and the rest (interactions).

- `stripe_index`: the largest main effect's share of the variance. A stripe, a function of one factor, scores 1.
- `localisation_index`: the interactions' share. A map that is a sum of functions of single factors scores 0; a bump
  that is small beside the grid scores near 1.

Neurons whose map does not vary have no indices (NaN) and are left out of stage means.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked, grid_shape
from recombine.errors import InvalidValue
from recombine.metrics.registry import Column, Stage, stage_metric

SILENT = 1e-12
"""Variance, relative to the stage's largest, below which a neuron counts as silent."""


@dataclass(frozen=True)
class Tuning:
    """Curves and indices of every neuron of a stage."""

    curves: tuple[Float[Tensor, "*member _ feature"], ...]
    """For each factor, the mean activation at each of its values."""
    stripe_index: Float[Tensor, "*member feature"]
    localisation_index: Float[Tensor, "*member feature"]


@checked
def neuron_tuning(activations: Float[Tensor, "*member point feature"], shape: tuple[int, ...]) -> Tuning:
    """Tuning of every neuron.

    Parameters
    ----------
    activations
        A stage's activations, points in the grid's order.
    shape
        Number of values of each factor.

    Returns
    -------
    Tuning
        Curves and indices.

    Examples
    --------
    >>> stripe = torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None]
    >>> tuned = neuron_tuning(stripe, (2, 2))
    >>> tuned.stripe_index.item(), tuned.localisation_index.item()
    (1.0, 0.0)
    """
    shape = grid_shape(shape, activations.shape[-2])
    if not activations.shape[-1]:
        raise InvalidValue("activations", activations, "at least one feature")
    lead, factors = activations.ndim - 2, len(shape)
    maps = activations.double().unflatten(lead, shape)
    axes = tuple(range(lead, lead + factors))
    center = maps.mean(dim=axes, keepdim=True)
    variance = (maps - center).square().mean(dim=axes)
    curves, effects = [], []
    for axis in axes:
        others = tuple(a for a in axes if a != axis)
        curve = maps.mean(dim=others) if others else maps
        curves.append(curve)
        effects.append((curve - curve.mean(dim=lead, keepdim=True)).square().mean(dim=lead))
    alive = variance > SILENT * variance.amax(dim=-1, keepdim=True)
    shares = torch.stack(effects) / torch.where(alive, variance, torch.nan)
    return Tuning(tuple(curves), shares.amax(dim=0), (1 - shares.sum(dim=0)).clamp(min=0))


@stage_metric(
    "tuning",
    Column(
        "stripe_index", "largest main effect's share of a neuron's variance, mean over neurons", "Appendix E.4",
        heading="stripe", panel="tuning", line="stripe index",
    ),
    Column(
        "localisation_index", "interactions' share of a neuron's variance, mean over neurons", "Appendix E.4",
        heading="localisation", panel="tuning", line="localisation index",
    ),
)  # fmt: skip
def evaluate_tuning(stage: Stage) -> dict[str, Tensor]:
    """Indices of a stage: means over the neurons that vary."""
    tuning = neuron_tuning(stage.features, stage.grid.shape)
    return {
        "stripe_index": tuning.stripe_index.nanmean(dim=-1),
        "localisation_index": tuning.localisation_index.nanmean(dim=-1),
    }
