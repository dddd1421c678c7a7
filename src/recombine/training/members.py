"""Many networks with the same architecture: their parameters as vectors, and their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, vmap

from recombine.decoders import StagedDecoder

Weights = Mapping[str, Tensor]
"""Parameters by name."""
ALIGNED = 8
"""Parameter vectors are padded to a multiple of this length (16 bytes of bfloat16, the alignment of tensor cores)."""


class FlatLayout:
    """Converts named tensors, such as a module's parameters, to one vector and back.

    The ensemble stores weights and both AdamW moments as `(member, parameter)` matrices, so the optimiser takes a
    handful of operations for any decoder, and a checkpoint has three tensors. Zeros at the end of each vector align the
    next one.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self.names = list(named)
        self.shapes = tuple(tuple(part.shape) for part in named.values())
        self.types = tuple(part.dtype for part in named.values())
        self.spare = -sum(part.numel() for part in named.values()) % ALIGNED
        self.sizes = [*(part.numel() for part in named.values()), self.spare]
        self.size = sum(self.sizes)

    def flatten(self, named: Mapping[str, Tensor]) -> Float[Tensor, " parameter"]:
        """Return the tensors as a new vector."""
        parts = [named[name].detach().float().flatten() for name in self.names]
        device = parts[0].device if parts else None
        return torch.cat([*parts, torch.zeros(self.spare, device=device)])

    def unflatten(self, vectors: Float[Tensor, "*member parameter"]) -> dict[str, Tensor]:
        """Return named views into a vector, or into the vectors of all members; integers are copies."""
        named = zip(self.names, vectors.split(self.sizes, dim=-1)[:-1], self.shapes, self.types, strict=True)
        return {
            name: part.view((*vectors.shape[:-1], *shape)).to(vectors.dtype if kind.is_floating_point else kind)
            for name, part, shape, kind in named
        }


class MemberOutputs(NamedTuple):
    """Outputs and penalties of many members, or of one network without a member axis."""

    outputs: Tensor
    penalties: Mapping[str, Tensor] = {}


def module_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members by their module."""

    def outputs(own: Tensor, codes: Tensor) -> Tensor:
        result: Tensor = functional_call(decoder, layout.unflatten(own), (codes,))
        return result

    return MemberOutputs(vmap(outputs)(weights.to(dtype), inputs.to(dtype)))
