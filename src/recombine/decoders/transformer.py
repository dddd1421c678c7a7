"""Transformer decoder: pixel tokens through standard encoder layers, linear to the colour of each.

Layers are the original post-norm ones with ReLU; no dropout, so that a member's result does not depend on its
neighbours' random numbers. Stages: `tokens`, `layer1` … and `output`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.tokens import PixelTokens, read_out
from recombine.errors import InvalidValue


@DECODERS.register
class Transformer(DecoderSpec):
    """Attention over pixel tokens.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.Transformer(width=16, depth=1)).module()
    >>> module.stage_names
    ('tokens', 'layer1', 'output')
    """

    kind: Literal["transformer"] = "transformer"
    width: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 128
    """Size of a token."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Layers."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads."""
    feedforward: Annotated[int, Field(ge=1, le=2**16)] = 512
    """Hidden width of each layer's feed-forward part."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.heads:
            raise InvalidValue("width", self.width, f"a multiple of heads ({self.heads})")
        return self

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {"tokens": PixelTokens(interface, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = EncoderLayer(self.width, self.heads, self.feedforward)
        stages["output"] = read_out(interface, self.width)
        return StagedDecoder(stages)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each added to its input and normalised."""

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
        # Written out: the fused kernels have no forward-mode derivative.
        attention = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
        attended = (attention @ value).transpose(1, 2).flatten(-2)
        tokens = self.after_attention(tokens + self.merge(attended))
        return self.after_feed(tokens + self.feed(tokens))
