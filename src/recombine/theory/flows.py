"""Invertible maps that straighten activations, trained for many members at once (Eq. 25–27).

A flow is a chain of affine coupling layers. Every layer turns the coordinates by a fixed random rotation and lets one
half of them scale and shift the other. Scales are e^(b·tanh), so that no layer can stretch or squash without bound, and
the inverse is exact and as cheap as the map. A new flow is the identity. All members start with the same random
numbers: what a member is trained to does not depend on the others in its batch.

What is minimised, at points that are kept, is the sum of two shares of variance. One is what is left of coordinates
once they are separated as well as a linear map can (`separation`), each explained by its own factor; the separation,
and with it the block of every coordinate, is revised now and then. A flow could lower this one alone by squashing what
it cannot explain and laying something that it can over it: the map stays invertible, but only just. The other is
therefore what is lost of the activations when every coordinate is replaced by its mean given its own factor and mapped
back. Both are ratios: shrinking gains nothing.

Some of the kept points are left out to say when to stop: a member keeps the map that predicted them best, and leaves
the batch once that was some time ago. Points that are held out are never seen.

Known answers: a map followed by its inverse changes nothing; nor does a new flow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from recombine.theory.separation import (
    Design,
    best_rotation,
    explained_shares,
    of_block,
    predicted,
    random_points,
    share_predicted,
    whitened_effects,
)

LAYERS = 10
HIDDEN = 32
"""Units of the network that scales and shifts."""
STRETCH = 0.5
"""Largest logarithm of a scale, per layer."""
STEPS = 300
RATE, WARM_UP = 5e-3, 0.1
"""Largest learning rate, and the share of the steps in which it rises to that; then it falls as a cosine."""
BETAS, STILL = (0.9, 0.999), 1e-5
"""Of Adam; gradients well below the latter are rounding errors, as those of a shift of all points, and move little."""
REVISION = 10
"""Steps from one separation to the next."""
PATIENCE = 80
"""Steps without a better map after which a member stops."""
VALIDATION = 0.12
"""Of the kept points, that say when to stop."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One invertible map per member."""

    turns: Tensor
    """`[layer + 1, coordinate, coordinate]`: rotations before, between and after the layers, the same for all members;
    in float64 always, or the inverse would not be one."""
    parameters: tuple[Tensor, ...]
    """Four for each layer, members first: weights and biases to the hidden units and from them."""

    @classmethod
    def identity(cls, members: int, size: int) -> Flow:
        """A flow that changes nothing yet."""
        generator = torch.Generator().manual_seed(0)
        rotations, parameters = [torch.eye(size, dtype=torch.float64)], []
        for layer in range(LAYERS):
            rotations.append(torch.linalg.qr(torch.randn(size, size, generator=generator).double())[0])
            giving, taking = _halves(size, layer)
            weights = torch.randn(giving, HIDDEN, generator=generator) / math.sqrt(giving)
            biases = torch.randn(1, HIDDEN, generator=generator)
            start = (weights, biases, torch.zeros(HIDDEN, 2 * taking), torch.zeros(1, 2 * taking))
            parameters += [own.expand(members, *own.shape).contiguous() for own in start]
        rotations.append(rotations[0])
        turns = [before.mT @ after for before, after in pairwise(rotations)]
        return cls(torch.stack(turns), tuple(parameters))

    def __call__(self, coordinates: Tensor) -> Tensor:
        """The map of members × points × coordinates."""
        *turns, last = self.turns.to(coordinates.dtype)
        for layer, turn in enumerate(turns):
            giving, taking = (coordinates @ turn).split(_halves(len(turn), layer), dim=-1)
            scale, shift = self._coupling(layer, giving)
            coordinates = torch.cat([giving, taking * scale.exp() + shift], dim=-1)
        return coordinates @ last

    def inverse(self, coordinates: Tensor) -> Tensor:
        """What is mapped to these coordinates."""
        *turns, last = self.turns.to(coordinates.dtype).mT
        coordinates = coordinates @ last
        for layer, turn in reversed(list(enumerate(turns))):
            giving, taking = coordinates.split(_halves(coordinates.shape[-1], layer), dim=-1)
            scale, shift = self._coupling(layer, giving)
            coordinates = torch.cat([giving, (taking - shift) * (-scale).exp()], dim=-1) @ turn
        return coordinates

    def with_parameters(self, parameters: Sequence[Tensor]) -> Flow:
        """The same layers with other numbers."""
        return Flow(self.turns.to(parameters[0].device), tuple(parameters))

    def _coupling(self, layer: int, giving: Tensor) -> tuple[Tensor, Tensor]:
        first, first_bias, second, second_bias = self.parameters[4 * layer : 4 * layer + 4]
        hidden = torch.tanh(torch.baddbmm(first_bias, giving, first))
        scale, shift = torch.baddbmm(second_bias, hidden, second).chunk(2, dim=-1)
        return STRETCH * torch.tanh(scale), shift


def _halves(size: int, layer: int) -> list[int]:
    """How many coordinates scale and shift, and how many are scaled and shifted; of an odd number, in turn one more."""
    giving = size - size // 2 if layer % 2 or size == 1 else size // 2
    return [giving, size - giving]


def straightened(coordinates: Tensor, design: Design, *, steps: int) -> Flow:
    """A flow for members × points × coordinates that starts as the identity, in float64."""
    labels = design.labels[:, design.kept].cpu()
    everything = torch.ones(labels.shape[1], dtype=torch.bool)
    left_out = random_points(labels, everything, VALIDATION, 0)
    scored = left_out if bool(left_out.any()) else everything  # where no value can spare a point
    inner = Design.from_cells(labels, ~left_out, scored).on(coordinates.device)
    training = Training(coordinates[:, design.kept].float(), inner)
    for step in range(0, steps + 1, REVISION):
        separation = training.revise(step)
        if not len(training.active):
            break
        for own in range(step, min(step + REVISION, steps)):
            training.descend(*separation, _rate((own + 1) / steps))
    return training.flow.with_parameters([own.double() for own in training.best])


@dataclass(eq=False)
class Training:
    """Flows on their way; Adam is written out because members leave with their moments."""

    points: Tensor
    """`[member, point, coordinate]`, of members that have not stopped."""
    design: Design
    flow: Flow = field(init=False)
    best: list[Tensor] = field(init=False)
    """Parameters of every member that predicted the points left out best."""

    def __post_init__(self) -> None:
        members, device = len(self.points), self.points.device
        flow = Flow.identity(members, self.points.shape[-1])
        self.flow = flow.with_parameters([own.to(device) for own in flow.parameters])
        self.best = [own.clone() for own in self.flow.parameters]
        self.moments = [[torch.zeros_like(own) for own in self.best] for _ in BETAS]
        self.value = torch.full((members,), -math.inf, device=device)
        self.improved = torch.zeros(members, dtype=torch.int64, device=device)
        self.active = torch.arange(members, device=device)
        self.updates = 0

    @torch.no_grad()
    def revise(self, step: int) -> tuple[Tensor, Tensor]:
        """The best separation of every active member; notes which maps are better than before, and who stops."""
        images = self.flow(self.points)
        kept = images[:, self.design.kept]
        factor, covariances = whitened_effects(kept, self.design)
        rotation = best_rotation(covariances)
        block = explained_shares(covariances, rotation).argmax(dim=1)
        labels = self.design.labels[:, self.design.scored]
        coordinates = _separated(images, factor, rotation)
        prediction = predicted(coordinates[:, self.design.kept], block, self.design, labels)
        recovered = self.flow.inverse(_mixed(prediction, factor, rotation))
        value = torch.minimum(
            share_predicted(coordinates, prediction, self.design), share_predicted(self.points, recovered, self.design)
        )
        better = value > self.value[self.active]
        at = self.active[better]
        self.value[at], self.improved[at] = value[better], step
        for best, own in zip(self.best, self.flow.parameters, strict=True):
            best[at] = own[better]
        going_on = self.improved[self.active] > step - PATIENCE
        if not bool(going_on.all()):
            self._leave(going_on)
        return rotation[going_on], block[going_on]

    def descend(self, rotation: Tensor, block: Tensor, rate: float) -> None:
        """One step of Adam for every active member."""
        parameters = [own.requires_grad_() for own in self.flow.parameters]
        gradients = torch.autograd.grad(self._loss(rotation, block).sum(), parameters)
        self.updates += 1
        with torch.no_grad():
            for position, (own, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                first, second = (moments[position] for moments in self.moments)
                first.lerp_(gradient, 1 - BETAS[0])
                second.lerp_(gradient.square(), 1 - BETAS[1])
                spread = (second / (1 - BETAS[1] ** self.updates)).sqrt() + STILL
                own.sub_(rate / (1 - BETAS[0] ** self.updates) * first / spread)
        self.flow = self.flow.with_parameters([own.detach() for own in parameters])

    def _loss(self, rotation: Tensor, block: Tensor) -> Tensor:
        """Share of variance that is not explained, and share that is lost, of each member."""
        points = self.points[:, self.design.kept]
        images = self.flow(points)
        factor, covariances = whitened_effects(images, self.design)
        explained = of_block(explained_shares(covariances, rotation), block)
        coordinates = _separated(images, factor, rotation)
        prediction = predicted(coordinates, block, self.design, self.design.labels[:, self.design.kept])
        recovered = self.flow.inverse(_mixed(prediction, factor, rotation))
        lost = (recovered - points).square().mean(dim=(1, 2)) / points.square().mean(dim=(1, 2))
        return 1 - explained.mean(dim=-1) + lost

    def _leave(self, going_on: Tensor) -> None:
        self.active, self.points = self.active[going_on], self.points[going_on]
        self.flow = self.flow.with_parameters([own[going_on] for own in self.flow.parameters])
        self.moments = [[own[going_on] for own in moments] for moments in self.moments]


def _separated(images: Tensor, factor: Tensor, rotation: Tensor) -> Tensor:
    """Whitened and turned."""
    return torch.linalg.solve_triangular(factor, images.mT, upper=False).mT @ rotation


def _mixed(coordinates: Tensor, factor: Tensor, rotation: Tensor) -> Tensor:
    """The inverse of `_separated`."""
    return coordinates @ rotation.mT @ factor.mT


def _rate(done: float) -> float:
    return RATE * min(done / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * max(done - WARM_UP, 0) / (1 - WARM_UP)))
