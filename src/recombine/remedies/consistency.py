"""Two losses on recombined or blended codes.

consistency   ‖g(f(z')) − z'‖² for recombined codes z' and an encoder g that trains beside the decoder
              (Wiedemer et al. 2024, Provable Compositional Generalization for Object-Centric Learning)
mixup         ‖f(λ z + (1 − λ) z') − λ f(z) − (1 − λ) f(z')‖²  (after Zhang et al. 2018, mixup, in code space)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn

from recombine.decoders import ConvEncoder, Interface
from recombine.remedies.base import REMEDIES, Decode, Penalty, Weight
from recombine.remedies.derivatives import Rows, first_rows, recombined
from recombine.remedies.noise import Generator, uniform


@REMEDIES.register
class Consistency(Penalty):
    """Compositional consistency: an encoder must read recombined codes back from their images."""

    source = "Wiedemer et al. 2024"
    knows = ("factor blocks", "held-out codes", "an encoder")
    assumes = ("coverage",)
    kind: Literal["consistency"] = "consistency"
    rows: Rows = 0.25
    """Share of the batch that it is computed on."""

    def auxiliary(self, interface: Interface) -> nn.Module:
        channels = () if len(interface.image_shape) == 3 else (1,)  # grey images have no channel axis
        return nn.Sequential(nn.Unflatten(1, (*channels, interface.image_shape[0])), ConvEncoder().build(interface))

    def loss(self, decode: Any, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        mixed = first_rows(recombined(codes, blocks, generator), self.rows)
        codes = first_rows(codes, self.rows)
        seen = decode.auxiliary(decode(codes).detach()) - codes  # teaches the encoder on kept combinations
        return seen.square().mean() + (decode.auxiliary(decode(mixed)) - mixed).square().mean()


@REMEDIES.register
class Mixup(Penalty):
    """Latent mixup: a blend of codes should give the blend of images."""

    source = "after Zhang et al. 2018"
    differentiates = False
    assumes = ("additivity", "coverage")
    kind: Literal["mixup"] = "mixup"
    weight: Weight = 10.0

    def loss(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        share = uniform((len(codes), 1), generator, codes).to(codes.dtype)
        other = codes.flip(0)
        images = decode(codes).detach()
        lined = share.view(-1, *(1,) * (images.ndim - 1))
        goal = lined * images + (1 - lined) * images.flip(0)
        return (decode(share * codes + (1 - share) * other) - goal).square().mean()
