"""How metrics reach the stages of a network (Eq. 21–22), within a memory budget.

A *reader* runs a network on rows of factor values and hands each stage's activation to a *tap*, at the moment it is
computed: `reader(values, tap)`, `tap(name, activation)`. Activations are `(*member, point, …)`, with as many member
axes as the metric's `members` says. A tap must use an activation at once: a later in-place operation may overwrite it.

Rows must not meet inside the network (no batch statistics): a row's activations depend on that row's values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

Tap = Callable[[str, Tensor], None]
Reader = Callable[[Tensor, Tap], None]
Encode = Callable[[Tensor], Tensor]
T = TypeVar("T")

MEMORY = 1 << 30
"""Default budget in bytes for what a metric keeps at a time."""
FEWEST = 2
"""Rows that a network is given at least: many modules drop the batch dimension of a single one."""
SAMPLED = 1 << 14
"""Features of a stage that a check looks at."""
INPUT = "input"
"""Name of the stage before the network: the code itself."""


class _Walk(nn.Module):
    """A decoder whose forward gives all its stages."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return dict(self.decoder.walk(inputs))  # type: ignore[operator]


def ensemble_reader(decoder: nn.Module, weights: Mapping[str, Tensor], encode: Encode) -> Reader:
    """A reader of all members of an ensemble at once; one alone is run as it is, without `vmap`.

    It hands out `input`, which `encode` makes of factor values, and the decoder's stages, with one member axis. Weights
    are named as the decoder's parameters, each with a leading member axis.
    """
    walk = _Walk(decoder)
    stacked = {f"decoder.{name}": weight for name, weight in weights.items()}
    members = len(next(iter(weights.values())))

    def read(values: Tensor, tap: Tap) -> None:
        inputs = encode(values)
        tap(INPUT, inputs.expand(members, *inputs.shape))
        for name, activation in over_members(walk, stacked, inputs).items():
            tap(name, activation)

    return read


def over_members(module: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> Any:
    """What a module gives for the same inputs with each member's weights, with a leading member axis.

    A tensor or a dict of tensors, as the module gives.
    """
    if len(next(iter(weights.values()))) > 1:
        return vmap(lambda member: functional_call(module, member, (inputs,)))(dict(weights))
    alone = functional_call(module, {name: weight[0] for name, weight in weights.items()}, (inputs,))
    return alone[None] if isinstance(alone, Tensor) else {name: activation[None] for name, activation in alone.items()}


def precision(device: torch.device) -> torch.dtype:
    """The finest floating numbers that a device has."""
    return torch.float32 if device.type == "mps" else torch.float64


def flat(activation: Tensor, members: int = 0) -> Tensor:
    """`(*member, point, feature)`, in float32 at least, whatever shape a stage has."""
    whole = activation if activation.dtype in (torch.float32, torch.float64) else activation.float()
    return whole.reshape(*whole.shape[: members + 1], -1)


def sampled(stage: Tensor) -> Tensor:
    """A `(…, feature)` stage, or every so many of its features where there are more than `SAMPLED`, for checks."""
    return stage[..., :: max(1, stage.shape[-1] // SAMPLED)]


def chunks(points: Tensor, size: int) -> Sequence[Tensor]:
    """Points in parts of about equal length, of `size` at most but never of fewer than two."""
    return points.tensor_split(max(1, min(-(-len(points) // max(1, size)), len(points) // FEWEST)))


def tapped(reader: Reader, values: Tensor, keep: Callable[[Tensor], T]) -> dict[str, T]:
    """What is kept of every stage's activation at some values, by the stage's name."""
    kept: dict[str, T] = {}

    def tap(name: str, activation: Tensor) -> None:
        kept[name] = keep(activation)

    reader(values, tap)
    return kept


def stage_sizes(reader: Reader, points: Float[Tensor, "point factor"], members: int = 0) -> dict[str, int]:
    """How many numbers each stage holds per point, all members together.

    >>> stage_sizes(lambda values, tap: tap("output", values), torch.zeros(5, 2))
    {'output': 2}
    """
    with torch.no_grad():
        return tapped(reader, points[:FEWEST], lambda activation: activation.numel() // activation.shape[members])


def features(
    reader: Reader, points: Float[Tensor, "point factor"], *, members: int = 0, memory: int = MEMORY
) -> Iterator[tuple[str, Tensor]]:
    """Each stage's name and `(*member, point, feature)` activations, one after the other.

    As many stages are kept at a time as fit into half of the budget in bytes (at least one); the network runs again for
    the next ones. Points go through in chunks that fit the other half. `members` is the number of member axes before
    the points' in every activation.
    """
    sizes = stage_sizes(reader, points, members)
    size = memory // 2 // (4 * sum(sizes.values()))
    for group in _groups(sizes, memory // 2 // (4 * len(points))):
        kept: dict[str, list[Tensor]] = {name: [] for name in group}

        def tap(name: str, activation: Tensor, kept: dict[str, list[Tensor]] = kept) -> None:
            if name in kept:
                kept[name].append(flat(activation.detach(), members).clone())

        with torch.no_grad():
            for part in chunks(points, size):
                reader(part, tap)
        for name in group:
            yield name, torch.cat(kept.pop(name), dim=members)


def _groups(sizes: Mapping[str, int], capacity: int) -> Iterator[list[str]]:
    """Stages in order, as many together as fit."""
    group: list[str] = []
    for name, size in sizes.items():
        if group and sum(sizes[other] for other in group) + size > capacity:
            yield group
            group = []
        group.append(name)
    if group:
        yield group
