"""What every decoder is: a chain of named stages.

A spec (`CNN(width=64, depth=4)`) is a frozen record; `build` makes the `torch.nn.Module` for a given interface. A
decoder maps `(batch, code)` to `(batch, y, x)`, or to `(batch, channel, y, x)` where images have colour, and describes
architecture only: no members, devices or kernels. Where there is a faster way to run one, `recombine.training.dispatch`
knows it.

Stages are reached by walking the chain, `decoder.activations(codes)`, without hooks and without side effects; a
stage's output is what the per-layer metrics read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn

from recombine.errors import InvalidValue
from recombine.records import Registry, Variant


@dataclass(frozen=True)
class Interface:
    """The two ends of a decoder."""

    code_sizes: tuple[int, ...]
    """Neurons of each factor's code, side by side in the code vector."""
    image_shape: tuple[int, ...]
    """Rows and columns; of colour images channels, rows and columns. One channel is grey and has no axis."""

    def __post_init__(self) -> None:
        if len(self.image_shape) not in (2, 3) or (len(self.image_shape) == 3 and self.image_shape[0] == 1):
            raise InvalidValue("image_shape", self.image_shape, "(y, x), or (channel, y, x) of two channels or more")

    @property
    def code_size(self) -> int:
        """Length of the code vector."""
        return sum(self.code_sizes)

    @property
    def channels(self) -> int:
        """Colour channels; 1 where images are grey."""
        return self.image_shape[0] if len(self.image_shape) == 3 else 1

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.image_shape[-2:]
        return rows, columns

    @property
    def pixels(self) -> int:
        """Numbers of an image, all channels together."""
        return math.prod(self.image_shape)


class StagedDecoder(nn.Module):
    """A chain of named stages.

    Parameters
    ----------
    stages
        Modules by name, in order; the last is called `output`.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> decoder = rc.StagedDecoder({"hidden": torch.nn.Linear(2, 4), "output": torch.nn.Linear(4, 3)})
    >>> {name: tuple(values.shape) for name, values in decoder.activations(torch.zeros(5, 2)).items()}
    {'hidden': (5, 4), 'output': (5, 3)}
    """

    def __init__(self, stages: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages in order, `output` last."""
        return tuple(self.stages)

    def walk(self, inputs: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each stage's name and output, in order."""
        for name, stage in self.stages.items():
            inputs = stage(inputs)
            yield name, inputs

    def activations(self, inputs: Tensor) -> dict[str, Tensor]:
        """Every stage's output by name."""
        return dict(self.walk(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        for _, activation in self.walk(inputs):
            inputs = activation
        return inputs


class DecoderSpec(Variant):
    """Hyper-parameters of one decoder family.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.DECODERS.parse("cnn:width=16").replace(depth=2)
    CNN(kind='cnn', width=16, depth=2)
    >>> rc.DECODERS.parse("mlp:width=8") == rc.MLP(width=8)
    True
    """

    direction: ClassVar[Literal["decode", "encode"]] = "decode"
    """Code to image, or image to code."""

    @abstractmethod
    def build(self, interface: Interface) -> StagedDecoder:
        """A freshly initialised module (from torch's global random state)."""


DECODERS: Registry[DecoderSpec] = Registry("decoder", DecoderSpec)
AnyDecoder = Annotated[SerializeAsAny[DecoderSpec], BeforeValidator(DECODERS.parse)]


class ToImage(nn.Module):
    """The last reshaping: an image's numbers to its axes, whatever the trailing singleton axes were."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.reshape(len(pixels), *self.image_shape)


def build_seeded(spec: DecoderSpec, interface: Interface, seed: int) -> StagedDecoder:
    """A module initialised from its own random stream."""
    with seeded(seed):
        return spec.build(interface)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Give torch's global random state a seed within the block, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
