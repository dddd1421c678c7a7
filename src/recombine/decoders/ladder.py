"""Steps from a convolutional decoder to a pixel-wise one, each of which changes one thing.

A first layer maps the code to 7×7 pixels, each with weights of its own (`start="seed"`), or to a single pixel
(`"broadcast"`), and is repeated to the image's size. Convolutions follow, which may read the pixels' coordinates, may
see one pixel only (`pixelwise`), and may have weights of their own at every pixel (`shared=False`). With a seed and
shared 3×3 kernels this is the decoder `cnn` with all its convolutions at full size; with a broadcast code, coordinates
and 1×1 kernels it is a small network applied to every pixel.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage
from recombine.decoders.cnn import FIRST_SIZE, FromPoint
from recombine.decoders.pixelwise import Depth, Width, WithCoordinates


class Unshared(nn.Module):
    """Convolution with weights of its own at every pixel, initialised as torch's."""

    def __init__(self, before: int, after: int, kernel: int, plane: tuple[int, int]) -> None:
        super().__init__()
        inputs = before * kernel**2
        bound = 1 / math.sqrt(inputs)
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(math.prod(plane), inputs, after).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(after, *plane).uniform_(-bound, bound))

    def forward(self, channels: Tensor) -> Tensor:
        patches = functional.unfold(channels, self.kernel, padding=self.kernel // 2) if self.kernel > 1 else channels
        pixels = patches.flatten(2).permute(2, 0, 1) @ self.weight  # (pixel, batch, channel)
        return pixels.permute(1, 2, 0).unflatten(2, self.bias.shape[1:]) + self.bias


class Repeat(nn.Module):
    """Pixels repeated to the given numbers of rows and columns."""

    def __init__(self, plane: tuple[int, int]) -> None:
        super().__init__()
        self.plane = plane

    def forward(self, channels: Tensor) -> Tensor:
        if channels.shape[-2:] == (1, 1):
            return channels.expand(-1, -1, *self.plane)
        planes = channels.flatten(0, 1)[None]  # all as channels, since torch's gradient loops over examples
        return functional.interpolate(planes, size=self.plane, mode="nearest")[0].unflatten(0, channels.shape[:2])


@DECODERS.register
class LadderDecoder(DecoderSpec):
    """Decoder between a CNN and a network that is applied to every pixel.

    Examples
    --------
    >>> import recombine as rc
    >>> pixelwise = rc.DECODERS.parse("ladder:width=16:depth=2:pixelwise=true")
    >>> rc.RunSpec(task=rc.BumpTask(size=8), decoder=pixelwise).module().stage_names
    ('layer0', 'layer1', 'layer2', 'output')
    """

    kind: Literal["ladder"] = "ladder"
    width: Width = 64
    """Channels in every stage."""
    depth: Depth = 4
    """Number of hidden convolutions."""
    start: Literal["seed", "broadcast"] = "broadcast"
    """Whether the first layer has weights of its own at each of 7×7 pixels, or the same everywhere."""
    coordinates: bool = True
    """Whether the first convolution reads the coordinates of pixels."""
    pixelwise: bool = False
    """Whether convolutions see one pixel (1×1) instead of 3×3."""
    shared: bool = True
    """Whether convolutions have the same weights at every pixel."""

    def build(self, interface: Interface) -> StagedDecoder:
        size = FIRST_SIZE if self.start == "seed" else 1
        first = [FromPoint(interface.code_size, self.width, size), nn.ReLU(), Repeat(interface.plane)]
        stages = {"layer0": nn.Sequential(*first, *([WithCoordinates()] if self.coordinates else []))}
        before = self.width + 2 * self.coordinates
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(self._convolution(before, self.width, interface), nn.ReLU())
            before = self.width
        last = self._convolution(before, interface.channels, interface)
        return StagedDecoder({**stages, "output": nn.Sequential(last, ToImage(interface.image_shape))})

    def _convolution(self, before: int, after: int, interface: Interface) -> nn.Module:
        kernel = 1 if self.pixelwise else 3
        if not self.shared:
            return Unshared(before, after, kernel, interface.plane)
        return nn.Conv2d(before, after, kernel, padding=kernel // 2)
