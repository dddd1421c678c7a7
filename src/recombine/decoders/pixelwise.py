"""Decoders that are told where a pixel is.

    broadcast   the code, repeated at every pixel beside its coordinates, through convolutions
                (Watters et al. 2019, Spatial Broadcast Decoder)
    coordconv   transposed convolutions whose inputs have two channels of coordinates
                (Liu et al. 2018, An Intriguing Failing of Convolutional Neural Networks and the CoordConv Solution)
    implicit    a small network of each pixel's coordinates and the code, with ReLUs or sines
                (Sitzmann et al. 2020, Implicit Neural Representations with Periodic Activation Functions)
    coordinate  the same with sinusoidal positions: the decoder `coordinate`

Coordinates run from -1 to 1.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage
from recombine.decoders.cnn import CNN, FromPoint, Resize
from recombine.decoders.tokens import TokensToImage

Width = Annotated[int, Field(ge=1, le=2**16)]
Depth = Annotated[int, Field(ge=1, le=1000)]


def coordinates(plane: tuple[int, int], device: torch.device | None = None) -> Tensor:
    """Column and row of every pixel, `(2, y, x)`, from -1 to 1."""
    y, x = (torch.linspace(-1, 1, size, device=device) for size in plane)
    return torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1])


class WithCoordinates(nn.Module):
    """Two channels of coordinates added to the given ones."""

    def forward(self, channels: Tensor) -> Tensor:
        own = coordinates((channels.shape[-2], channels.shape[-1]), channels.device).to(channels.dtype)
        return torch.cat([channels, own.expand(len(channels), -1, -1, -1)], dim=1)


class Broadcast(nn.Module):
    """Codes `(batch, code)` repeated at every pixel, `(batch, code, y, x)`."""

    def __init__(self, plane: tuple[int, int]) -> None:
        super().__init__()
        self.plane = plane

    def forward(self, codes: Tensor) -> Tensor:
        return codes[:, :, None, None].expand(-1, -1, *self.plane)


@DECODERS.register
class BroadcastDecoder(DecoderSpec):
    """Spatial broadcast decoder."""

    kind: Literal["broadcast"] = "broadcast"
    width: Width = 64
    """Channels in every stage."""
    depth: Depth = 4
    """Number of hidden convolutions."""

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {"broadcast": nn.Sequential(Broadcast(interface.plane), WithCoordinates())}
        before = interface.code_size + 2
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(nn.Conv2d(before, self.width, 3, padding=1), nn.ReLU())
            before = self.width
        output = nn.Conv2d(before, interface.channels, 1), ToImage(interface.image_shape)
        return StagedDecoder({**stages, "output": nn.Sequential(*output)})


@DECODERS.register
class CoordConvDecoder(CNN):
    """Transposed convolutions, each with two channels of coordinates beside its inputs."""

    kind: Literal["coordconv"] = "coordconv"  # type: ignore[assignment]

    def build(self, interface: Interface) -> StagedDecoder:
        first, *blocks, last = self.convolutions(interface)
        stages: dict[str, nn.Module] = {"layer0": nn.Sequential(FromPoint(*first), nn.ReLU())}
        for number, block in enumerate(blocks, start=1):
            wider = block._replace(inputs=block.inputs + 2)
            stages[f"layer{number}"] = nn.Sequential(WithCoordinates(), nn.ConvTranspose2d(*wider), nn.ReLU())
        wider = last._replace(inputs=last.inputs + 2)
        output = WithCoordinates(), nn.Conv2d(*wider), Resize(interface.image_shape)
        return StagedDecoder({**stages, "output": nn.Sequential(*output)})


class CoordinateTokens(nn.Module):
    """Codes and pixel coordinates through one linear layer, `(batch, pixel, width)`."""

    position: Tensor

    def __init__(self, interface: Interface, width: int) -> None:
        super().__init__()
        self.code, self.place = nn.Linear(interface.code_size, width), nn.Linear(2, width, bias=False)
        self.register_buffer("position", coordinates(interface.plane).flatten(1).mT.contiguous(), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        return self.code(codes)[:, None, :] + self.place(self.position.to(codes.dtype))


class Sine(nn.Module):
    """sin(ω x)."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, values: Tensor) -> Tensor:
        return torch.sin(self.frequency * values)


@DECODERS.register
class ImplicitDecoder(DecoderSpec):
    """A small network of each pixel's coordinates and the code."""

    kind: Literal["implicit"] = "implicit"
    width: Width = 128
    """Neurons per hidden layer."""
    depth: Depth = 3
    """Layers after the first."""
    activation: Literal["relu", "sine"] = "sine"
    """Sines start from the published initial weights."""
    frequency: Annotated[float, Field(gt=0, le=1e4)] = 30.0
    """ω₀ of the sines (30 in the paper)."""

    def build(self, interface: Interface) -> StagedDecoder:
        sine = self.activation == "sine"
        first = CoordinateTokens(interface, self.width)
        stages: dict[str, nn.Module] = {"tokens": nn.Sequential(first, self._activated())}
        for number in range(1, self.depth + 1):
            layer = nn.Linear(self.width, self.width)
            if sine:  # keeps the distribution of activations from layer to layer
                bound = math.sqrt(6 / self.width) / self.frequency
                nn.init.uniform_(layer.weight, -bound, bound)
            stages[f"layer{number}"] = nn.Sequential(layer, self._activated())
        if sine:
            nn.init.uniform_(first.place.weight, -1 / 2, 1 / 2)  # 1 / inputs
            nn.init.uniform_(first.code.weight, -1 / interface.code_size, 1 / interface.code_size)
        output = nn.Linear(self.width, interface.channels), TokensToImage(interface.image_shape)
        return StagedDecoder({**stages, "output": nn.Sequential(*output)})

    def _activated(self) -> nn.Module:
        return Sine(self.frequency) if self.activation == "sine" else nn.ReLU()
