"""Which forward pass a decoder takes on a device: the one place that knows both architectures and kernels.

Many members run at once on a GPU, one network at a time on a CPU. `FORWARDS` has the decoders that can run faster than
their module; every other one, a user's own among them, runs its module, batched by `torch.func.vmap`. An entry
is for a spec's very class: a subclass may build another network. Tests compare every entry with the module.

Every entry runs grey images and colour ones. Where kernels underneath know one channel only (`dispatch.cnn`), colour
takes what would run if there were none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recombine.decoders import CNN, MLP, CoordinateMLP, DecoderSpec, LowRank, StagedDecoder, Transformer
from recombine.training.dispatch import cnn, dense, low_rank, tokens
from recombine.training.dispatch.contract import Forwards, MemberOutputs
from recombine.training.layout import FlatLayout

FORWARDS: dict[type[DecoderSpec], Forwards] = {
    CNN: Forwards(cnn.forward_members, cnn.forward_one),
    LowRank: Forwards(low_rank.forward_members, low_rank.forward_one),
    MLP: Forwards(dense.forward_members),
    CoordinateMLP: Forwards(tokens.forward_coordinate_members),
    Transformer: Forwards(tokens.forward_transformer_members),
}


class Dispatch:
    """The forward passes of one decoder."""

    def __init__(self, spec: DecoderSpec, decoder: StagedDecoder) -> None:
        self.decoder, self.layout = decoder, FlatLayout(decoder)
        self.forwards = FORWARDS.get(type(spec), Forwards())

    def members(self, weights: Tensor, inputs: Tensor, dtype: torch.dtype) -> MemberOutputs | None:
        """Outputs of many members at once; None where there is no way but `vmap`."""
        if self.forwards.members is None:
            return None
        return self.forwards.members(self.decoder, self.layout, weights, inputs, dtype)

    def one(self, weights: Tensor, inputs: Tensor, dtype: torch.dtype) -> MemberOutputs | None:
        """Outputs of one network on a CPU in float32; None where there is no way but its module."""
        strict = inputs.device.type == "cpu" and inputs.dtype == dtype == torch.float32
        if self.forwards.one is None or not strict:
            return None
        return self.forwards.one(self.decoder, self.layout, weights, inputs)


__all__ = ["FORWARDS", "Dispatch", "Forwards", "MemberOutputs"]
