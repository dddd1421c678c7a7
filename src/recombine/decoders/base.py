"""What every decoder is: a chain of named stages.

A spec (`CNN(width=64, depth=4)`) is a frozen record; `build` makes the `torch.nn.Module` for a given interface. A
decoder maps `(batch, code)` to `(batch, y, x)` and describes architecture only: no members, devices or kernels. Where
there is a faster way to run one, `recombine.training.dispatch` knows it.

Stages are reached by walking the chain, `decoder.activations(codes)`, without hooks and without side effects; a
stage's output is what the per-layer metrics read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn

from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.frozen import Variant
from recombine.registry import Registry


@dataclass(frozen=True)
class Interface:
    """The two ends of a decoder."""

    code_sizes: tuple[int, ...]
    """Neurons of each factor's code, side by side in the code vector."""
    image_shape: tuple[int, int]
    """Rows and columns."""

    @property
    def code_size(self) -> int:
        """Length of the code vector."""
        return sum(self.code_sizes)

    @property
    def pixels(self) -> int:
        """Pixels of an image."""
        return self.image_shape[0] * self.image_shape[1]


class StagedDecoder(nn.Module):
    """A chain of named stages."""

    @checked
    def __init__(self, stages: Mapping[str, nn.Module]) -> None:
        super().__init__()
        try:
            self.stages = nn.ModuleDict(stages)
        except KeyError as error:  # a name with a dot in it, or one that torch needs itself
            raise InvalidValue("stages", list(stages), f"names of modules ({error})") from error

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

    def penalties(self) -> dict[str, Tensor]:
        """Scalars, `entropy` and `variance`, that the recipe may weigh into the loss; most decoders have none."""
        return {}


class DecoderSpec(Variant):
    """Hyper-parameters of one decoder family."""

    direction: ClassVar[Literal["decode", "encode"]] = "decode"
    """Code to image, or image to code."""
    penalised: ClassVar[bool] = False
    """Whether the module has penalties."""

    @abstractmethod
    def build(self, interface: Interface) -> StagedDecoder:
        """A freshly initialised module (from torch's global random state)."""


DECODERS: Registry[DecoderSpec] = Registry("decoder", DecoderSpec)
AnyDecoder = Annotated[SerializeAsAny[DecoderSpec], BeforeValidator(DECODERS.parse)]


class ToImage(nn.Module):
    """The last reshaping: pixels to rows and columns, whatever the trailing singleton axes were."""

    def __init__(self, image_shape: tuple[int, int]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.reshape(len(pixels), *self.image_shape)


def build_seeded(spec: DecoderSpec, interface: Interface, seed: int) -> StagedDecoder:
    """A module initialised from its own random stream, leaving torch's global one as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return spec.build(interface)
