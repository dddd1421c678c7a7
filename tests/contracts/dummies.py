"""A pytest plug-in that registers two dummies of each family: an honest one, and one that breaks its contract.

`test_dummies.py` runs the contract suites with it, in a process of its own.
"""

from typing import ClassVar, Literal

import torch
from torch import nn

from recombine.decoders import DECODERS, DecoderSpec, StagedDecoder
from recombine.decoders.base import ToImage
from recombine.encodings import ENCODINGS, Encoding
from recombine.holdouts import HOLDOUTS, Holdout


@ENCODINGS.register
class DummyEncoding(Encoding):
    kind: Literal["dummy"] = "dummy"
    population: ClassVar[bool] = True
    neurons: ClassVar[int] = 2

    def size(self, factor):
        return self.neurons

    def code(self, values, factor):
        angle = 3 * factor.position(values) / factor.count
        return torch.stack([angle.sin(), angle.cos()], dim=-1)


@ENCODINGS.register
class WrongEncoding(DummyEncoding):
    kind: Literal["wrong_dummy"] = "wrong_dummy"
    neurons: ClassVar[int] = 3


@HOLDOUTS.register
class DummyHoldout(Holdout):
    kind: Literal["dummy"] = "dummy"

    def mask(self, grid):
        return (grid.indices == grid.indices[:, :1]).all(dim=1).reshape(grid.shape)


@HOLDOUTS.register
class WrongHoldout(Holdout):
    kind: Literal["wrong_dummy"] = "wrong_dummy"

    def mask(self, grid):
        return (grid.indices[:, 0] == 1).reshape(grid.shape)


@DECODERS.register
class DummyDecoder(DecoderSpec):
    kind: Literal["dummy"] = "dummy"
    surplus: ClassVar[int] = 0

    def build(self, interface):
        linear = nn.Linear(interface.code_size, interface.pixels + self.surplus)
        return StagedDecoder({"pixels": linear, "output": ToImage(interface.image_shape)})


@DECODERS.register
class WrongDecoder(DummyDecoder):
    kind: Literal["wrong_dummy"] = "wrong_dummy"
    surplus: ClassVar[int] = 1
