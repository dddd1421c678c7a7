"""Decoders whose weights depend on the code.

    hypernetwork   W(z) = Σ_m z_m Θ_m: weights that are linear in the code  (Schug et al. 2024, Discovering Modular
                   Solutions that Generalize Compositionally)
    film           γ(z) h + β(z): gains and biases that are linear in the code  (Perez et al. 2018, FiLM)

Both modulate a small network of each pixel's sinusoidal position. The code travels beside the activations, so that
every layer can read it: a stage's output is `(batch, pixel, width + code)`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.tokens import TokensToImage, sinusoidal_position

Width = Annotated[int, Field(ge=4, le=2**12, multiple_of=4)]
Depth = Annotated[int, Field(ge=1, le=1000)]


class Positions(nn.Module):
    """Every pixel's sinusoidal position and the code, `(batch, pixel, width + code)`."""

    position: Tensor

    def __init__(self, plane: tuple[int, int], width: int) -> None:
        super().__init__()
        self.register_buffer("position", sinusoidal_position(plane, width), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        position = self.position.to(codes.dtype).expand(len(codes), -1, -1)
        return torch.cat([position, codes[:, None].expand(-1, position.shape[1], -1)], dim=-1)


class Modulated(nn.Module):
    """A layer that reads the code beside its inputs, and hands it on."""

    def __init__(self, width: int, code_size: int) -> None:
        super().__init__()
        self.sizes = [width, code_size]

    def forward(self, values: Tensor) -> Tensor:
        inputs, codes = values.split(self.sizes, dim=-1)
        return torch.cat([torch.relu(self.changed(inputs, codes[:, 0])), codes], dim=-1)

    def changed(self, inputs: Tensor, codes: Tensor) -> Tensor:
        """Return new activations `(batch, pixel, width)`."""
        raise NotImplementedError


class HyperLayer(Modulated):
    """A linear layer whose weights and biases are linear in the code."""

    def __init__(self, width: int, code_size: int) -> None:
        super().__init__(width, code_size)
        self.weights = nn.Linear(code_size, width * width)
        self.biases = nn.Linear(code_size, width)
        with torch.no_grad():  # generated weights then have the variance of a plain layer's
            self.weights.weight.mul_(width**-0.5)
            self.weights.bias.normal_(std=width**-0.5)

    def changed(self, inputs: Tensor, codes: Tensor) -> Tensor:
        weights = self.weights(codes).unflatten(-1, (inputs.shape[-1], inputs.shape[-1]))
        return inputs @ weights + self.biases(codes)[:, None]


class FilmLayer(Modulated):
    """A linear layer whose outputs are scaled and shifted by the code."""

    def __init__(self, width: int, code_size: int) -> None:
        super().__init__(width, code_size)
        self.linear, self.gain, self.shift = (
            nn.Linear(width, width),
            nn.Linear(code_size, width),
            nn.Linear(code_size, width),
        )

    def changed(self, inputs: Tensor, codes: Tensor) -> Tensor:
        return self.linear(inputs) * (1 + self.gain(codes)[:, None]) + self.shift(codes)[:, None]


class DropCode(nn.Module):
    """The activations without the code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, values: Tensor) -> Tensor:
        return values[..., : self.width]


@DECODERS.register
class HypernetworkDecoder(DecoderSpec):
    """A small network of each pixel's position whose layers depend on the code."""

    kind: Literal["hypernetwork"] = "hypernetwork"
    width: Width = 64
    """Neurons per hidden layer."""
    depth: Depth = 2
    """Number of layers."""
    form: Literal["linear", "film"] = "linear"
    """`linear`: weights are linear in the code. `film`: gains and biases are."""

    def build(self, interface: Interface) -> StagedDecoder:
        layer = HyperLayer if self.form == "linear" else FilmLayer
        stages: dict[str, nn.Module] = {"tokens": Positions(interface.plane, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = layer(self.width, interface.code_size)
        output = DropCode(self.width), nn.Linear(self.width, interface.channels), TokensToImage(interface.image_shape)
        return StagedDecoder({**stages, "output": nn.Sequential(*output)})
