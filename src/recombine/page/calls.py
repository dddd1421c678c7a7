"""Calls in an exported graph, the registry of their translators, and translators for pointwise functions.

A translator receives a call with arguments named as in ATen's schema. Arguments that depend on the input are `Live`
values; all others are torch tensors or numbers.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recombine.page.program import Program


class Untranslatable(Exception):
    """Raised if a module cannot be translated; the message explains why."""


LIBRARY = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Folders of code that a user has not written."""


def code_line(error: BaseException) -> str:
    """Return the line of the user's code in which an error was raised, such as ` in mine.py, line 8: y[x]`."""
    frames = [own for own in traceback.extract_tb(error.__traceback__) if not own.filename.startswith(LIBRARY)]
    own = next((own for own in reversed(frames) if own.line), None)
    return (
        ""
        if own is None or own.line is None
        else f" in {Path(own.filename).name}, line {own.lineno}: {own.line.rstrip(':')}"
    )


@dataclass(frozen=True)
class Live:
    """A value that depends on the input."""

    number: int


@dataclass(frozen=True)
class Call:
    """A call in the exported graph."""

    program: Program
    target: Any
    arguments: dict[str, Any]
    shape: tuple[int, ...]
    """Shape of the first returned tensor."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def name(self) -> str:
        """ATen name of the operation."""
        return self.target._schema.name.removeprefix("aten::")

    def run(self, tensor: Tensor, field: str = "self") -> Tensor:
        """Run the call on a different tensor."""
        return self.target(**{**self.arguments, field: tensor})

    def emit(self, operation: str, inputs: Sequence[int], **settings: Any) -> int:
        """Emit an operation whose output has the shape returned by the call."""
        return self.program.emit(operation, inputs, self.shape, **settings)

    def value(self, name: str = "self") -> int:
        """Return an argument as a value of the program; tensors and numbers become constants."""
        return self.as_value(self.arguments[name])

    def as_value(self, argument: Any) -> int:
        if isinstance(argument, Live):
            return argument.number
        return self.program.constant(argument if isinstance(argument, Tensor) else torch.tensor(float(argument)))


def is_live(argument: Any) -> bool:
    """Return whether an argument, or any element of a list argument, depends on the input."""
    return isinstance(argument, Live) or (isinstance(argument, (list, tuple)) and any(map(is_live, argument)))


Translator = Callable[[Call], int]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for the named operations."""

    def register(translator: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(names, translator))
        return translator

    return register


SAME_NAME = (
    "relu", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "atan", "sinh", "cosh", "asin", "acos", "erf", "neg", "abs", "sign", "floor", "ceil", "round", "trunc",
)  # fmt: skip
"""Unary functions with the same name in ATen and on the page."""
PAIRS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min", "atan2": "atan2",
    "fmod": "fmod", "remainder": "mod", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le", "eq": "eq", "ne": "ne",
    "logical_and": "and", "logical_or": "or", "bitwise_and": "and", "bitwise_or": "or",
}  # fmt: skip


translates(*SAME_NAME, "logical_not", "bitwise_not")(lambda call: mapped(call, call.name.rpartition("_")[2]))
translates("gelu")(lambda call: mapped(call, "gelu_tanh" if call["approximate"] == "tanh" else "gelu"))
translates("leaky_relu")(lambda call: mapped(call, "leaky", a=call["negative_slope"]))
translates("where")(lambda call: call.emit("where", [call.value(name) for name in ("condition", "self", "other")]))


@translates("elu")
def _elu(call: Call) -> int:
    if call["input_scale"] != 1:
        raise Untranslatable("with an input_scale other than 1")
    return mapped(call, "elu", a=call["alpha"], b=call["scale"])


@translates("clamp", "hardtanh", "clamp_min", "clamp_max")
def _clamp(call: Call) -> int:
    value = call.value()
    for f, names in (("least", ("min", "min_val")), ("most", ("max", "max_val"))):
        bound = next((call[name] for name in names if call[name] is not None), None)
        if isinstance(bound, (Live, Tensor)):
            value = call.emit("zip", [value, call.as_value(bound)], f="max" if f == "least" else "min")
        elif bound is not None:
            value = call.emit("map", [value], f=f, a=float(bound))
    return value


@translates("pow")
def _pow(call: Call) -> int:
    if isinstance(call["exponent"], (int, float)):
        return mapped(call, "power", a=float(call["exponent"]))
    return call.emit("zip", [call.value(), call.value("exponent")], f="pow")


@translates(*PAIRS)
def _two(call: Call) -> int:
    name, other, alpha = call.name, call["other"], call["alpha"]
    if alpha not in (None, 1):
        scaled = call.as_value(other)
        other = Live(call.program.emit("map", [scaled], call.program.shapes[scaled], f="scale", a=float(alpha), b=0.0))
    if isinstance(other, (int, float)) and name in ("add", "sub", "mul", "div") and math.isfinite(other) and other:
        a = {"mul": float(other), "div": 1 / float(other)}.get(name, 1.0)
        b = {"add": float(other), "sub": -float(other)}.get(name, 0.0)
        value = mapped(call, "scale", a=a, b=b)
    else:
        value = call.emit("zip", [call.value(), call.as_value(other)], f=PAIRS[name])
    mode = call["rounding_mode"]
    return call.emit("map", [value], f=mode) if mode else value


@translates("prelu")
def _prelu(call: Call) -> int:
    """Translate PReLU with a single slope or one slope per channel (the second axis)."""
    slope = call["weight"]
    if isinstance(slope, Live):
        raise Untranslatable("with slopes that depend on the input")
    axes = (1,) * max(len(call.shape) - 2, 0)
    own = call.program.constant(slope.reshape(-1, *axes) if slope.numel() > 1 else slope.reshape(()))
    return call.emit("zip", [call.value(), own], f="prelu")


@translates("_to_copy")
def _to_copy(call: Call) -> int:
    dtype = call["dtype"]
    if dtype is None or dtype.is_floating_point:
        return call.value()
    if dtype.is_complex:
        raise Untranslatable("to complex numbers")
    return mapped(call, "truth" if dtype == torch.bool else "trunc")


def mapped(call: Call, f: str, **numbers: float) -> int:
    """Apply a unary function elementwise."""
    return call.emit("map", [call.value()], f=f, **numbers)
