"""The whole transposed-convolution decoder, forward and backward, on the compiled kernels."""

from __future__ import annotations

import ctypes
import math
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recombine.native.build import library
from recombine.native.chunks import by_chunks, chunks_of


class Sizes(NamedTuple):
    """Numbers of: parameters, weights as kernels read them, a batch's stages, a chunk's sums; and pixels a side."""

    parameters: int
    prepared: int
    stages: int
    sums: int
    drawn: int


BLOCK = 16
"""Channels that kernels handle at a time."""


class Plan:
    """A decoder's shape: code, pixels a side and channels of the first stage, which of its layers double the size.

    Kernels handle whole blocks of channels. Other widths are padded with channels whose weights and biases are zero:
    they stay zero after every ReLU, nothing depends on them, and their gradients are dropped.
    """

    def __init__(self, code: int, first: int, channels: int, ups: tuple[bool, ...]) -> None:
        self.code, self.first, self.channels, self.ups = code, first, channels, ups
        self.padded_channels = -(-channels // BLOCK) * BLOCK

    @cached_property
    def arguments(self) -> list[Any]:
        """What every kernel wants to know first."""
        numbers = [ctypes.c_long(number) for number in (self.code, self.first, self.padded_channels, len(self.ups))]
        return [*numbers, (ctypes.c_ubyte * len(self.ups))(*self.ups)]

    def sizes(self, batch: int) -> Sizes:
        """How much memory a batch takes, padding included."""
        numbers = (ctypes.c_long * len(Sizes._fields))()
        library().recombine_sizes(*self.arguments, ctypes.c_long(batch), numbers)
        return Sizes(*numbers)

    @cached_property
    def parameters(self) -> int:
        """Numbers of a network, without padding."""
        return sum(math.prod(shape) for shape in self._shapes(self.channels))

    @property
    def pads(self) -> bool:
        """Whether there are channels for the kernels alone."""
        return self.padded_channels != self.channels

    def padded(self, vector: Tensor) -> Tensor:
        """A network's parameters among zeros, as kernels read them."""
        if not self.pads:
            return vector
        places = _places_of(*self.key)
        return vector.new_zeros(self.sizes(1).parameters).index_copy_(0, places, vector[: len(places)])

    def cropped(self, gradient: Tensor, size: int) -> Tensor:
        """The gradient of a network's parameters, and zeros up to a size, without those of the padding."""
        own = gradient.index_select(0, _places_of(*self.key)) if self.pads else gradient[: self.parameters]
        return own if len(own) == size else torch.cat([own, own.new_zeros(size - len(own))])

    def _shapes(self, channels: int) -> list[tuple[int, ...]]:
        """Of the weights and biases, in order."""
        shapes: list[tuple[int, ...]] = [(self.code, channels, self.first, self.first), (channels,)]
        for up in self.ups:
            side = 4 if up else 3
            shapes += [(channels, channels, side, side), (channels,)]
        return [*shapes, (1, channels, 3, 3), (1,)]

    @property
    def key(self) -> tuple[int, int, int, tuple[bool, ...]]:
        """What tells it from others."""
        return self.code, self.first, self.channels, self.ups


class Convolutional(torch.autograd.Function):
    """`(batch, code)` to `(batch, y, x)`; gradients of the parameters alone.

    `vector` has those of `FromPoint`, transposed convolutions and `ToChannel`, weight and bias in turn.
    """

    @staticmethod
    def forward(ctx: Any, vector: Tensor, codes: Tensor, plan: Plan) -> Tensor:
        vector, codes, batch = vector.contiguous(), codes.contiguous(), len(codes)
        sizes, size = plan.sizes(batch), plan.parameters
        if vector.dtype != torch.float32 or vector.ndim != 1 or len(vector) < size:
            raise ValueError(f"vector: {vector.dtype} of {tuple(vector.shape)}; wanted: {size} in float32")
        if codes.dtype != torch.float32 or codes.shape != (batch, plan.code):
            raise ValueError(f"codes: {codes.dtype} of {tuple(codes.shape)}; wanted: (batch, {plan.code}) in float32")
        prepared, stages = _room(sizes.prepared), _room(sizes.stages)
        drawn = codes.new_empty(batch, sizes.drawn, sizes.drawn)
        padded = plan.padded(vector)
        _call("prepare", plan, padded, prepared)
        by_chunks(
            batch,
            lambda first, last, chunk: _call(
                "forward", plan, padded, prepared, codes, stages, drawn, batch, first, last
            ),
        )
        ctx.save_for_backward(codes)
        ctx.plan, ctx.sizes, ctx.rooms, ctx.size = plan, sizes, (prepared, stages), len(vector)
        return drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.rooms is None:
            raise RuntimeError("a network on compiled kernels goes backward once: their memory is used again")
        (codes,), gradient, plan = ctx.saved_tensors, gradients[0].contiguous(), ctx.plan
        (prepared, stages), batch = ctx.rooms, len(codes)
        chunks = len(chunks_of(batch))
        below = _room(batch * (plan.first + 2) ** 2 * plan.padded_channels)
        sums = _room(chunks * ctx.sizes.sums)
        by_chunks(
            batch,
            lambda first, last, chunk: _call(
                "backward", plan, prepared, stages, gradient, below, sums[chunk * ctx.sizes.sums :], batch, first, last
            ),
        )
        padded = gradient.new_empty(ctx.sizes.parameters)
        _call("finish", plan, codes, below, gradient, sums, chunks, padded, batch)
        ctx.rooms = None
        for room in (prepared, stages, below, sums):
            _give_back(room)
        return plan.cropped(padded, ctx.size), None, None


@lru_cache(maxsize=64)
def _places_of(code: int, first: int, channels: int, ups: tuple[bool, ...]) -> Tensor:
    """Where each parameter of a network lies among the padded ones."""
    plan, parts, start = Plan(code, first, channels, ups), [], 0
    for own, padded in zip(plan._shapes(channels), plan._shapes(plan.padded_channels), strict=True):
        numbers = torch.arange(start, start + math.prod(padded)).view(padded)
        parts.append(numbers[tuple(slice(length) for length in own)].flatten())
        start += math.prod(padded)
    return torch.cat(parts)


def _call(name: str, plan: Plan, *arguments: Tensor | int) -> None:
    values = [
        ctypes.c_void_p(given.data_ptr()) if isinstance(given, Tensor) else ctypes.c_long(given) for given in arguments
    ]
    getattr(library(), f"recombine_{name}")(*plan.arguments, *values)


MOST_KEPT = 2**28
"""Numbers, a GiB of them."""
_rooms: dict[int, list[Tensor]] = {}
"""Memory that steps before have used, by size: asking the system for it costs more than filling it."""


def _room(size: int) -> Tensor:
    try:
        return _rooms[size].pop()
    except (KeyError, IndexError):
        return torch.empty(size, dtype=torch.float32, device="cpu")


def _give_back(room: Tensor) -> None:
    if sum(size * len(kept) for size, kept in list(_rooms.items())) + len(room) > MOST_KEPT:
        _rooms.clear()
    if len(room) <= MOST_KEPT:
        _rooms.setdefault(len(room), []).append(room)
