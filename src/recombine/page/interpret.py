"""Programs run by torch: slow and obvious, to check a translation with before a browser sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recombine.page.program import Operation, Program

MAPS: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "expm1": torch.expm1,
    "log": torch.log, "log1p": torch.log1p, "log2": torch.log2, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "asin": torch.asin, "acos": torch.acos, "erf": torch.erf,
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "not": lambda x: (x == 0).float(),
    "truth": lambda x: (x != 0).float(),
    "gelu": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "leaky": lambda x, a: functional.leaky_relu(x, a),
    "elu": lambda x, a, b: torch.where(x > 0, x * b, a * b * torch.expm1(x.clamp(max=0))),
    "least": lambda x, a: x.clamp(min=a), "most": lambda x, a: x.clamp(max=a),
    "power": lambda x, a: x**a, "scale": lambda x, a, b: x * a + b,
}  # fmt: skip
"""Functions of one number, some with numbers `a` and `b`: `scale` is a·x + b, `least` and `most` are bounds."""

ZIPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "max": torch.maximum, "min": torch.minimum, "atan2": torch.atan2, "fmod": torch.fmod,
    "mod": torch.remainder,
    "gt": lambda x, y: (x > y).float(), "ge": lambda x, y: (x >= y).float(), "lt": lambda x, y: (x < y).float(),
    "le": lambda x, y: (x <= y).float(), "eq": lambda x, y: (x == y).float(), "ne": lambda x, y: (x != y).float(),
    "and": lambda x, y: ((x != 0) & (y != 0)).float(), "or": lambda x, y: ((x != 0) | (y != 0)).float(),
    "prelu": lambda x, y: torch.where(x > 0, x, x * y),
}  # fmt: skip
"""Functions of two numbers."""

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1), "mean": lambda x: x.mean(-1), "max": lambda x: x.amax(-1), "min": lambda x: x.amin(-1),
    "prod": lambda x: x.prod(-1), "any": lambda x: (x != 0).any(-1).float(), "all": lambda x: (x != 0).all(-1).float(),
    "norm": lambda x: x.square().sum(-1).sqrt(),
}  # fmt: skip


@torch.no_grad()
def interpret(program: Program, row: Tensor, constants: Mapping[int, Tensor] | None = None) -> dict[int, Tensor]:
    """All values of a program for one row of inputs; with other constants, if some are given."""
    values: dict[int, Tensor] = {**program.constants, **(constants or {})}
    values[0] = row.float().reshape(program.shapes[0])
    for operation in program.operations:
        inputs = [values[number].float() for number in operation.inputs]
        result = RUN[operation.name](operation, inputs, program.shapes[operation.output])
        values[operation.output] = result.reshape(program.shapes[operation.output])
    return values


def outputs(program: Program, rows: Tensor, constants: Mapping[int, Tensor] | None = None) -> Tensor:
    """The program's output for each row."""
    return torch.stack([interpret(program, row, constants)[program.output].flatten() for row in rows])


def _map(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    numbers = [operation.settings[name] for name in ("a", "b") if name in operation.settings]
    return MAPS[operation.settings["f"]](inputs[0], *numbers)


def _matmul(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    product = inputs[0] @ inputs[1]
    return product + inputs[2] if len(inputs) > 2 else product


def _conv(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    own = operation.settings
    bias = inputs[2] if len(inputs) > 2 else None
    steps = own["stride"], own["padding"], own["dilation"]
    return torch.convolution(inputs[0], inputs[1], bias, *steps, own["transposed"], own["extra"], own["groups"])


def _maxpool(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    own = operation.settings
    return functional.max_pool2d(inputs[0], own["kernel"], own["stride"], own["padding"], own["dilation"])


def _move(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    result = torch.full((math.prod(shape),), float(operation.settings["fill"]))
    for piece in operation.settings["pieces"]:
        source = inputs[piece["of"]].flatten()[strided(piece["shape"], piece["by"], piece["from"]).flatten()]
        result[strided(piece["shape"], piece["step"], piece["to"]).flatten()] = source
    return result


def strided(shape: list[int], strides: list[int], offset: int) -> Tensor:
    """Places of a box's numbers in an array."""
    places = torch.full(tuple(shape), offset)
    for axis, (count, stride) in enumerate(zip(shape, strides, strict=True)):
        places = places + (torch.arange(count) * stride).reshape(-1, *[1] * (len(shape) - axis - 1))
    return places


def _reduce(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    own = operation.settings
    if own["f"] == "var":
        return inputs[0].var(-1, correction=own["correction"])
    return REDUCTIONS[own["f"]](inputs[0])


def _softmax(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    return (torch.log_softmax if operation.settings["log"] else torch.softmax)(inputs[0], -1)


def _normalize(operation: Operation, inputs: list[Tensor], shape: Any) -> Tensor:
    return functional.layer_norm(inputs[0], inputs[0].shape[-1:], eps=operation.settings["epsilon"])


RUN: dict[str, Callable[[Operation, list[Tensor], Any], Tensor]] = {
    "view": lambda operation, inputs, shape: inputs[0],
    "map": _map,
    "zip": lambda operation, inputs, shape: ZIPS[operation.settings["f"]](*inputs),
    "where": lambda operation, inputs, shape: torch.where(inputs[0] != 0, inputs[1], inputs[2]),
    "matmul": _matmul, "conv": _conv, "maxpool": _maxpool, "move": _move,
    "take": lambda operation, inputs, shape: inputs[0].flatten()[inputs[1].long().flatten()],
    "embedding": lambda operation, inputs, shape: inputs[0][inputs[1].long()],
    "reduce": _reduce, "softmax": _softmax, "normalize": _normalize,
}  # fmt: skip
"""What each operation does."""
