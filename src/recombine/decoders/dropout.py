"""A decoder with dropout after every hidden stage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from recombine.decoders.base import DECODERS, AnyDecoder, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.cnn import CNN


@DECODERS.register
class DropoutDecoder(DecoderSpec):
    """A decoder with dropout after every hidden stage."""

    kind: Literal["dropout"] = "dropout"
    base: AnyDecoder = CNN()
    """The decoder, as text in parentheses: base=(cnn:width=16)."""
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of activations that are set to zero in training."""

    def build(self, interface: Interface) -> StagedDecoder:
        *hidden, last = self.base.build(interface).stages.items()
        return StagedDecoder({
            **{name: nn.Sequential(stage, nn.Dropout(self.rate)) for name, stage in hidden}, last[0]: last[1]
        })  # fmt: skip
