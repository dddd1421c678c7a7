"""The loss of each member: mean squared error over pixels plus the recipe's weighted terms (Eq. 12, 48).

`dispatch` provides fast forward passes; decoders without one are batched by `vmap`. With precision `bf16`, the network
computes in bfloat16 with a rounded copy of its float32 weights, which receive the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from recombine import kernels
from recombine.decoders import DecoderSpec, StagedDecoder
from recombine.training.dispatch import FORWARDS, FlatLayout, Forwards, MemberOutputs

WEIGHTS: tuple[str, ...] = ("entropy", "variance", "absolute")
"""Recipe fields that weight the loss terms other than the squared error, in the order of `terms`."""


class Loss(NamedTuple):
    """The loss that each member minimises, and the squared error in it."""

    total: Tensor
    error: Tensor


class Penalties(nn.Module):
    """A module that returns the decoder's penalties, so that `functional_call` can compute them."""

    def __init__(self, decoder: StagedDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self) -> dict[str, Tensor]:
        return self.decoder.penalties()


class Objective:
    """Computes the loss from members' weights and batches."""

    def __init__(self, spec: DecoderSpec, decoder: StagedDecoder, precision: str) -> None:
        self.decoder, self.layout = decoder, FlatLayout(decoder)
        self.forwards = FORWARDS.get(type(spec), Forwards())
        self.penalties = Penalties(decoder) if spec.penalised else None
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def outputs(self, weights: Float[Tensor, " parameter"], inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the module's outputs in float32, computed in the given dtype."""
        named = self.layout.unflatten(weights.to(dtype))
        return functional_call(self.decoder, named, (inputs.to(dtype),)).float()

    def fast_outputs(self, weights: Float[Tensor, " parameter"], inputs: Tensor) -> MemberOutputs | None:
        """Return the outputs of one float32 network on a CPU, or None if the module has to be used."""
        strict = inputs.device.type == "cpu" and inputs.dtype == self.dtype == torch.float32
        return self.forwards.one(self.decoder, self.layout, weights, inputs) if self.forwards.one and strict else None

    def loss(
        self,
        weights: Float[Tensor, " parameter"],
        inputs: Float[Tensor, "batch ..."],
        targets: Float[Tensor, "batch ..."],
        shares: Float[Tensor, " batch"],
        terms: Float[Tensor, " term"],
    ) -> tuple[Tensor, Tensor]:
        """Return the total loss and the squared error; `shares` weight the examples and sum to 1 (0 for padding).

        Penalties and losses are always computed in float32.
        """
        result = self.fast_outputs(weights, inputs)
        if result is None:
            result = MemberOutputs(self.outputs(weights, inputs, self.dtype), self._penalties(weights))
        error, total = _distance(result.outputs, targets, shares, terms)
        return _with_penalties(total, result.penalties, terms), error

    def _penalties(self, weights: Float[Tensor, " parameter"]) -> Mapping[str, Tensor]:
        if self.penalties is None:
            return {}
        named = {f"decoder.{name}": part for name, part in self.layout.unflatten(weights).items()}
        penalties: Mapping[str, Tensor] = functional_call(self.penalties, named, ())
        return penalties

    def member_losses(
        self,
        weights: Float[Tensor, "member parameter"],
        inputs: Float[Tensor, "member batch ..."],
        targets: Float[Tensor, "member batch ..."],
        shares: Float[Tensor, "member batch"],
        terms: Float[Tensor, "member term"],
    ) -> tuple[Tensor, Tensor]:
        """Return the total loss and the squared error of every member, computed for all members at once."""
        if self.forwards.members is None:
            return vmap(self.loss)(weights, inputs, targets, shares, terms)
        result = self.forwards.members(self.decoder, self.layout, weights, inputs, self.dtype)
        error, total = _member_distances(result.outputs, targets, shares, terms)
        return _with_penalties(total, result.penalties, terms), error


def _with_penalties(total: Tensor, penalties: Mapping[str, Tensor], terms: Tensor) -> Tensor:
    """Add the decoder's weighted penalties, if it has any, to the loss."""
    if not penalties:
        return total
    return total + terms[..., 0] * penalties["entropy"] + terms[..., 1] * penalties["variance"]


def _distance(outputs: Tensor, targets: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared error without and with the weighted absolute error; outputs are `(*member, batch, …)`."""
    difference = (outputs - targets).flatten(shares.ndim)
    return _weighed(difference.square().mean(dim=-1), difference.abs().mean(dim=-1), shares, terms)


def _member_distances(outputs: Tensor, targets: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same for many members' outputs in any precision, using a kernel if there is one."""
    distance = kernels.implementation("distance", outputs.device) if outputs.is_cuda else None
    if distance is None:
        return _distance(outputs.float(), targets, shares, terms)
    square, absolute = distance.PixelMeans.apply(outputs, targets)
    return _weighed(square, absolute, shares, terms)


def _weighed(square: Tensor, absolute: Tensor, shares: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    error = (square * shares).sum(dim=-1)
    return error, error + terms[..., -1] * (absolute * shares).sum(dim=-1)
