"""Both tests of factorization, for activations of many members and their permutations at once.

Members may have different numbers of directions; those with as many are worked on together, in parts that fit into
memory. A permutation deals the activations to other combinations, within the kept points and within the held-out ones,
so that the projection stays what it was; permuted representations are tested as further members of a batch. Flows are
trained for them only where the activations themselves would pass: elsewhere the verdict does not depend on the p-value.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import finite, whole_number
from recombine.theory.cp import several_factors
from recombine.theory.designs import Design, kept_points
from recombine.theory.flows import Flow
from recombine.theory.projections import Projection, projection
from recombine.theory.separation import predicted, separate, share_predicted
from recombine.theory.straightening import straightened

PASSING, SIGNIFICANT = 0.9, 0.05
"""Least score, and largest p-value."""
NONE = -1
"""In the place of the factor of a coordinate that a member does not have."""
NUMBERS, TRAINED_POINTS = 1 << 23, 1 << 16
"""Coordinates of points, and points whose maps are trained, that are worked on at a time."""


@dataclass(frozen=True, eq=False)
class BlockMap:
    """One member's invertible map from activations to blocks of coordinates."""

    projection: Projection
    start: Float[Tensor, "coordinate coordinate"]
    flow: Flow | None = None
    end: Float[Tensor, "coordinate coordinate"] | None = None
    """After the flow."""

    def __call__(self, features: Float[Tensor, "point feature"]) -> Float[Tensor, "point coordinate"]:
        """Coordinates of activations."""
        separated = self.projection(features) @ self.start
        return separated if self.flow is None or self.end is None else self.flow(separated[None])[0] @ self.end

    def inverse(self, coordinates: Float[Tensor, "point coordinate"]) -> Float[Tensor, "point feature"]:
        """Activations, in the directions that the projection keeps, that have such coordinates."""
        if self.flow is not None and self.end is not None:
            coordinates = self.flow.inverse((coordinates @ self.end.inverse())[None])[0]
        return self.projection.inverse(coordinates @ self.start.inverse())


@dataclass(frozen=True, eq=False)
class Factorization:
    """What a test of factorization says of every member."""

    score: Float[Tensor, "*member"]
    """Share of the coordinates' variance at held-out points that their own factor predicts."""
    recovered: Float[Tensor, "*member"]
    """Share of the activations' variance there that the predicted coordinates give back; the score, of a linear map."""
    p_value: Float[Tensor, "*member"]
    """Of the score; NaN in the nonlinear test where the score alone says that it is not passed."""
    passes: Bool[Tensor, "*member"]
    block: Int[Tensor, "*member coordinate"]
    """The factor, or group, of each coordinate; −1 where a member has fewer."""
    share: Float[Tensor, "*member factor"]
    """Of the coordinates, that belong to each factor; 0 is an empty block."""
    coordinates: Float[Tensor, "*member point coordinate"]
    """At all points; 0 where a member has fewer."""
    maps: tuple[BlockMap, ...]
    """Of each member, in order."""


@dataclass(frozen=True, eq=False)
class Activations:
    """Those of some members over a grid, checked and projected."""

    shape: tuple[int, ...]
    members: tuple[int, ...]
    kept: Tensor
    projections: tuple[Projection, ...]
    coordinates: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        features: Tensor,
        shape: Sequence[int],
        held_out: Tensor | None,
        share: float,
        largest: int | None,
        seed: int,
    ) -> Activations:
        """Projected to the directions that hold a share of the variance."""
        shape = several_factors(shape, features.shape[-2])
        finite("features", features)
        kept = kept_points(shape, held_out, whole_number("seed", seed, at_least=0))
        each = features.reshape(-1, *features.shape[-2:])
        projections = tuple(projection(own, kept, share=share, largest=largest) for own in each)
        coordinates = tuple(project(own) for project, own in zip(projections, each, strict=True))
        return cls(shape, tuple(features.shape[:-2]), kept, projections, coordinates)

    def design(self, groups: Sequence[Sequence[int]] | None = None) -> Design:
        """With factors that act alone, or in groups."""
        return Design.of(self.shape, self.kept, groups).on(self.coordinates[0].device)

    def permuted(self, permutations: int, seed: int) -> Tensor:
        """`[permutation, point]`: whose activations each combination gets."""
        generator = torch.Generator().manual_seed(seed + 1)
        orders = torch.zeros(permutations, len(self.kept), dtype=torch.int64)
        for part in (self.kept, ~self.kept):
            own = torch.nonzero(part).flatten()
            for order in orders:
                order[part] = own[torch.randperm(len(own), generator=generator)]
        return orders.to(self.coordinates[0].device)

    def alike(self, members: Iterable[int], copies: int, trained: bool) -> Iterator[tuple[list[int], Tensor]]:
        """Some members with as many coordinates at a time, and these."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for member in members:
            by_size[self.coordinates[member].shape[-1]].append(member)
        for size, alike in sorted(by_size.items()):
            points = copies * len(self.kept)
            step = max(1, TRAINED_POINTS // points if trained else NUMBERS // (points * size))
            for first in range(0, len(alike), step):
                part = alike[first : first + step]
                yield part, torch.stack([self.coordinates[member] for member in part])


def block_test(
    activations: Activations, design: Design, permutations: int, seed: int, steps: int | None = None
) -> Factorization:
    """The linear test, or with steps of training the nonlinear one."""
    everyone = range(len(activations.coordinates))
    outcomes: dict[int, Mapped] = {}
    for members, coordinates in activations.alike(everyone, 1, steps is not None):
        mapped = Mapped.of(coordinates, design, steps, seed)
        outcomes |= {member: mapped.member(position) for position, member in enumerate(members)}
    ordered = [outcomes[member] for member in everyone]
    block = _padded([own.block for own in ordered], NONE)
    groups = torch.arange(len(design.counts), device=block.device)
    share = (block[:, None] == groups[:, None]).sum(dim=-1).double() / (block != NONE).sum(dim=-1, keepdim=True)
    score, recovered = (torch.cat([getattr(own, name) for own in ordered]) for name in ("score", "recovered"))
    passes = (torch.minimum(score, recovered) >= PASSING) & (share > 0).all(dim=-1)
    candidates = everyone if steps is None else torch.nonzero(passes).flatten().tolist()
    p_value = _p_values(activations, candidates, score, design, permutations, seed, steps)

    def shaped(own: Tensor) -> Tensor:
        return own.reshape(activations.members + own.shape[1:])

    return Factorization(
        shaped(score), shaped(recovered), shaped(p_value), shaped(passes & (p_value <= SIGNIFICANT)), shaped(block),
        shaped(share), shaped(_padded([own.coordinates for own in ordered], 0.0)),
        tuple(own.as_map(project) for own, project in zip(ordered, activations.projections, strict=True)),
    )  # fmt: skip


def _p_values(
    activations: Activations, candidates: Iterable[int], score: Tensor, design: Design, permutations: int, seed: int,
    steps: int | None,
) -> Tensor:  # fmt: skip
    """Of the scores of some members, among those of their permutations; NaN for the others."""
    p_value = torch.full_like(score, math.nan)
    orders = activations.permuted(permutations, seed)
    for members, coordinates in activations.alike(candidates, max(1, permutations), steps is not None):
        null = score.new_zeros(len(members), 0)
        if permutations:
            copies = coordinates[:, orders].flatten(0, 1)
            null = Mapped.of(copies, design, steps, seed).score.reshape(len(members), -1)
        p_value[members] = (1 + (null >= score[members, None]).sum(dim=1)).double() / (1 + permutations)
    return p_value


@dataclass(frozen=True, eq=False)
class Mapped:
    """Members' coordinates, separated by a linear map or straightened by a flow, and how well they are predicted."""

    coordinates: Tensor
    block: Tensor
    score: Tensor
    recovered: Tensor
    start: Tensor
    flow: Flow | None = None
    end: Tensor | None = None

    @classmethod
    def of(cls, given: Tensor, design: Design, steps: int | None, seed: int) -> Mapped:
        """From members × points × projected coordinates."""
        start = separate(given, design)
        separated = given @ start.rotation
        if steps is None or given.shape[-1] < len(design.counts):  # too few for a block each: no flow will help
            score = share_predicted(separated, _predicted(separated, start.block, design), design)
            return cls(separated, start.block, score, score, start.rotation)
        flow = straightened(separated, design, steps=steps, seed=seed)
        images = flow(separated)
        end = separate(images, design)
        coordinates = images @ end.rotation
        prediction = _predicted(coordinates, end.block, design)
        back = flow.inverse(torch.linalg.solve(end.rotation, prediction, left=False))
        scores = share_predicted(coordinates, prediction, design), share_predicted(separated, back, design)
        return cls(coordinates, end.block, *scores, start.rotation, flow, end.rotation)

    def member(self, place: int) -> Mapped:
        """One of them."""
        own = slice(place, place + 1)
        parts = (self.coordinates[own], self.block[own], self.score[own], self.recovered[own], self.start[own])
        return Mapped(*parts) if self.flow is None or self.end is None else Mapped(
            *parts, self.flow.member(place), self.end[own]
        )  # fmt: skip

    def as_map(self, project: Projection) -> BlockMap:
        """That of one member."""
        return BlockMap(project, self.start[0], self.flow, None if self.end is None else self.end[0])


def _predicted(coordinates: Tensor, block: Tensor, design: Design) -> Tensor:
    return predicted(coordinates[:, design.kept], block, design, design.labels[:, design.scored])


def _padded(parts: list[Tensor], value: float) -> Tensor:
    """Together, each with as many coordinates as the one that has most."""
    most = max(own.shape[-1] for own in parts)
    return torch.cat([torch.nn.functional.pad(own, (0, most - own.shape[-1]), value=value) for own in parts])
