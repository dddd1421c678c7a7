"""Coordinate MLP, the "spatially aware" one: pixel tokens through per-token layers, no attention.

Stages: `tokens`, `layer1` … (linear + PReLU) and `output`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.tokens import PixelTokens, read_out


@DECODERS.register
class CoordinateMLP(DecoderSpec):
    """A small network that each pixel runs on its own position.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.CoordinateMLP(width=16, depth=2)).module()
    >>> module.stage_names
    ('tokens', 'layer1', 'layer2', 'output')
    """

    kind: Literal["coordinate"] = "coordinate"
    width: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 128
    """Size of a token."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Layers."""

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {"tokens": PixelTokens(interface, self.width)}
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(nn.Linear(self.width, self.width), nn.PReLU())
        stages["output"] = read_out(interface, self.width)
        return StagedDecoder(stages)
