"""Token decoders, with one token per pixel: the projected code plus a fixed two-dimensional sinusoidal position code.

`Transformer` applies the original post-norm encoder layers with ReLU, without dropout, so that a member's result does
not depend on other members' random numbers. `CoordinateMLP` has per-token layers (linear and PReLU) and no attention.
Both end in a linear map from tokens to pixels. Stages: `tokens`, `layer1` … and `output`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage
from recombine.errors import InvalidValue

POSITION_BASE = 10000.0
"""Base of the geometric frequencies, as in the original transformer."""


class PixelTokens(nn.Module):
    """Map codes to one token per pixel."""

    position: Tensor

    def __init__(self, interface: Interface, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(interface.code_size, width)
        self.register_buffer("position", sinusoidal_position(interface.plane, width), persistent=False)

    def forward(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch pixel width"]:
        projected = self.project(codes)[:, None, :]
        return projected + self.position.to(projected.dtype)


def sinusoidal_position(plane: tuple[int, int], width: int) -> Float[Tensor, "pixel width"]:
    """Return position codes: half of the width for the row, half for the column, each with sines, then cosines."""
    pairs = width // 4
    frequency = POSITION_BASE ** -(torch.arange(pairs) / pairs)
    halves = []
    for coordinate in torch.meshgrid(*(torch.arange(n).float() for n in plane), indexing="ij"):
        angle = coordinate.reshape(-1, 1) * frequency
        halves.append(torch.cat([angle.sin(), angle.cos()], dim=1))
    return torch.cat(halves, dim=1)


class TokensToImage(ToImage):
    """Reshape tokens `(batch, pixel, channel)` to images."""

    def forward(self, tokens: Float[Tensor, "batch pixel channel"]) -> Tensor:
        return super().forward(tokens.mT)


class TokenDecoder(DecoderSpec):
    """Base class of decoders with pixel tokens, layers that map tokens to tokens, and a linear output per token."""

    width: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 128
    """Token dimension."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of layers."""

    @abstractmethod
    def layer(self) -> nn.Module:
        """Return a layer that maps tokens to tokens."""

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {"tokens": PixelTokens(interface, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = self.layer()
        output = nn.Linear(self.width, interface.channels), TokensToImage(interface.image_shape)
        return StagedDecoder({**stages, "output": nn.Sequential(*output)})


@DECODERS.register
class CoordinateMLP(TokenDecoder):
    """A small network applied to each pixel token separately.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.CoordinateMLP(width=16, depth=2)).module()
    >>> module.stage_names
    ('tokens', 'layer1', 'layer2', 'output')
    """

    kind: Literal["coordinate"] = "coordinate"

    def layer(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.width, self.width), nn.PReLU())


@DECODERS.register
class Transformer(TokenDecoder):
    """Attention over pixel tokens.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.Transformer(width=16, depth=1)).module()
    >>> module.stage_names
    ('tokens', 'layer1', 'output')
    """

    kind: Literal["transformer"] = "transformer"
    heads: Annotated[int, Field(ge=1)] = 4
    """Number of attention heads."""
    feedforward: Annotated[int, Field(ge=1, le=2**16)] = 512
    """Hidden width of each layer's feed-forward network."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.heads:
            raise InvalidValue("width", self.width, f"a multiple of heads ({self.heads})")
        return self

    def layer(self) -> nn.Module:
        return EncoderLayer(self.width, self.heads, self.feedforward)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block, each with a residual connection and layer norm."""

    def __init__(self, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, feedforward), nn.ReLU(), nn.Linear(feedforward, width))
        self.after_attention = nn.LayerNorm(width)
        self.after_feed = nn.LayerNorm(width)
        nn.init.xavier_uniform_(self.mix.weight)
        nn.init.zeros_(self.mix.bias)
        nn.init.zeros_(self.merge.bias)

    def forward(self, tokens: Float[Tensor, "batch pixel width"]) -> Float[Tensor, "batch pixel width"]:
        query, key, value = self.mix(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        # We avoid `scaled_dot_product_attention`, whose fused kernels lack forward-mode derivatives.
        attention = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
        attended = (attention @ value).transpose(1, 2).flatten(-2)
        tokens = self.after_attention(tokens + self.merge(attended))
        return self.after_feed(tokens + self.feed(tokens))
