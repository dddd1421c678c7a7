"""Calls that only move numbers: reshapes, slices, joins, padding, resampling to the nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from recombine.page.aten.calls import Call, Live, Untranslatable, run, translates
from recombine.page.movement import moved, placed


@translates(
    "permute", "expand", "slice", "select", "flip", "unsqueeze", "squeeze", "alias", "clone", "detach", "view",
    "_unsafe_view", "reshape", "as_strided", "diagonal", "roll", "repeat", "t", "transpose", "index_select", "unfold",
    "lift_fresh_copy", "gather", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "rot90", "narrow", "movedim",
)  # fmt: skip
def _moved(call: Call) -> int:
    call.only("self")
    return moved(call.program, call.value(), lambda origin: run(call, origin))


@translates("upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "reflection_pad2d",
            "replication_pad2d", "reflection_pad1d", "replication_pad1d")  # fmt: skip
def _resampled(call: Call) -> int:
    field = next(iter(call.arguments))
    return moved(call.program, call.value(field), lambda origin: run(call, origin, field), torch.float64)


@translates("index", "_unsafe_index")
def _index(call: Call) -> int:
    if any(isinstance(index, Live) for index in call["indices"]):
        raise Untranslatable("with indices that depend on the input")
    return moved(call.program, call.value(), lambda origin: run(call, origin))


@translates("embedding")
def _embedding(call: Call) -> int:
    if isinstance(call["weight"], Live):
        raise Untranslatable("of a table that depends on the input")
    return call.program.emit("embedding", [call.value("weight"), call.value("indices")], call.shape)


@translates("cat")
def _cat(call: Call) -> int:
    values = [call.as_value(tensor) for tensor in call["tensors"]]
    return joined(call, [v for v in values if math.prod(call.program.shapes[v])], call["dim"] or 0)


@translates("stack")
def _stack(call: Call) -> int:
    axis = call["dim"] or 0
    values = [call.as_value(tensor) for tensor in call["tensors"]]
    shape = (*call.shape[: axis % len(call.shape)], 1, *call.shape[axis % len(call.shape) + 1 :])
    return joined(call, [call.program.view(value, shape) for value in values], axis)


def joined(call: Call, values: Sequence[int], axis: int) -> int:
    """Values side by side along an axis."""
    parts, start = [], 0
    for value in values:
        count = call.program.shapes[value][axis]
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


@translates("copy")
def _copied(call: Call) -> int:
    return moved(call.program, call.value("src"), lambda origin: origin.expand(call.shape))


@translates("slice_scatter", "select_scatter")
def _scatter(call: Call) -> int:
    name = call.target._schema.name.removesuffix("_scatter")
    given = {key: value for key, value in call.arguments.items() if key not in ("self", "src")}
    overload = getattr(torch.ops.aten, name.removeprefix("aten::"))
    take = lambda whole: overload(whole, *given.values())  # noqa: E731
    return placed(call.program, call.shape, [(call.value(), lambda whole: whole), (call.value("src"), take)])
