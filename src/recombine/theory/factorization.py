"""Tests of factorization: do activations consist of one block per factor, up to an invertible map (Eq. 23–28)?

Activations cover a whole factor grid, in grid order; some combinations are held out, the others are kept. Activations
are projected onto the directions that explain most of their variance (Eq. 23, `projections`) and mapped to as many
coordinates by a linear map (Eq. 24, `separation`) or by a flow initialised with it (Eq. 25–27, `flows`). Each
coordinate is assigned to the block of one factor. Everything is fitted to the kept points.

The score is the fraction of the coordinates' variance at the held-out points predicted by their factor; `recovered` is
the fraction of the activations' variance there reproduced by the predicted coordinates through the inverse map. Both
are means of R² over whitened directions, at most 1, and 0 or less if nothing is predicted. The p-value compares the
score with those of activations permuted among the kept combinations and among the held-out ones, so that the projection
does not change. To pass a test, the score and the recovered fraction must be at least 0.9, p ≤ 0.05, and every factor
must have a coordinate.

Partial factorization (Eq. 28): a grouping is a partition of the factors; the combinations of values within a group
count as values of one factor. A grouping's value is the score of the linear test minus a penalty for every merger; a
single group of all factors has score 1 by definition. A held-out point is scored if every group's combination occurs at
some kept point. A grouping has value −∞ if no point can be scored or if a group has no coordinates. See docs/theory.md
for why held-out points are needed, and for structural modularity (`unit_selectivity`).

Known answers: linear mixtures of concatenated single-factor codes pass both tests; after an invertible nonlinearity,
they pass only the second; random vectors per combination, and functions of x + y or x·y alone, pass neither. The
groupings of codes for {x, y} and {z}, for {x}, {y} and {z}, and for all three together are recovered. Concatenated
one-hot codes have selectivity 1 for their factor; a rotation of two such codes has none, but is still factorized.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.flows import STEPS, straightened
from recombine.theory.projections import SHARE, main_effects, projection, refuse_not_finite
from recombine.theory.separation import Design, kept_points, predicted, separate, share_predicted

PERMUTATIONS, TRAINED_PERMUTATIONS = 99, 19
"""Number of permutations in the linear test and in the nonlinear one, which trains a flow for each permutation."""
PASSING, SIGNIFICANT = 0.9, 0.05
"""Minimum score and maximum p-value to pass a test."""
NONE = -1
"""Placeholder for the factor of a coordinate that a member does not have, or of a constant unit."""
PENALTY = 0.05
"""Penalty for every merger of two groups."""
MOST_FACTORS = 5
"""Maximum number of factors to group: there are 52 partitions of five factors and 203 of six."""

Grouping = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Factorization:
    """Result of a factorization test for every member."""

    score: Float[Tensor, "*member"]
    """Fraction of the coordinates' variance at held-out points predicted by their factor."""
    recovered: Float[Tensor, "*member"]
    """Fraction of the activations' variance at held-out points reproduced by the predicted coordinates."""
    p_value: Float[Tensor, "*member"]
    """P-value; NaN in the nonlinear test if the score alone is too low to pass."""
    passes: Bool[Tensor, "*member"]
    block: Int[Tensor, "*member coordinate"]
    """The factor or group of each coordinate; −1 if a member has fewer coordinates."""
    share: Float[Tensor, "*member factor"]
    """Fraction of the coordinates that belong to each factor; 0 for an empty block."""


def linear_factorization(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
    permutations: int = PERMUTATIONS,
) -> Factorization:
    """Test whether a linear map separates activations over a grid into one block per factor (Eq. 24).

    By default, a random fifth of the combinations is held out such that every value of every factor is kept. The tested
    directions explain a fraction `share` of the variance. The p-value is at least 1 / (1 + permutations).

    >>> x, y = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    >>> both = torch.stack([torch.stack([x + y, x - y], dim=-1), torch.stack([x * y, x - y], dim=-1)])
    >>> linear_factorization(both.flatten(1, 2), (6, 6)).passes.tolist()
    [True, False]
    """
    activations = Activations.of(features, shape, held_out, share)
    return block_test(activations, activations.design(), permutations)


def nonlinear_factorization(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    permutations: int = TRAINED_PERMUTATIONS,
    steps: int = STEPS,
) -> Factorization:
    """Test whether an invertible map separates activations into one block per factor (Eq. 25–27).

    Permutations are run only for members that would otherwise pass; with fewer than 19 of them, no member can pass.

    A smooth injective representation always has such a map. This test requires one that a small flow can learn from the
    kept combinations and that generalises to the others; with few points, it misses some. Of a hundred codes with two
    dimensions per factor followed by a strong nonlinearity, it finds 97 on a 16 × 16 grid, 95 on 12 × 12 and 38 on 8 ×
    8 if they are smooth in the factors, and 93 on 24 × 24, 84 on 16 × 16 and 62 on 12 × 12 if every value has a random
    code. On a small grid, failing is therefore weak evidence, but passing is strong evidence.

    >>> x, y = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    >>> bent = torch.stack([x + y + (x - y) ** 2, x - y], dim=-1).flatten(0, 1)
    >>> straightened = nonlinear_factorization(bent, (8, 8), steps=100, permutations=0)
    >>> [round(own.score.item(), 1) for own in (linear_factorization(bent, (8, 8)), straightened)]
    [0.5, 1.0]
    """
    activations = Activations.of(features, shape, held_out, SHARE)
    return block_test(activations, activations.design(), permutations, steps)


@dataclass(frozen=True, eq=False)
class Groupings:
    """All groupings of the factors, and the best one for every member."""

    groupings: tuple[Grouping, ...]
    score: Float[Tensor, "*member grouping"]
    """Score at held-out points; NaN if no point can be scored."""
    value: Float[Tensor, "*member grouping"]
    """Score minus penalty; −∞ without a score, or if a group has no coordinate."""
    best: Int[Tensor, "*member"]
    """Index of the best grouping."""


def best_grouping(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
) -> Groupings:
    """Find the best grouping of at most five factors into shared blocks of coordinates (Eq. 28).

    >>> x, y, z = torch.meshgrid(*[torch.linspace(-1, 1, 4)] * 3, indexing="ij")
    >>> result = best_grouping(torch.stack([x * y, x, z + x * y, y - z], dim=-1).flatten(0, 2), (4, 4, 4), share=1.0)
    >>> result.groupings[result.best]
    ((0, 1), (2,))
    """
    if len(shape) > MOST_FACTORS:
        raise InvalidValue("shape", tuple(shape), f"at most {MOST_FACTORS} factors, since every grouping is tested")
    activations = Activations.of(features, shape, held_out, share)
    groupings = tuple(sorted(partitions(len(shape)), key=lambda own: (-len(own), own)))
    parts = [_scored(activations, grouping) for grouping in groupings]
    score, value = (torch.stack(own, dim=-1) for own in zip(*parts, strict=True))
    mergers = torch.tensor([len(shape) - len(grouping) for grouping in groupings], device=score.device)
    value = value - PENALTY * mergers
    return Groupings(groupings, score, value, value.argmax(dim=-1))


def partitions(count: int) -> Iterator[Grouping]:
    """Yield all partitions of 0 … count − 1."""
    if not count:
        yield ()
        return
    for smaller in partitions(count - 1):
        for position, group in enumerate(smaller):
            yield (*smaller[:position], (*group, count - 1), *smaller[position + 1 :])
        yield (*smaller, (count - 1,))


def _scored(activations: Activations, grouping: Grouping) -> tuple[Tensor, Tensor]:
    """Return the score, and the value before the penalty, for each member."""
    ones = torch.ones(activations.members, dtype=torch.float64, device=activations.coordinates[0].device)
    if len(grouping) == 1:
        return ones, ones
    design = activations.design(grouping)
    if not bool(design.scored.any()):
        return math.nan * ones, -math.inf * ones
    outcome = block_test(activations, design, 0)
    score = torch.minimum(outcome.score, outcome.recovered)
    return score, torch.where((outcome.share > 0).all(dim=-1), score, -math.inf)


@dataclass(frozen=True, eq=False)
class Activations:
    """Projected activations of several members over a grid."""

    shape: tuple[int, ...]
    members: tuple[int, ...]
    kept: Tensor
    coordinates: tuple[Tensor, ...]

    @classmethod
    def of(cls, features: Tensor, shape: tuple[int, ...], held_out: Tensor | None, share: float) -> Activations:
        """Project activations onto the leading directions that explain a given fraction of the variance."""
        if len(shape) < 2 or math.prod(shape) != features.shape[-2]:
            raise InvalidValue("shape", shape, f"two or more factors with {features.shape[-2]} combinations")
        kept = kept_points(shape, held_out)
        each = features.reshape(-1, *features.shape[-2:])
        coordinates = tuple(projection(own, kept, share=share) for own in each)
        return cls(shape, tuple(features.shape[:-2]), kept, coordinates)

    def design(self, groups: Sequence[Sequence[int]] | None = None) -> Design:
        """Return the design in which factors act separately or in groups."""
        return Design.of(self.shape, self.kept, groups).on(self.coordinates[0].device)

    def permuted(self, permutations: int) -> Tensor:
        """Return `[permutation, point]`, the index of the point whose activations are assigned to each combination."""
        generator = torch.Generator().manual_seed(1)
        orders = torch.zeros(permutations, len(self.kept), dtype=torch.int64)
        for part in (self.kept, ~self.kept):
            own = torch.nonzero(part).flatten()
            for order in orders:
                order[part] = own[torch.randperm(len(own), generator=generator)]
        return orders.to(self.coordinates[0].device)

    def alike(self, members: Iterable[int], copies: int, trained: bool) -> Iterator[tuple[list[int], Tensor]]:
        """Yield batches of members with the same number of coordinates, together with these coordinates."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for member in members:
            by_size[self.coordinates[member].shape[-1]].append(member)
        for size, alike in sorted(by_size.items()):
            points = copies * len(self.kept)
            # limits the number of training points, or of coordinates, that are processed at a time
            step = max(1, (1 << 16) // points if trained else (1 << 23) // (points * size))
            for first in range(0, len(alike), step):
                part = alike[first : first + step]
                yield part, torch.stack([self.coordinates[member] for member in part])


def block_test(activations: Activations, design: Design, permutations: int, steps: int | None = None) -> Factorization:
    """Run the linear test or, if training steps are given, the nonlinear one."""
    everyone = range(len(activations.coordinates))
    coordinates = activations.coordinates
    most = max(own.shape[-1] for own in coordinates)
    block = torch.full((len(coordinates), most), NONE, device=coordinates[0].device)
    score, recovered = torch.zeros(2, len(coordinates), dtype=torch.float64, device=block.device)
    for members, own in activations.alike(everyone, 1, steps is not None):
        blocks, score[members], recovered[members] = mapped(own, design, steps)
        block[members, : blocks.shape[-1]] = blocks
    groups = torch.arange(len(design.counts), device=block.device)
    share = (block[:, None] == groups[:, None]).sum(dim=-1).double() / (block != NONE).sum(dim=-1, keepdim=True)
    passes = (torch.minimum(score, recovered) >= PASSING) & (share > 0).all(dim=-1)
    candidates = everyone if steps is None else torch.nonzero(passes).flatten().tolist()
    p_value = _p_values(activations, candidates, score, design, permutations, steps)

    def shaped(own: Tensor) -> Tensor:
        return own.reshape(activations.members + own.shape[1:])

    passes = passes & (p_value <= SIGNIFICANT)
    return Factorization(*map(shaped, (score, recovered, p_value, passes, block, share)))


def _p_values(
    activations: Activations, candidates: Iterable[int], score: Tensor, design: Design, permutations: int,
    steps: int | None,
) -> Tensor:  # fmt: skip
    """Return the p-values of some members' scores relative to those of their permutations, and NaN for the others."""
    p_value = torch.full_like(score, math.nan)
    orders = activations.permuted(permutations)
    for members, coordinates in activations.alike(candidates, max(1, permutations), steps is not None):
        null = score.new_zeros(len(members), 0)
        if permutations:
            copies = coordinates[:, orders].flatten(0, 1)
            null = mapped(copies, design, steps)[1].reshape(len(members), -1)
        p_value[members] = (1 + (null >= score[members, None]).sum(dim=1)).double() / (1 + permutations)
    return p_value


def mapped(given: Tensor, design: Design, steps: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Map `[member, point, coordinate]` linearly or by a flow, and return blocks, scores and recovered fractions."""
    rotation, block = separate(given, design)
    separated = given @ rotation
    if steps is None or given.shape[-1] < len(design.counts):  # too few for one block per factor, so no flow can help
        score = share_predicted(separated, _predicted(separated, block, design), design)
        return block, score, score
    flow = straightened(separated, design, steps=steps)
    images = flow(separated)
    rotation, block = separate(images, design)
    coordinates = images @ rotation
    prediction = _predicted(coordinates, block, design)
    back = flow.inverse(torch.linalg.solve(rotation, prediction, left=False))
    return block, share_predicted(coordinates, prediction, design), share_predicted(separated, back, design)


def _predicted(coordinates: Tensor, block: Tensor, design: Design) -> Tensor:
    return predicted(coordinates[:, design.kept], block, design, design.labels[:, design.scored])


@dataclass(frozen=True, eq=False)
class Selectivity:
    """Selectivity of each unit."""

    share: Float[Tensor, "*member feature factor"]
    """Fraction of the unit's variance explained by each factor alone; 0 for a constant unit."""
    factor: Int[Tensor, "*member feature"]
    """The factor that explains the largest fraction; −1 for a constant unit."""


def unit_selectivity(features: Float[Tensor, "*member point feature"], shape: tuple[int, ...]) -> Selectivity:
    """Return the fraction of each unit's variance over the grid explained by each factor alone.

    >>> x, y = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    >>> own = unit_selectivity(torch.stack([x, x + y, 0 * x], dim=-1).flatten(0, 1), (4, 4))
    >>> own.share.tolist(), own.factor.tolist()
    ([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]], [0, 0, -1])
    """
    refuse_not_finite("features", features)
    variance, _, effects = main_effects(features, shape)
    varies = variance > 1e-12 * features.double().square().mean(dim=-2)  # up to rounding
    share = (effects / torch.where(varies, variance, 1.0) * varies).movedim(0, -1)
    return Selectivity(share, torch.where(varies, share.argmax(dim=-1), NONE))
