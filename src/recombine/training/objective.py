"""The loss of one member: squared error over pixels, plus what the recipe weighs in (Eq. 12).

A module around the decoder, so that one functional call of it computes everything; it never sees the ensemble axis.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recombine.decoders import StagedDecoder

WEIGHTS: tuple[str, ...] = ("entropy", "variance", "absolute")
"""The recipe's weights of the terms beside the squared error, in the order of `Objective.forward`."""


class Loss(NamedTuple):
    """Per member: what is minimised, and its squared-error part."""

    total: Tensor
    error: Tensor


class Objective(nn.Module):
    """Decoder and loss in one module."""

    def __init__(self, decoder: StagedDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        inputs: Float[Tensor, "batch ..."],
        targets: Float[Tensor, "batch ..."],
        shares: Float[Tensor, " batch"],
        weights: Float[Tensor, " term"],
    ) -> tuple[Tensor, Tensor]:
        """Total loss and squared error; `shares` weigh the examples and sum to 1, padding has 0."""
        difference = (self.decoder(inputs).float() - targets).flatten(1)
        error = (difference.square().mean(dim=1) * shares).sum()
        entropy, variance, absolute = weights.unbind()
        total = error + absolute * (difference.abs().mean(dim=1) * shares).sum()
        penalties = self.decoder.penalties()
        if penalties:
            total = total + entropy * penalties["entropy"] + variance * penalties["variance"]
        return total, error


class FlatLayout:
    """A module's parameters as one vector, and back.

    The ensemble keeps `(member, parameter)` matrices: weights and both AdamW moments. One matrix each makes the
    optimiser a handful of operations whatever the decoder, and a checkpoint three tensors.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self.names = list(named)
        self.shapes = [parameter.shape for parameter in named.values()]
        self.sizes = [parameter.numel() for parameter in named.values()]
        self.size = sum(self.sizes)

    def flatten(self, module: nn.Module) -> Float[Tensor, " parameter"]:
        """The module's parameters as a new vector."""
        named = dict(module.named_parameters())
        return torch.cat([named[name].detach().float().flatten() for name in self.names])

    def unflatten(self, vector: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """Named views into the vector."""
        parts = vector.split(self.sizes)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}
