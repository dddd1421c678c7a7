"""Parameters one after another."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 8
"""A vector of parameters is this many numbers long, or a multiple: 16 bytes of bfloat16, as matrix units like it."""


class FlatLayout:
    """A module's parameters as one vector, and back.

    The ensemble keeps `(member, parameter)` matrices: weights and both AdamW moments. One matrix each makes the
    optimiser a handful of operations whatever the decoder, and a checkpoint three tensors. A few zeros at the end of
    every vector let the next member's begin at an aligned address.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self.names = list(named)
        self.shapes = tuple(tuple(parameter.shape) for parameter in named.values())
        self.spare = -sum(parameter.numel() for parameter in named.values()) % ALIGNED
        self.sizes = [*(parameter.numel() for parameter in named.values()), self.spare]
        self.size = sum(self.sizes)

    def flatten(self, module: nn.Module) -> Float[Tensor, " parameter"]:
        """The module's parameters as a new vector."""
        named = dict(module.named_parameters())
        parts = [named[name].detach().float().flatten() for name in self.names]
        return torch.cat([*parts, torch.zeros(self.spare, device=parts[0].device)])

    def unflatten(self, vector: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """Named views into the vector."""
        parts = vector.split(self.sizes)[:-1]
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def unflatten_members(self, vectors: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """Named views into all members' vectors."""
        parts, members = vectors.split(self.sizes, dim=1)[:-1], len(vectors)
        return {n: part.view(members, *shape) for n, part, shape in zip(self.names, parts, self.shapes, strict=True)}
