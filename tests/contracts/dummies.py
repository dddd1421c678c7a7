"""A pytest plug-in that registers one honest dummy of each family, and, if asked, a dishonest one.

`test_dummies.py` runs the contract suites with it, in a process of its own.
"""

import os
from typing import ClassVar, Literal

import torch
from torch import nn

from recombine.decoders import DECODERS, DecoderSpec, StagedDecoder
from recombine.decoders.base import ToImage
from recombine.encodings import ENCODINGS, Encoding
from recombine.holdouts import HOLDOUTS, Holdout

HONEST = os.environ.get("DUMMIES") != "dishonest"


@ENCODINGS.register
class DummyEncoding(Encoding):
    kind: Literal["dummy"] = "dummy"
    population: ClassVar[bool] = True

    def size(self, factor):
        return 2 if HONEST else 3

    def code(self, values, factor):
        angle = 3 * factor.position(values) / factor.count
        return torch.stack([angle.sin(), angle.cos()], dim=-1)


@HOLDOUTS.register
class DummyHoldout(Holdout):
    kind: Literal["dummy"] = "dummy"

    def mask(self, grid):
        same = (grid.indices == grid.indices[:, :1]).all(dim=1)
        return (same if HONEST else grid.indices[:, 0] == 1).reshape(grid.shape)


@DECODERS.register
class DummyDecoder(DecoderSpec):
    kind: Literal["dummy"] = "dummy"

    def build(self, interface):
        linear = nn.Linear(interface.code_size, interface.pixels + (not HONEST))
        return StagedDecoder({"pixels": linear, "output": ToImage(interface.image_shape)})
