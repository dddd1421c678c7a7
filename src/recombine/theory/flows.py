"""Invertible maps that straighten activations, trained for many members at once (Eq. 25–27).

A flow is a chain of affine coupling layers. Every layer applies a fixed random rotation, then scales and shifts one
half of the coordinates by functions of the other half. Scales are e^(tanh / 2), which bounds the stretch. All members
start from the same random numbers, so the result of a member does not depend on the others in its batch.

The loss, at kept (not held-out) points, is the sum of two fractions of variance. The first is the variance that remains
unexplained when each coordinate, after the best linear separation (`separation`), is predicted from its factor; the
separation and the blocks are updated every few steps. A flow could lower this term by squashing what it cannot explain,
which makes it barely invertible. The second term is therefore the variance of the activations that is lost when every
coordinate is replaced by its mean given its factor and mapped back. Both are ratios, so shrinking gains nothing.

Some of the kept points are used for early stopping: each member keeps the map that predicted them best, and leaves the
batch once it has not improved for some time. Held-out points are never used.

Known answers: a map followed by its inverse is the identity, as is a new flow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
"""Number of hidden units of the network that computes scales and shifts."""
STEPS = 300
RATE, WARM_UP = 5e-3, 0.1
"""Peak learning rate, and the fraction of steps used for warm-up before the cosine decay."""
BETAS, STILL = (0.9, 0.999), 1e-5
"""Adam's betas and epsilon; gradients well below epsilon are rounding errors (for instance, that of a common shift)."""
REVISION = 10
"""Steps between updates of the separation."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One invertible map per member."""

    turns: Tensor
    """`[layer + 1, coordinate, coordinate]`: rotations before, between and after the layers, the same for all members;
    always in float64, for an exact inverse."""
    parameters: tuple[Tensor, ...]
    """Weights and biases to and from the hidden units of each layer, with a leading member axis."""

    @classmethod
    def identity(cls, members: int, size: int) -> Flow:
        """Return a flow that is the identity."""
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
        """Map coordinates `[member, point, coordinate]`."""
        *turns, last = self.turns.to(coordinates.dtype)
        for layer, turn in enumerate(turns):
            giving, taking = (coordinates @ turn).split(_halves(len(turn), layer), dim=-1)
            scale, shift = self._coupling(layer, giving)
            coordinates = torch.cat([giving, taking * scale.exp() + shift], dim=-1)
        return coordinates @ last

    def inverse(self, coordinates: Tensor) -> Tensor:
        """Return the coordinates that are mapped to the given ones."""
        *turns, last = self.turns.to(coordinates.dtype).mT
        coordinates = coordinates @ last
        for layer, turn in reversed(list(enumerate(turns))):
            giving, taking = coordinates.split(_halves(coordinates.shape[-1], layer), dim=-1)
            scale, shift = self._coupling(layer, giving)
            coordinates = torch.cat([giving, (taking - shift) * (-scale).exp()], dim=-1) @ turn
        return coordinates

    def with_parameters(self, parameters: Sequence[Tensor]) -> Flow:
        """Return a copy of the flow with the given parameters."""
        return Flow(self.turns.to(parameters[0].device), tuple(parameters))

    def _coupling(self, layer: int, giving: Tensor) -> tuple[Tensor, Tensor]:
        first, first_bias, second, second_bias = self.parameters[4 * layer : 4 * layer + 4]
        hidden = torch.tanh(torch.baddbmm(first_bias, giving, first))
        scale, shift = torch.baddbmm(second_bias, hidden, second).chunk(2, dim=-1)
        return 0.5 * torch.tanh(scale), shift


def _halves(size: int, layer: int) -> list[int]:
    """Return the sizes of the half that sets scale and shift, and of the other; odd sizes alternate between layers."""
    giving = size - size // 2 if layer % 2 or size == 1 else size // 2
    return [giving, size - giving]


def straightened(coordinates: Tensor, design: Design, *, steps: int) -> Flow:
    """Train a flow, in float64, that straightens coordinates `[member, point, coordinate]`."""
    labels = design.labels[:, design.kept].cpu()
    left_out = random_points(labels, 0.12, 0)  # for early stopping
    scored = left_out if bool(left_out.any()) else ~left_out  # nothing is left out if every value has a single point
    inner = Design.from_cells(labels, ~left_out, scored).on(coordinates.device)
    training = Training(coordinates[:, design.kept].float(), inner)
    for step in range(0, steps + 1, REVISION):
        separation = training.revise(step)
        if not len(training.active):
            break
        for own in range(step, min(step + REVISION, steps)):
            done = (own + 1) / steps
            decay = 0.5 + 0.5 * math.cos(math.pi * max(done - WARM_UP, 0) / (1 - WARM_UP))
            training.descend(*separation, RATE * min(done / WARM_UP, decay))
    return training.flow.with_parameters([own.double() for own in training.best])


class Training:
    """Training state. Adam is implemented here because members that stop must be removed with their moments."""

    def __init__(self, points: Tensor, design: Design) -> None:
        members, device = len(points), points.device
        self.points, self.design = points, design  # `[member, point, coordinate]` of the active members
        flow = Flow.identity(members, points.shape[-1])
        self.flow = flow.with_parameters([own.to(device) for own in flow.parameters])
        self.best = [own.clone() for own in self.flow.parameters]  # those that predicted the validation points best
        self.moments = [[torch.zeros_like(own) for own in self.best] for _ in BETAS]
        self.value = torch.full((members,), -math.inf, device=device)
        self.improved = torch.zeros(members, dtype=torch.int64, device=device)
        self.active = torch.arange(members, device=device)
        self.updates = 0

    @torch.no_grad()
    def revise(self, step: int) -> tuple[Tensor, Tensor]:
        """Update the separation, record improvements, remove stopped members, and return rotations and blocks."""
        images = self.flow(self.points)
        factor, covariances = whitened_effects(images[:, self.design.kept], self.design)
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
        going_on = self.improved[self.active] > step - 80  # otherwise there was no improvement for 80 steps
        if not bool(going_on.all()):
            self.active, self.points = self.active[going_on], self.points[going_on]
            self.flow = self.flow.with_parameters([own[going_on] for own in self.flow.parameters])
            self.moments = [[own[going_on] for own in moments] for moments in self.moments]
        return rotation[going_on], block[going_on]

    def descend(self, rotation: Tensor, block: Tensor, rate: float) -> None:
        """Take one Adam step for every active member."""
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
        """Return the unexplained plus the lost fraction of variance, for each member."""
        points = self.points[:, self.design.kept]
        images = self.flow(points)
        factor, covariances = whitened_effects(images, self.design)
        explained = of_block(explained_shares(covariances, rotation), block)
        coordinates = _separated(images, factor, rotation)
        prediction = predicted(coordinates, block, self.design, self.design.labels[:, self.design.kept])
        recovered = self.flow.inverse(_mixed(prediction, factor, rotation))
        lost = (recovered - points).square().mean(dim=(1, 2)) / points.square().mean(dim=(1, 2))
        return 1 - explained.mean(dim=-1) + lost


def _separated(images: Tensor, factor: Tensor, rotation: Tensor) -> Tensor:
    """Whiten and rotate mapped coordinates."""
    return torch.linalg.solve_triangular(factor, images.mT, upper=False).mT @ rotation


def _mixed(coordinates: Tensor, factor: Tensor, rotation: Tensor) -> Tensor:
    """Invert `_separated`."""
    return coordinates @ rotation.mT @ factor.mT
