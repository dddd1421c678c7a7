"""The loss of one member: squared error over pixels, plus what the recipe weighs in (Eq. 12).

Members are batched by `vmap`, unless the decoder knows a way of its own to run many of them. With precision `bf16` the
network computes in bfloat16 on a rounded copy of its float32 weights; gradients come back to the float32 ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from recombine.accelerated import available
from recombine.decoders import FlatLayout, MemberOutputs, StagedDecoder

WEIGHTS: tuple[str, ...] = ("entropy", "variance", "absolute")
"""The recipe's weights of the terms beside the squared error, in the order of `Objective.loss`."""


class Loss(NamedTuple):
    """Per member: what is minimised, and its squared-error part."""

    total: Tensor
    error: Tensor


class Penalties(nn.Module):
    """The decoder's penalties as a module of its own, so that a functional call can reach them."""

    def __init__(self, decoder: StagedDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self) -> dict[str, Tensor]:
        return self.decoder.penalties()


class Objective:
    """Weights and a batch of one member to its loss."""

    def __init__(self, decoder: StagedDecoder, penalised: bool, precision: str) -> None:
        self.decoder = decoder
        self.penalties = Penalties(decoder) if penalised else None
        self.layout = FlatLayout(decoder)
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def answers(self, weights: Float[Tensor, " parameter"], inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """The decoder's answers in float32, computed in another precision if asked."""
        named = self.layout.unflatten(weights.to(dtype))
        return functional_call(self.decoder, named, (inputs.to(dtype),)).float()

    def loss(
        self,
        weights: Float[Tensor, " parameter"],
        inputs: Float[Tensor, "batch ..."],
        targets: Float[Tensor, "batch ..."],
        shares: Float[Tensor, " batch"],
        terms: Float[Tensor, " term"],
    ) -> tuple[Tensor, Tensor]:
        """Total loss and squared error; `shares` weigh the examples and sum to 1, padding has 0.

        Penalties and the loss itself are always in float32.
        """
        found = self.decoder.forward_one(weights, inputs) if self.dtype == torch.float32 else None
        if found is None:
            found = MemberOutputs(self.answers(weights, inputs, self.dtype), self._penalties(weights))
        error, total = _distance(found.outputs, targets, shares, terms)
        if found.penalties:
            total = total + terms[0] * found.penalties["entropy"] + terms[1] * found.penalties["variance"]
        return total, error

    def _penalties(self, weights: Float[Tensor, " parameter"]) -> Mapping[str, Tensor]:
        if self.penalties is None:
            return {}
        named = {f"decoder.{name}": part for name, part in self.layout.unflatten(weights).items()}
        found: Mapping[str, Tensor] = functional_call(self.penalties, named, ())
        return found

    def member_losses(
        self,
        weights: Float[Tensor, "member parameter"],
        inputs: Float[Tensor, "member batch ..."],
        targets: Float[Tensor, "member batch ..."],
        shares: Float[Tensor, "member batch"],
        terms: Float[Tensor, "member term"],
    ) -> tuple[Tensor, Tensor]:
        """Every member's total loss and squared error, in the decoder's own way if it has one."""
        dtype = torch.float32 if self.decoder.rounds else self.dtype
        named = self.layout.unflatten_members(weights.to(dtype))
        found = self.decoder.forward_members(named, inputs.to(dtype), self.dtype)
        if found is None:
            return vmap(self.loss)(weights, inputs, targets, shares, terms)
        error, total = _member_distances(found.outputs, targets, shares, terms)
        if found.penalties:
            total = total + terms[:, 0] * found.penalties["entropy"] + terms[:, 1] * found.penalties["variance"]
        return total, error


def _distance(answers: Tensor, targets: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error, and that with the absolute one; answers are `(*member, batch, …)`."""
    difference = (answers - targets).flatten(shares.ndim)
    return _weighed(difference.square().mean(dim=-1), difference.abs().mean(dim=-1), shares, terms)


def _member_distances(answers: Tensor, targets: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """The same, of many members' answers in any precision, by a kernel if there is one."""
    if not (answers.is_cuda and available()):
        return _distance(answers.float(), targets, shares, terms)
    from recombine.accelerated.distance import PixelMeans

    square, absolute = PixelMeans.apply(answers, targets)
    return _weighed(square, absolute, shares, terms)


def _weighed(square: Tensor, absolute: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    error = (square * shares).sum(dim=-1)
    return error, error + terms[..., -1] * (absolute * shares).sum(dim=-1)
