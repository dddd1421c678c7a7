"""Decoders as chains of named stages, from `(batch, code)` to `(batch, y, x)` or `(batch, channel, y, x)`.

A spec (`CNN(width=64, depth=4)`) is a frozen record; `build` makes the `torch.nn.Module` for a given interface. It
describes only the architecture, not members, devices or kernels. `decoder.activations(codes)` returns the output of
every stage, which the per-layer metrics use.
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
    """Shapes of a decoder's input and output."""

    code_sizes: tuple[int, ...]
    """Size of each factor's code; codes are concatenated."""
    image_shape: tuple[int, ...]
    """`(y, x)`, or `(channel, y, x)` for colour; a single channel has no axis."""

    def __post_init__(self) -> None:
        if len(self.image_shape) not in (2, 3) or (len(self.image_shape) == 3 and self.image_shape[0] == 1):
            raise InvalidValue("image_shape", self.image_shape, "(y, x), or (channel, y, x) with at least two channels")

    @property
    def code_size(self) -> int:
        """Length of the code vector."""
        return sum(self.code_sizes)

    @property
    def channels(self) -> int:
        """Number of channels; 1 for grey images."""
        return self.image_shape[0] if len(self.image_shape) == 3 else 1

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.image_shape[-2:]
        return rows, columns

    @property
    def pixels(self) -> int:
        """Number of values in an image, including all channels."""
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
        """Names of the stages in order, `output` last."""
        return tuple(self.stages)

    def walk(self, inputs: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield each stage's name and output, in order."""
        for name, stage in self.stages.items():
            inputs = stage(inputs)
            yield name, inputs

    def activations(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return every stage's output by name."""
        return dict(self.walk(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        for _, activation in self.walk(inputs):
            inputs = activation
        return inputs


class DecoderSpec(Variant):
    """Hyperparameters of a decoder.

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
    free_signs: ClassVar[str | None] = None
    """Stage that holds one image per factor value, each with a free sign if the code is one-hot."""

    @abstractmethod
    def build(self, interface: Interface) -> StagedDecoder:
        """Return a newly initialised module, using torch's global random state."""


DECODERS: Registry[DecoderSpec] = Registry("decoder", DecoderSpec)
AnyDecoder = Annotated[SerializeAsAny[DecoderSpec], BeforeValidator(DECODERS.parse)]


class ToImage(nn.Module):
    """Reshape flat vectors of pixel values to images."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.reshape(len(pixels), *self.image_shape)


def build_seeded(spec: DecoderSpec, interface: Interface, seed: int) -> StagedDecoder:
    """Return a module initialised from a seed, without changing torch's global random state."""
    with seeded(seed):
        return spec.build(interface)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Give torch's global random state a seed within the block, and leave it as it was."""
    # torch.manual_seed formats the stack for every kind of device that there might be later
    seed_all = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed
    with torch.random.fork_rng(devices=[]):
        seed_all(seed)
        yield
