"""The whole transposed-convolution decoder, forward and backward, on the compiled kernels."""

from __future__ import annotations

import ctypes
from functools import cached_property
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


class Plan:
    """A decoder's shape: code, pixels a side and channels of the first stage, which of its layers double the size."""

    def __init__(self, code: int, first: int, channels: int, ups: tuple[bool, ...]) -> None:
        self.code, self.first, self.channels, self.ups = code, first, channels, ups

    @cached_property
    def arguments(self) -> list[Any]:
        """What every kernel wants to know first."""
        numbers = [ctypes.c_long(number) for number in (self.code, self.first, self.channels, len(self.ups))]
        return [*numbers, (ctypes.c_ubyte * len(self.ups))(*self.ups)]

    def sizes(self, batch: int) -> Sizes:
        """How much room a batch takes."""
        found = (ctypes.c_long * len(Sizes._fields))()
        library().recombine_sizes(*self.arguments, ctypes.c_long(batch), found)
        return Sizes(*found)


class Convolutional(torch.autograd.Function):
    """`(batch, code)` to `(batch, y, x)`; gradients of the parameters alone.

    `vector` has those of `FromPoint`, transposed convolutions and `ToChannel`, weight and bias in turn.
    """

    @staticmethod
    def forward(ctx: Any, vector: Tensor, codes: Tensor, plan: Plan) -> Tensor:
        vector, codes, batch = vector.contiguous(), codes.contiguous(), len(codes)
        sizes = plan.sizes(batch)
        if vector.dtype != torch.float32 or vector.ndim != 1 or len(vector) < sizes.parameters:
            raise ValueError(f"vector: {vector.dtype} of {tuple(vector.shape)}; wanted: {sizes.parameters} in float32")
        if codes.dtype != torch.float32 or codes.shape != (batch, plan.code):
            raise ValueError(f"codes: {codes.dtype} of {tuple(codes.shape)}; wanted: (batch, {plan.code}) in float32")
        prepared, stages = _room(sizes.prepared), _room(sizes.stages)
        drawn = codes.new_empty(batch, sizes.drawn, sizes.drawn)
        _call("prepare", plan, vector, prepared)
        by_chunks(
            batch,
            lambda first, last, chunk: _call(
                "forward", plan, vector, prepared, codes, stages, drawn, batch, first, last
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
        below = _room(batch * (plan.first + 2) ** 2 * plan.channels)
        sums = _room(chunks * ctx.sizes.sums)
        by_chunks(
            batch,
            lambda first, last, chunk: _call(
                "backward", plan, prepared, stages, gradient, below, sums[chunk * ctx.sizes.sums :], batch, first, last
            ),
        )
        found = gradient.new_zeros(ctx.size)
        _call("finish", plan, codes, below, gradient, sums, chunks, found, batch)
        ctx.rooms = None
        for room in (prepared, stages, below, sums):
            _give_back(room)
        return found, None, None


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
