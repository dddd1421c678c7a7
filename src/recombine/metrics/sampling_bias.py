"""How far PF_Coeff from some of a grid's points is off that of all of them (Eq. 34): "if the sampling is sparse …".

A kernel that is known over the whole grid is sampled, at random or by a hold-out's mask, and estimated as if the rest
were not known (`sampled_kernels`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, grid_shape, number, whole_number
from recombine.errors import InvalidValue
from recombine.metrics.factorization import Weight, partial_factorization
from recombine.metrics.sampled_kernels import sampled_factorization, shows_every_value

DRAWS, MOST_DRAWS = 20, 10**4
ATTEMPTS = 100
"""Samples that are drawn for each one that shows every value."""


@dataclass(frozen=True)
class SamplingBias:
    """PF_Coeff of a whole kernel, and its estimates from samples of the points."""

    whole: Float[Tensor, "*member"]
    estimates: Float[Tensor, "*member draw"]

    @property
    def bias(self) -> Float[Tensor, "*member"]:
        """Mean estimate less the whole kernel's number."""
        return self.estimates.mean(dim=-1) - self.whole

    @property
    def spread(self) -> Float[Tensor, "*member"]:
        """Standard deviation of the estimates; 0 for a single one."""
        return self.estimates.std(dim=-1, correction=min(1, self.estimates.shape[-1] - 1))


@checked
def sampling_bias(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    kept: float | Bool[Tensor, " point"],
    *,
    order: int = 1,
    weight: Weight = "square",
    family: Collection[Any] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> SamplingBias:
    """By how much PF_Coeff from some of the points differs from that of all of them.

    Parameters
    ----------
    gram
        Gram matrix over all points of the grid, in its order.
    shape
        Number of values of each factor.
    kept
        A share of the points, for random samples that show every value; or a mask, which is a single sample.
    order, weight, family
        As for `partial_factorization`.
    draws
        Random samples.
    seed
        Of the samples.

    Returns
    -------
    SamplingBias
        The whole kernel's number, and every estimate.

    Examples
    --------
    >>> error = sampling_bias(torch.eye(36), (6, 6), 0.6, draws=5)
    >>> round(error.whole.item(), 6), round(abs(error.bias.item()), 6), round(error.spread.item(), 6)
    (0.285714, 0.0, 0.0)
    """
    shape = grid_shape(shape, gram.shape[-1])
    whole_number("draws", draws, at_most=MOST_DRAWS)
    whole_number("seed", seed, at_least=0)
    whole = partial_factorization(gram, shape, order, weight, family=family)
    if isinstance(kept, Tensor):
        masks = [kept.cpu()]
    else:
        number("kept", kept, above=0, at_most=1)
        generator = torch.Generator().manual_seed(seed)
        masks = [_drawn(kept, shape, generator) for _ in range(draws)]
    estimates = [
        sampled_factorization(gram[..., mask, :][..., mask], shape, mask, order, weight, family=family)
        for mask in masks
    ]
    return SamplingBias(whole, torch.stack(estimates, dim=-1))


def _drawn(share: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A random sample of the points that shows every value."""
    points = prod(shape)
    for _ in range(ATTEMPTS):
        mask = torch.zeros(points, dtype=torch.bool)
        mask[torch.randperm(points, generator=generator)[: max(1, round(share * points))]] = True
        try:
            shows_every_value(mask, shape)
        except InvalidValue:
            continue
        return mask
    raise InvalidValue("kept", share, "a share at which random samples show every value")
