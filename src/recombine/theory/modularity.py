"""Structural modularity: separate units and separate connections for separate factors, seen without any transform.

Conventions
-----------
The paper's functional modularity is factorization up to an invertible map (`factorization`). Structural modularity is
stricter: each unit serves one factor, and weights connect only units of the same factor. `unit_selectivity` is the
share of each unit's variance over a factor grid that each factor explains alone (its main effect); for two factors what
is missing to 1 is their interaction. `structural_modularity` is the share of the squared weights that lies inside
blocks of one factor, less the share Σ_f r_f c_f that is expected where weights are dealt at random to units that keep
their total (r_f and c_f: shares of squared weight at the outputs and at the inputs of factor f), over the largest that
this difference can be, as in Newman's modularity.

Known answers: one-hot codes side by side have a selectivity of 1 for their own factor; a rotation of two such codes
has none, and is still factorized; block-diagonal weights have modularity 1, unrelated ones about 0, weights that only
cross blocks less than 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.checks import checked, finite, grid_shape
from recombine.errors import InvalidValue

NONE = -1
"""In the place of the factor of a unit that does not vary, or that belongs to none."""
CONSTANT = 1e-12
"""Variance over mean square below which a unit does not vary."""


@dataclass(frozen=True, eq=False)
class Selectivity:
    """What each unit responds to."""

    share: Float[Tensor, "*member feature factor"]
    """Of its variance, that each factor explains alone; 0 for a unit that does not vary."""
    factor: Int[Tensor, "*member feature"]
    """The one that explains most; −1 for a unit that does not vary."""


@checked
def unit_selectivity(features: Float[Tensor, "*member point feature"], shape: tuple[int, ...]) -> Selectivity:
    """How much of each unit's variance each factor explains alone.

    Parameters
    ----------
    features
        Activations over the grid's points, in its order.
    shape
        Number of values of each factor.

    Returns
    -------
    Selectivity
        Shares of variance, and the best factor of each unit.

    Examples
    --------
    >>> x, y = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    >>> own = unit_selectivity(torch.stack([x, x + y, 0 * x], dim=-1).flatten(0, 1), (4, 4))
    >>> own.share.tolist(), own.factor.tolist()
    ([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]], [0, 0, -1])
    """
    shape = grid_shape(shape, features.shape[-2])
    finite("features", features)
    values = features.double()
    centred = (values - values.mean(dim=-2, keepdim=True)).unflatten(-2, shape)
    lead, axes = features.ndim - 2, range(len(shape))
    variance = centred.square().mean(dim=tuple(lead + axis for axis in axes))
    varies = variance > CONSTANT * values.square().mean(dim=-2)
    alone = [
        centred.mean(dim=tuple(lead + axis for axis in axes if axis != own)).square().mean(dim=-2)
        if len(shape) > 1 else variance
        for own in axes
    ]  # fmt: skip
    share = torch.stack(alone, dim=-1) / torch.where(varies, variance, 1.0)[..., None] * varies[..., None]
    return Selectivity(share, torch.where(varies, share.argmax(dim=-1), NONE))


@checked
def structural_modularity(
    weight: Float[Tensor, "*member output input"], inputs: Int[Tensor, " input"], outputs: Int[Tensor, " output"]
) -> Float[Tensor, "*member"]:
    """How far weights connect units of the same factor only, beyond what chance would give.

    Parameters
    ----------
    weight
        From input units to output units.
    inputs
        Factor of each input unit; −1 for none.
    outputs
        Factor of each output unit; −1 for none.

    Returns
    -------
    Tensor
        One number per member: 1 for weights inside blocks alone, about 0 for unrelated ones.

    Examples
    --------
    >>> factors = torch.tensor([0, 0, 1, 1])
    >>> blocks = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
    >>> structural_modularity(torch.stack([blocks, torch.ones(4, 4), 1 - blocks]), factors, factors).tolist()
    [1.0, 0.0, -1.0]
    """
    finite("weight", weight)
    energy = weight.double().square()
    total = energy.sum(dim=(-2, -1))
    if not bool((total > 0).all()):
        raise InvalidValue("weight", weight, "weights of which some are not 0")
    same = (outputs[:, None] == inputs) & (inputs != NONE)
    inside = (energy * same).sum(dim=(-2, -1)) / total
    expected = torch.zeros_like(inside)
    for factor in set(inputs.tolist()) & set(outputs.tolist()) - {NONE}:
        at_outputs, at_inputs = energy[..., outputs == factor, :], energy[..., :, inputs == factor]
        expected += at_outputs.sum(dim=(-2, -1)) * at_inputs.sum(dim=(-2, -1)) / total.square()
    if not bool((expected < 1).all()):
        raise InvalidValue("inputs", inputs, "units of at least two factors that have weights")
    return (inside - expected) / (1 - expected)
