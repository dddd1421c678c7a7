"""What a faster forward pass is: a function of a decoder's module, the layout of its parameters, weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.training.layout import FlatLayout


class MemberOutputs(NamedTuple):
    """Outputs and penalties of many members, one value per member; or of one network, without a member axis."""

    outputs: Tensor
    penalties: Mapping[str, Tensor] = {}


ForwardMembers = Callable[[StagedDecoder, FlatLayout, Tensor, Tensor, torch.dtype], MemberOutputs]
"""Module, layout, weights `(member, parameter)` in float32, inputs `(member, batch, …)` and the type to compute in."""
ForwardOne = Callable[[StagedDecoder, FlatLayout, Tensor, Tensor], MemberOutputs | None]
"""The same for one network that trains on a CPU in float32, without the member axis. First derivatives only, none of
the inputs. None where there is nothing better than the module itself."""


@dataclass(frozen=True)
class Forwards:
    """The faster forward passes of one decoder family; those that are missing are the module's own."""

    members: ForwardMembers | None = None
    one: ForwardOne | None = None
