"""Interaction asymmetry on attention (Brady et al. 2025, Interaction Asymmetry: A General Principle for Learning
Composable Abstractions).

Pixels attend to one token per factor. A pixel whose attention goes to two factors lets them interact; the penalty is

    Σ_{k<j} A_pk A_pj

for the attention A of pixel p, summed over heads (which shall look at the same factor) and averaged over layers. It is
averaged over pixels and the batch, as in the published code. Stages: `tokens`, `layer1` … (factor tokens first, then
pixels) and `output`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.tokens import TokensToImage, sinusoidal_position
from recombine.errors import InvalidValue


class FactorTokens(nn.Module):
    """One token per factor, then one query per pixel."""

    position: Tensor

    def __init__(self, interface: Interface, width: int) -> None:
        super().__init__()
        self.code_sizes = list(interface.code_sizes)
        self.projections = nn.ModuleList(nn.Linear(size, width) for size in interface.code_sizes)
        self.register_buffer("position", sinusoidal_position(interface.plane, width), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        parts = zip(self.projections, codes.split(self.code_sizes, dim=-1), strict=True)
        factors = torch.stack([projection(part) for projection, part in parts], dim=1)
        return torch.cat([factors, self.position.to(factors.dtype).expand(len(codes), -1, -1)], dim=1)


class CrossAttention(nn.Module):
    """Pixels attend to factors; then a feed-forward part. Factor tokens stay as they are."""

    def __init__(self, width: int, heads: int, factors: int) -> None:
        super().__init__()
        self.heads, self.factors = heads, factors
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.merge = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.after_attention, self.after_feed = nn.LayerNorm(width), nn.LayerNorm(width)

    def weights(self, tokens: Tensor) -> Tensor:
        """Attention of every pixel to every factor, `(batch, head, pixel, factor)`."""
        query, key = (
            self._headed(self.query(tokens[:, self.factors :])),
            self._headed(self.key(tokens[:, : self.factors])),
        )
        return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)

    def _headed(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        factors, pixels = tokens[:, : self.factors], tokens[:, self.factors :]
        attended = (self.weights(tokens) @ self._headed(self.value(factors))).transpose(1, 2).flatten(-2)
        pixels = self.after_attention(pixels + self.merge(attended))
        return torch.cat([factors, self.after_feed(pixels + self.feed(pixels))], dim=1)


class CrossAttentionModule(StagedDecoder):
    """The chain of stages, with the penalty on its attention."""

    def interaction(self, codes: Tensor) -> Tensor:
        """Return the products of attention to two factors, averaged over pixels and the batch."""
        tokens, layers = codes, []
        for stage in self.stages.values():
            if isinstance(stage, CrossAttention):
                layers.append(stage.weights(tokens).sum(dim=1))
            tokens = stage(tokens)
        weights = torch.stack(layers).mean(dim=0)
        return ((weights.sum(dim=-1).square() - weights.square().sum(dim=-1)) / 2).mean()


class DropFactors(nn.Module):
    """Pixel tokens alone."""

    def __init__(self, factors: int) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.factors :]


@DECODERS.register
class CrossAttentionDecoder(DecoderSpec):
    """Pixel queries that attend to one token per factor."""

    kind: Literal["cross_attention"] = "cross_attention"
    width: Annotated[int, Field(ge=4, le=2**12, multiple_of=4)] = 64
    """Token dimension."""
    depth: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of layers."""
    heads: Annotated[int, Field(ge=1, le=64)] = 4
    """Attention heads; the width is a multiple of it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.heads:
            raise InvalidValue("width", self.width, f"a multiple of heads ({self.heads})")
        return self

    def build(self, interface: Interface) -> StagedDecoder:
        factors = len(interface.code_sizes)
        stages: dict[str, nn.Module] = {"tokens": FactorTokens(interface, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = CrossAttention(self.width, self.heads, factors)
        output = DropFactors(factors), nn.Linear(self.width, interface.channels), TokensToImage(interface.image_shape)
        return CrossAttentionModule({**stages, "output": nn.Sequential(*output)})
