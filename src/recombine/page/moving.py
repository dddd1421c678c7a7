"""Translators for calls that only move numbers: reshaping, slicing, joining, padding, nearest-neighbour resampling.

The origin of each number is found by running the operation on an array of indices 0, 1, 2, …. If the result is a box
(any combination of slicing, transposing, flipping and expanding), it is described by strides, otherwise by a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from recombine.page.calls import Call, Live, Untranslatable, is_live, translates
from recombine.page.program import Program, merged


def places(shape: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
    """Return the flat index of each element of an array."""
    return torch.arange(math.prod(shape), dtype=dtype).reshape(tuple(shape))


def moved(program: Program, value: int, move: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.int64) -> int:
    """Emit a copy of a value with its elements moved by a function."""
    shape = program.shapes[value]
    origin = move(places(shape, dtype)).long()
    if torch.equal(origin.flatten(), torch.arange(math.prod(shape))):
        return program.view(value, origin.shape)
    if (box := box_of(origin)) is not None:
        offset, strides = box
        piece = {"of": 0, "from": offset, "to": 0}
        piece |= merged(origin.shape, origin.contiguous().stride(), strides)
        return program.emit("move", [value], origin.shape, fill=0, pieces=[piece])
    return program.emit("take", [value, program.constant(origin.int())], origin.shape)


def placed(
    program: Program, shape: Sequence[int], parts: Sequence[tuple[int, Callable[[Tensor], Tensor]]], fill: float = 0.0
) -> int:
    """Emit an array filled with one number and copy values into it; each function selects a target region."""
    everywhere, pieces = places(shape), []
    for number, (_, region) in enumerate(parts):
        target = region(everywhere)
        if not target.numel():
            continue
        box = box_of(target)
        assert box is not None, "regions are boxes"
        offset, strides = box
        piece = {"of": number, "from": 0, "to": offset}
        pieces.append(piece | merged(target.shape, strides, target.contiguous().stride()))
    return program.emit("move", [value for value, _ in parts], shape, fill=fill, pieces=pieces)


def box_of(origin: Tensor) -> tuple[int, list[int]] | None:
    """Return the offset and strides of indices that form a box, or None if they do not."""
    if not origin.numel():
        return 0, [0] * origin.ndim
    array = origin.numpy()
    first = int(array.flat[0])
    seconds = [array[tuple(int(k == axis and n > 1) for k in range(array.ndim))] for axis, n in enumerate(array.shape)]
    strides = [int(second) - first for second in seconds]
    box = first + np.tensordot(strides, np.indices(array.shape), 1)
    return (first, strides) if np.array_equal(box, array) else None


@translates(
    "permute", "expand", "slice", "select", "flip", "unsqueeze", "squeeze", "alias", "clone", "detach", "view",
    "_unsafe_view", "reshape", "as_strided", "diagonal", "roll", "repeat", "t", "transpose", "index_select", "unfold",
    "lift_fresh_copy", "gather", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "rot90", "narrow", "movedim",
    "index", "_unsafe_index",
)  # fmt: skip
def _moved(call: Call) -> int:
    if any(is_live(argument) for name, argument in call.arguments.items() if name != "self"):
        raise Untranslatable("with arguments that depend on the input")
    return moved(call.program, call.value(), call.run)


@translates("upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "reflection_pad2d",
            "replication_pad2d", "reflection_pad1d", "replication_pad1d")  # fmt: skip
def _resampled(call: Call) -> int:
    field = next(iter(call.arguments))
    return moved(call.program, call.value(field), lambda origin: call.run(origin, field), torch.float64)


@translates("embedding")
def _embedding(call: Call) -> int:
    if isinstance(call["weight"], Live):
        raise Untranslatable("of a table that depends on the input")
    return call.emit("embedding", [call.value("weight"), call.value("indices")])


@translates("cat")
def _cat(call: Call) -> int:
    axis, parts, start = call["dim"] or 0, [], 0
    for value in map(call.as_value, call["tensors"]):
        shape = call.program.shapes[value]
        if not math.prod(shape):
            continue  # an empty tensor may have fewer axes
        count = shape[axis]
        parts.append((value, lambda whole, start=start, count=count: whole.narrow(axis, start, count)))
        start += count
    return placed(call.program, call.shape, parts)


@translates("constant_pad_nd")
def _pad(call: Call) -> int:
    pads = list(call["pad"])
    crops, grows = [min(pad, 0) for pad in pads], [max(pad, 0) for pad in pads]
    value = call.value()
    if any(crops):
        value = moved(call.program, value, lambda origin: torch.constant_pad_nd(origin, crops))
    inverse = [-pad for pad in grows]
    region = lambda whole: torch.constant_pad_nd(whole, inverse)  # noqa: E731
    return placed(call.program, call.shape, [(value, region)], float(call["value"] or 0))


translates("copy")(lambda call: moved(call.program, call.value("src"), lambda origin: origin.expand(call.shape)))


@translates("slice_scatter", "select_scatter")
def _scatter(call: Call) -> int:
    """Translate an assignment to a slice of a tensor."""
    name = call.name.removesuffix("_scatter")
    given = [value for key, value in call.arguments.items() if key not in ("self", "src")]
    take = lambda whole: getattr(torch.ops.aten, name)(whole, *given)  # noqa: E731
    return placed(call.program, call.shape, [(call.value(), lambda whole: whole), (call.value("src"), take)])
