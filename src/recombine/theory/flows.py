"""Invertible maps of coordinates, trained for many members at once: affine coupling layers (Eq. 25).

Every layer turns the coordinates by a fixed random rotation and lets one half of them scale and shift the other. Scales
are e^(b·tanh), so that no layer can stretch or squash without bound, and the inverse is exact and as cheap as the map.
A new flow is the identity. All members start with the same random numbers: what a member is trained to does not depend
on the others in its batch.

Known answers: a map followed by its inverse changes nothing; nor does a new flow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

LAYERS = 10
HIDDEN = 32
"""Units of the network that scales and shifts."""
STRETCH = 0.5
"""Largest logarithm of a scale, per layer."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One invertible map per member."""

    turns: Tensor
    """`[layer + 1, coordinate, coordinate]`: rotations before, between and after the layers, the same for all members;
    in float64 always, or the inverse would not be one."""
    parameters: tuple[Tensor, ...]
    """Four for each layer, members first: weights and biases to the hidden units and from them."""

    @classmethod
    def identity(cls, members: int, size: int, *, seed: int, layers: int = LAYERS, hidden: int = HIDDEN) -> Flow:
        """A flow that changes nothing yet."""
        generator = torch.Generator().manual_seed(seed)
        rotations, parameters = [torch.eye(size, dtype=torch.float64)], []
        for layer in range(layers):
            rotations.append(torch.linalg.qr(torch.randn(size, size, generator=generator).double())[0])
            giving, taking = _halves(size, layer)
            weights = torch.randn(giving, hidden, generator=generator) / math.sqrt(giving)
            biases = torch.randn(1, hidden, generator=generator)
            start = (weights, biases, torch.zeros(hidden, 2 * taking), torch.zeros(1, 2 * taking))
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

    def member(self, index: int) -> Flow:
        """That of one member."""
        return self.with_parameters([own[index : index + 1] for own in self.parameters])

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
