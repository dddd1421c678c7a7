"""Reductions, softmax and normalisations: runs of numbers that are taken together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from recombine.page.aten.calls import Call, Live, Untranslatable, translates
from recombine.page.movement import moved

REDUCED = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "prod", "any": "any", "all": "all",
           "var": "var", "linalg_vector_norm": "norm", "max": "max", "min": "min"}  # fmt: skip


@translates(*REDUCED)
def _reduced(call: Call) -> int:
    f = REDUCED[call.target._schema.name.removeprefix("aten::")]
    settings: dict[str, Any] = {"f": f}
    if f == "var":
        settings["correction"] = float(1 if call["correction"] is None else call["correction"])
    if f == "norm" and call["ord"] != 2:
        raise Untranslatable("of another order than 2")
    size, dims = call.size(), call["dim"]
    axes = range(len(size)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    last = sorted({axis % len(size) for axis in axes}) if size else []
    rows, _ = rows_of(call, call.value(), last)
    count = call.program.shapes[rows][0]
    return call.program.view(call.program.emit("reduce", [rows], (count,), **settings), call.shape)


@translates("_softmax", "_log_softmax")
def _soft(call: Call) -> int:
    axis = call["dim"] % len(call.shape)
    rows, order = rows_of(call, call.value(), [axis])
    log = "log" in str(call.target)
    value = call.program.emit("softmax", [rows], call.program.shapes[rows], log=log)
    value = call.program.view(value, [call.shape[k] for k in order])
    back = [order.index(k) for k in range(len(order))]
    return moved(call.program, value, lambda origin: origin.permute(back))


@translates("native_layer_norm")
def _layer_norm(call: Call) -> int:
    return normalized(call, math.prod(call["normalized_shape"]), call["eps"], call["weight"], call["bias"], ())


@translates("native_group_norm")
def _group_norm(call: Call) -> int:
    count = math.prod(call.shape) // (call.shape[0] * call["group"])
    return normalized(call, count, call["eps"], call["weight"], call["bias"], (1,) * (len(call.shape) - 2))


@translates("_native_batch_norm_legit")
def _instance_norm(call: Call) -> int:
    if call.shape[0] != 1 or not call["training"] or call["running_mean"] is not None:
        raise Untranslatable("with statistics of a batch")
    count = math.prod(call.shape[2:])
    return normalized(call, count, call["eps"], call["weight"], call["bias"], (1,) * (len(call.shape) - 2))


@translates("_native_batch_norm_legit_no_training")
def _batch_norm(call: Call) -> int:
    scale = (call["running_var"] + call["eps"]).rsqrt()
    scale = scale if call["weight"] is None else scale * call["weight"]
    shift = -call["running_mean"] * scale
    shift = shift if call["bias"] is None else shift + call["bias"]
    return affine(call, call.value("input"), scale, shift, (1,) * (len(call.shape) - 2))


def normalized(call: Call, count: int, epsilon: float, scale: Any, shift: Any, axes: tuple[int, ...]) -> int:
    """Runs of `count` numbers without their mean and with variance 1; then scaled and shifted."""
    value = call.value("input")
    rows = call.program.view(value, (math.prod(call.shape) // count, count))
    value = call.program.emit("normalize", [rows], call.program.shapes[rows], epsilon=float(epsilon))
    return affine(call, call.program.view(value, call.shape), scale, shift, axes)


def affine(call: Call, value: int, scale: Any, shift: Any, axes: tuple[int, ...]) -> int:
    """The value times `scale`, plus `shift`; both are followed by so many axes of one."""
    for f, factor in (("mul", scale), ("add", shift)):
        if isinstance(factor, Live):
            raise Untranslatable("with weights that depend on the input")
        if factor is not None:
            own = call.program.constant(factor.reshape(*factor.shape, *axes))
            value = call.program.emit("zip", [value, own], call.shape, f=f)
    return value


def rows_of(call: Call, value: int, last: Iterable[int]) -> tuple[int, list[int]]:
    """The value as `(row, n)`, n being all numbers of the last axes given; and the order of its axes."""
    shape, last = call.program.shapes[value], list(last)
    order = [axis for axis in range(len(shape)) if axis not in last] + last
    value = moved(call.program, value, lambda origin: origin.permute(order)) if shape else value
    count = math.prod(shape[axis] for axis in last)
    return call.program.view(value, (math.prod(shape) // max(count, 1), count)), order
