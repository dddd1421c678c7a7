"""Fully connected decoder: `depth` ReLU layers, then a linear map to all pixels. Stages: `layer1` … and `output`."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage


@DECODERS.register
class MLP(DecoderSpec):
    """Multi-layer perceptron.

    Examples
    --------
    >>> import recombine as rc
    >>> module = rc.RunSpec(task=rc.BumpTask(size=8), decoder=rc.MLP(width=16, depth=2)).module()
    >>> module.stage_names
    ('layer1', 'layer2', 'output')
    """

    kind: Literal["mlp"] = "mlp"
    width: Annotated[int, Field(ge=1, le=2**16)] = 256
    """Neurons per hidden layer."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of hidden layers."""

    def build(self, interface: Interface) -> StagedDecoder:
        sizes = [interface.code_size] + [self.width] * self.depth
        stages: dict[str, nn.Module] = {
            f"layer{number}": nn.Sequential(nn.Linear(before, after), nn.ReLU())
            for number, (before, after) in enumerate(pairwise(sizes), start=1)
        }
        stages["output"] = nn.Sequential(nn.Linear(self.width, interface.pixels), ToImage(interface.image_shape))
        return StagedDecoder(stages)
