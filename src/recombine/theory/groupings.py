"""Partial factorization: which factors act together, and apart from which others (Eq. 28).

Conventions
-----------
A grouping is a partition of the factors; within a group all combinations of values count as values of one factor, and
the grouping has the score of that test of factorization (`factorization`). Its value is the score less a penalty for
every merger, so that what is separate is not said to act together; all factors in one group have score 1 by definition,
since every coordinate depends on all of them. The best grouping is that of the largest value.

A held-out point counts where every group's combination was kept in some other point. A grouping in which no point is
left, or in which some group has no coordinate, has no value (−∞).

Known answers: codes of {x, y} and of {z}, of {x}, {y} and {z}, and of all three at once are found to be just that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import checked, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.block_tests import Activations, block_test
from recombine.theory.projections import SHARE
from recombine.theory.straightening import STEPS

PENALTY = 0.05
"""Of score, for every merger of two groups."""
MOST_FACTORS = 5
"""Partitions grow fast: 52 of five factors, 203 of six."""

Grouping = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Groupings:
    """All groupings of the factors, and the best of every member."""

    groupings: tuple[Grouping, ...]
    score: Float[Tensor, "*member grouping"]
    """At held-out points; NaN where no point can be scored."""
    value: Float[Tensor, "*member grouping"]
    """The score less the penalty; −∞ where there is none, or where a group has no coordinate."""
    best: Int[Tensor, "*member"]
    """Position of the best grouping."""


@checked
def best_grouping(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    nonlinear: bool = False,
    penalty: float = PENALTY,
    share: float = SHARE,
    largest: int | None = None,
    steps: int = STEPS,
    seed: int = 0,
) -> Groupings:
    """Which factors the activations hold in common blocks of coordinates (Eq. 28).

    Parameters
    ----------
    features
        Activations over the grid's points, in its order.
    shape
        Number of values of each factor, of which there are at most five.
    held_out
        Combinations to predict; a random fifth by default.
    nonlinear
        Whether blocks are sought by a flow instead of a linear map.
    penalty
        Of score, for every merger.
    share
        Of the variance, that the directions tested hold.
    largest
        Directions at most; 32 by default.
    steps
        Of training, at most, where a flow is trained.
    seed
        Of what is held out and of the flow.

    Returns
    -------
    Groupings
        Scores of all groupings, and the best.

    Examples
    --------
    >>> x, y, z = torch.meshgrid(*[torch.linspace(-1, 1, 4)] * 3, indexing="ij")
    >>> found = best_grouping(torch.stack([x * y, x, z + x * y, y - z], dim=-1).flatten(0, 2), (4, 4, 4), share=1.0)
    >>> found.groupings[found.best]
    ((0, 1), (2,))
    """
    if len(shape) > MOST_FACTORS:
        raise InvalidValue("shape", tuple(shape), f"at most {MOST_FACTORS} factors: every grouping is tried")
    number("penalty", penalty, at_least=0)
    activations = Activations.of(features, shape, held_out, share, largest, seed)
    training = whole_number("steps", steps) if nonlinear else None
    groupings = tuple(sorted(partitions(len(shape)), key=lambda own: (-len(own), own)))
    parts = [_scored(activations, grouping, training, seed) for grouping in groupings]
    score, value = (torch.stack(own, dim=-1) for own in zip(*parts, strict=True))
    mergers = torch.tensor([len(shape) - len(grouping) for grouping in groupings], device=score.device)
    value = value - penalty * mergers
    return Groupings(groupings, score, value, value.argmax(dim=-1))


def partitions(count: int) -> Iterator[Grouping]:
    """All ways to split 0 … count − 1 into groups."""
    if not count:
        yield ()
        return
    for smaller in partitions(count - 1):
        for position, group in enumerate(smaller):
            yield (*smaller[:position], (*group, count - 1), *smaller[position + 1 :])
        yield (*smaller, (count - 1,))


def _scored(activations: Activations, grouping: Grouping, steps: int | None, seed: int) -> tuple[Tensor, Tensor]:
    """Score and value before the penalty, of each member."""
    ones = torch.ones(activations.members, dtype=torch.float64, device=activations.coordinates[0].device)
    if len(grouping) == 1:
        return ones, ones
    design = activations.design(grouping)
    if not bool(design.scored.any()):
        return math.nan * ones, -math.inf * ones
    outcome = block_test(activations, design, 0, seed, steps)
    score = torch.minimum(outcome.score, outcome.recovered)
    return score, torch.where((outcome.share > 0).all(dim=-1), score, -math.inf)
