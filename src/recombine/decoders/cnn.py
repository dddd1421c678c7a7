"""The paper's decoder: transposed convolutions from a 1×1 code to an image (SPEC §4).

7×7 by one transposed convolution, then `depth` blocks that double the size while it is below the image's and keep it
after that; ReLU after each; a last convolution to one channel. Another image size than the one reached (7, 14, 28, 56
…) is met by nearest-neighbour resizing at the end. Stages: `layer0` … `layer{depth}` (after their ReLU) and `output`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder

FIRST_SIZE = 7
"""Rows and columns after the first transposed convolution (its kernel size)."""


@DECODERS.register
class CNN(DecoderSpec):
    """Transposed-convolution decoder."""

    kind: Literal["cnn"] = "cnn"
    width: Annotated[int, Field(ge=1, le=2**16)] = 64
    """Channels of every stage."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 4
    """Blocks after the first transposed convolution (the paper: 2 … 10)."""

    def build(self, interface: Interface) -> StagedDecoder:
        size, stages = FIRST_SIZE, {}
        stages["layer0"] = nn.Sequential(
            nn.Unflatten(1, (interface.code_size, 1, 1)),
            nn.ConvTranspose2d(interface.code_size, self.width, FIRST_SIZE),
            nn.ReLU(),
        )
        for number in range(1, self.depth + 1):
            grows = size < max(interface.image_shape)
            convolution = (
                nn.ConvTranspose2d(self.width, self.width, 4, stride=2, padding=1)
                if grows
                else nn.ConvTranspose2d(self.width, self.width, 3, stride=1, padding=1)
            )
            size = 2 * size if grows else size
            stages[f"layer{number}"] = nn.Sequential(convolution, nn.ReLU())
        stages["output"] = nn.Sequential(nn.Conv2d(self.width, 1, 3, padding=1), Resize(interface.image_shape))
        return StagedDecoder(stages)


class Resize(nn.Module):
    """One channel to an image of the right size, by nearest neighbours where it is not right already."""

    def __init__(self, image_shape: tuple[int, int]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, channel: Tensor) -> Tensor:
        if channel.shape[-2:] != self.image_shape:
            channel = functional.interpolate(channel, size=self.image_shape, mode="nearest")
        return channel.squeeze(1)
