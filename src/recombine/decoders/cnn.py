"""Convolutional decoder from a 1×1 code to an image, and encoder from an image to its code.

One transposed convolution maps the code to 7×7 pixels. Each of `depth` further blocks doubles the size until it reaches
the image size, then keeps it, and ends in a ReLU. A final convolution outputs the image's channels. Image sizes
other than 7, 14, 28, 56, … require nearest-neighbour resizing at the end. Stages: `layer0` … `layer{depth}` (after
their ReLU) and `output`. Parameters are in the order of `CNN.convolutions`, each weight followed by its bias.

Stages of the encoder: `layer1` …, `hidden` and `output`.
"""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder

Positive = Annotated[int, Field(ge=1, le=2**16)]
FIRST_SIZE = 7
"""Rows and columns after the first transposed convolution (its kernel size)."""


class Convolution(NamedTuple):
    """Arguments of one convolution, in torch's order."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int

    @property
    def doubles(self) -> bool:
        """Whether the output is twice as large as the input."""
        return self.stride == 2


@DECODERS.register
class CNN(DecoderSpec):
    """Transposed-convolution decoder.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.CNN(width=16, depth=2)).module()
    >>> module.stage_names
    ('layer0', 'layer1', 'layer2', 'output')
    """

    kind: Literal["cnn"] = "cnn"
    width: Positive = 64
    """Channels in every stage."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of blocks after the first transposed convolution."""

    def convolutions(self, interface: Interface) -> list[Convolution]:
        """Return the convolutions in order; all but the last are transposed.

        >>> [block.doubles for block in CNN(depth=4).convolutions(Interface((28, 28), (28, 28)))[1:-1]]
        [True, True, False, False]
        """
        size, width, blocks = FIRST_SIZE, self.width, []
        for _ in range(self.depth):
            doubles = size < max(interface.plane)
            blocks.append(Convolution(width, width, 4, 2, 1) if doubles else Convolution(width, width, 3, 1, 1))
            size = 2 * size if doubles else size
        last = Convolution(width, interface.channels, 3, 1, 1)
        return [Convolution(interface.code_size, width, FIRST_SIZE, 1, 0), *blocks, last]

    def build(self, interface: Interface) -> StagedDecoder:
        first, *blocks, last = self.convolutions(interface)
        stages = {"layer0": nn.Sequential(FromPoint(*first), nn.ReLU())}
        for number, block in enumerate(blocks, start=1):
            convolution = nn.ConvTranspose2d(*block) if block.doubles else SameSize(*block)
            stages[f"layer{number}"] = nn.Sequential(convolution, nn.ReLU(inplace=True))
        stages["output"] = nn.Sequential(ToChannels(*last), Resize(interface.image_shape))
        return StagedDecoder(stages)


@DECODERS.register
class ConvEncoder(DecoderSpec):
    """Encoder from images to codes, with strided convolutions, a hidden layer and a linear output.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=8, direction="encode")
    >>> module = rc.RunSpec(task=task, decoder=rc.ConvEncoder(channels=(4, 8))).module()
    >>> module.stage_names
    ('layer1', 'layer2', 'hidden', 'output')
    """

    kind: Literal["encoder"] = "encoder"
    channels: Annotated[tuple[Positive, ...], Field(min_length=1)] = (32, 64, 128)
    """Number of channels of each stride-2 convolution."""
    hidden: Positive = 128
    """Number of neurons in the hidden layer."""
    direction: ClassVar[Literal["decode", "encode"]] = "encode"

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {}
        before, (rows, columns) = interface.channels, interface.plane
        for number, after in enumerate(self.channels, start=1):
            stages[f"layer{number}"] = nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU())
            before, rows, columns = after, (rows + 1) // 2, (columns + 1) // 2
        flat = before * rows * columns
        stages["hidden"] = nn.Sequential(nn.Flatten(1), nn.Linear(flat, self.hidden), nn.ReLU())
        stages["output"] = nn.Linear(self.hidden, interface.code_size)
        return StagedDecoder(stages)


class FromPoint(nn.ConvTranspose2d):
    """Transposed convolution of a single pixel, `(batch, code)` to `(batch, channel, y, x)`, as a matrix product.

    The output is in channels-last memory format, in which the following convolutions are faster.
    """

    def forward(self, codes: Tensor) -> Tensor:  # type: ignore[override]
        assert self.bias is not None
        weight = self.weight.permute(0, 2, 3, 1)
        images = (codes @ weight.flatten(1)).unflatten(-1, weight.shape[1:]) + self.bias
        return images.movedim(-1, -3)


class SameSize(nn.ConvTranspose2d):
    """Transposed convolution with stride 1, computed faster as a convolution with the mirrored kernel."""

    def forward(self, image: Tensor) -> Tensor:  # type: ignore[override]
        mirrored = self.weight.flip(-2, -1).permute(1, 2, 3, 0).contiguous().permute(0, 3, 1, 2)  # channels last
        return functional.conv2d(image, mirrored, self.bias, padding=self.padding)


class ToChannels(nn.Conv2d):
    """Padded convolution to one or a few channels, for which libraries have no fast kernel.

    Computed as a matrix product to one map per kernel tap and channel, and a sum of the shifted maps.
    """

    def forward(self, channels: Tensor) -> Tensor:
        assert self.bias is not None
        pixels = channels.movedim(-3, -1)
        taps = self.weight.flatten(2).permute(2, 0, 1)  # (tap, channel out, channel in)
        maps = (taps.flatten(0, 1) @ pixels.flatten(end_dim=-2).mT).unflatten(0, taps.shape[:2])
        summed = self.summed(maps.unflatten(-1, pixels.shape[:-1]))
        return summed.movedim(0, -3) + self.bias[:, None, None]

    def summed(self, maps: Tensor) -> Tensor:
        """Return the sum of one map per kernel tap, `(tap, …, y, x)`, each shifted by its tap."""
        rows, columns = maps.shape[-2:]
        height, width = self.kernel_size
        padded = functional.pad(maps, (width // 2, width // 2, height // 2, height // 2)).unflatten(0, (height, width))
        # We avoid `sum`, which starts by adding 0 and so costs a copy.
        across = functools.reduce(torch.add, (padded[:, k, ..., k : k + columns] for k in range(width)))
        return functools.reduce(torch.add, (across[k, ..., k : k + rows, :] for k in range(height)))


class Resize(nn.Module):
    """Resize images by nearest-neighbour interpolation, unless they already have the right size."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, channels: Tensor) -> Tensor:
        planes, plane = channels.flatten(0, 1), self.image_shape[-2:]
        if planes.shape[-2:] != plane:  # all planes as channels, since torch's gradient loops over examples
            planes = functional.interpolate(planes[None], size=plane, mode="nearest")[0]
        return planes.reshape(len(channels), *self.image_shape)
