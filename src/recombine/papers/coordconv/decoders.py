"""The two networks of the paper's coordinate classification, with a softmax over pixels.

`coordconv_pixel` repeats the code at every pixel beside the pixel's coordinates and applies 1 × 1 convolutions of 32,
32, 64 and 64 channels (7553 parameters). `coordconv_deconv` doubles the side with every transposed convolution, from a
point to the image, with batch normalisation and ReLUs in between (1.6 million parameters at the largest setting).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from recombine.decoders import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.base import ToImage
from recombine.decoders.cnn import Resize
from recombine.decoders.pixelwise import CoordinateTokens
from recombine.decoders.tokens import TokensToImage

PIXEL_CHANNELS = (32, 32, 64, 64)
DECONV_CHANNELS = (64, 64, 64, 32, 32)
STRIDE = 2


class Probabilities(nn.Sequential):
    """A softmax over the pixels of an image."""

    def __init__(self, interface: Interface) -> None:
        super().__init__(nn.Flatten(), nn.Softmax(dim=1), ToImage(interface.image_shape))


@DECODERS.register
class PixelDecoder(DecoderSpec):
    """1 × 1 convolutions of the code and the coordinates at every pixel."""

    kind: Literal["coordconv_pixel"] = "coordconv_pixel"

    def build(self, interface: Interface) -> StagedDecoder:
        tokens = CoordinateTokens(interface, PIXEL_CHANNELS[0])
        stages: dict[str, nn.Module] = {"tokens": nn.Sequential(tokens, nn.ReLU())}
        for number, (before, after) in enumerate(pairwise(PIXEL_CHANNELS), start=1):
            stages[f"layer{number}"] = nn.Sequential(nn.Linear(before, after), nn.ReLU())
        last = nn.Linear(PIXEL_CHANNELS[-1], interface.channels), TokensToImage(interface.image_shape)
        stages["output"] = nn.Sequential(*last, Probabilities(interface))
        decoder = StagedDecoder(stages)
        for layer in decoder.modules():
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        fan = tokens.code.in_features + tokens.place.in_features  # two parts of one layer
        for part in (tokens.code, tokens.place):
            nn.init.normal_(part.weight, std=(2 / fan) ** 0.5)
        return decoder


class Doubling(nn.ConvTranspose2d):
    """A transposed convolution from n × n to 2n × 2n pixels with any kernel."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, STRIDE)
        nn.init.kaiming_normal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, channels: Tensor, output_size: list[int] | None = None) -> Tensor:
        before = (self.kernel_size[0] - STRIDE) // 2
        rows, columns = (STRIDE * size for size in channels.shape[-2:])
        return super().forward(channels)[..., before : before + rows, before : before + columns]


@DECODERS.register
class DeconvolutionDecoder(DecoderSpec):
    """Transposed convolutions from a point to the image."""

    kind: Literal["coordconv_deconv"] = "coordconv_deconv"
    multiple: Annotated[int, Field(ge=1, le=64)] = 3
    """Multiple of the channels 64, 64, 64, 32 and 32 (1 to 3 in the paper)."""
    kernel: Annotated[int, Field(ge=2, le=16)] = 4
    """Height and width of the kernels (2 to 4 in the paper)."""

    def build(self, interface: Interface) -> StagedDecoder:
        hidden = max(1, (max(interface.plane) - 1).bit_length() - 1)  # 5 of 64 × 64 pixels
        channels = (DECONV_CHANNELS + DECONV_CHANNELS[-1:] * hidden)[:hidden]
        widths = [interface.code_size, *(self.multiple * own for own in channels)]
        stages: dict[str, nn.Module] = {}
        for number, (before, after) in enumerate(pairwise(widths)):
            point = [nn.Unflatten(1, (before, 1, 1))] if number == 0 else []
            layers = *point, Doubling(before, after, self.kernel), nn.BatchNorm2d(after), nn.ReLU()
            stages[f"layer{number}"] = nn.Sequential(*layers)
        last = Doubling(widths[-1], interface.channels, self.kernel), Resize(interface.image_shape)
        stages["output"] = nn.Sequential(*last, Probabilities(interface))
        return StagedDecoder(stages)
