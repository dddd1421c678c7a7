"""Operations that only move numbers: which number goes where is seen by moving the numbers' own places.

An operation is run on an array that holds 0, 1, 2, …; what comes out says where every number came from. Where these
places are a box (any mixture of slicing, transposing, flipping and expanding) a few strides describe them; anything
else is a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from recombine.page.interpret import strided
from recombine.page.program import Program


def places(shape: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
    """Each number's place in an array of this shape."""
    return torch.arange(math.prod(shape), dtype=dtype).reshape(tuple(shape))


def moved(program: Program, value: int, move: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.int64) -> int:
    """The value after its numbers have been moved by a function."""
    shape = program.shapes[value]
    origin = move(places(shape, dtype)).long()
    if torch.equal(origin.flatten(), torch.arange(math.prod(shape))):
        return program.view(value, origin.shape)
    if (box := box_of(origin)) is not None:
        offset, strides = box
        piece = {"of": 0, "from": offset, "to": 0}
        piece |= merged(list(origin.shape), strides, _contiguous(origin.shape))
        return program.emit("move", [value], origin.shape, fill=0, pieces=[piece])
    return program.emit("take", [value, program.constant(origin.int())], origin.shape)


def placed(
    program: Program, shape: Sequence[int], parts: Sequence[tuple[int, Callable[[Tensor], Tensor]]], fill: float = 0.0
) -> int:
    """An array filled with one number, into which values are copied one after another.

    Each part is a value and a function that takes, of the whole array, the box where it goes.
    """
    everywhere, pieces = places(shape), []
    for number, (_, region) in enumerate(parts):
        target = region(everywhere)
        if not target.numel():
            continue
        box = box_of(target)
        assert box is not None, "regions are boxes"
        offset, strides = box
        piece = {"of": number, "from": 0, "to": offset}
        pieces.append(piece | merged(list(target.shape), _contiguous(target.shape), strides))
    return program.emit("move", [value for value, _ in parts], shape, fill=fill, pieces=pieces)


def box_of(origin: Tensor) -> tuple[int, list[int]] | None:
    """Offset and strides of places that form a box; none where they form no box."""
    if not origin.numel():
        return 0, [0] * origin.ndim
    first = int(origin.flatten()[0])
    strides = []
    for axis, count in enumerate(origin.shape):
        second = origin.movedim(axis, 0).flatten(1)[1, 0] if count > 1 and origin.ndim > 1 else None
        second = origin[1] if count > 1 and origin.ndim == 1 else second
        strides.append(0 if second is None else int(second) - first)
    return (first, strides) if torch.equal(strided(list(origin.shape), strides, first), origin) else None


def merged(shape: list[int], by: list[int], step: list[int]) -> dict[str, Any]:
    """The same box with as few axes as possible; `by` are strides of the source, `step` those of the target."""
    axes: list[tuple[int, int, int]] = []
    for count, source, target in zip(shape, by, step, strict=True):
        if count == 1:
            continue
        if axes and axes[-1][1:] == (source * count, target * count):
            axes[-1] = (axes[-1][0] * count, source, target)
        else:
            axes.append((count, source, target))
    axes = axes or [(1, 0, 0)]
    return {"shape": [a[0] for a in axes], "by": [a[1] for a in axes], "step": [a[2] for a in axes]}


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
