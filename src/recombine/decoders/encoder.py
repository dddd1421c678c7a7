"""The other direction: a convolutional network from an image to its code.

Strided convolutions (32-64-128), a hidden layer, linear to the code. Stages: `layer1` …, `hidden` and `output`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder

Positive = Annotated[int, Field(ge=1, le=2**16)]
Channels = Annotated[tuple[Positive, ...], Field(min_length=1)]


@DECODERS.register
class ConvEncoder(DecoderSpec):
    """Image to code.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=8, direction="encode")
    >>> module = rc.RunSpec(task=task, decoder=rc.ConvEncoder(channels=(4, 8))).module()
    >>> module.stage_names
    ('layer1', 'layer2', 'hidden', 'output')
    """

    kind: Literal["encoder"] = "encoder"
    channels: Channels = (32, 64, 128)
    """Channels of the stride-2 convolutions."""
    hidden: Positive = 128
    """Neurons of the hidden layer."""
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
