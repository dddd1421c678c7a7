"""Core ATen to operations of a program: one short function for each family.

A translator is given the program and the call, whose arguments have the names of ATen's schema: an argument that
depends on the input is a `Live` value, all others are tensors and numbers of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recombine.page.interpret import MAPS
from recombine.page.movement import moved, placed
from recombine.page.program import Program


class Untranslatable(Exception):
    """What the page's language cannot say, in a few words."""


@dataclass(frozen=True)
class Live:
    """A value that depends on the input."""

    number: int


@dataclass(frozen=True)
class Call:
    """One call of the exported graph."""

    program: Program
    target: Any
    arguments: dict[str, Any]
    shape: tuple[int, ...]
    """Of the first tensor that it returns."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def value(self, name: str = "self") -> int:
        """An argument as a value; tensors and numbers become constants."""
        return self.as_value(self.arguments[name])

    def as_value(self, argument: Any) -> int:
        """Anything as a value of the program."""
        if isinstance(argument, Live):
            return argument.number
        return self.program.constant(argument if isinstance(argument, Tensor) else torch.tensor(float(argument)))

    def size(self, name: str = "self") -> tuple[int, ...]:
        """Shape of an argument."""
        argument = self.arguments[name]
        return self.program.shapes[argument.number] if isinstance(argument, Live) else tuple(argument.shape)

    def only(self, name: str) -> None:
        """Refuse a call whose other arguments than this depend on the input."""
        if any(isinstance(a, Live) for key, a in self.arguments.items() if key != name):
            raise Untranslatable("with arguments that depend on the input")


Translator = Callable[[Call], int]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register the translator of some operations."""

    def register(translator: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(names, translator))
        return translator

    return register


# -- numbers one by one ------------------------------------------------------------------------------------------

SAME_NAME = {name for name in MAPS if len(name) > 2} - {"not", "truth", "leaky", "least", "most", "power", "scale",
                                                       "gelu", "gelu_tanh", "elu"}  # fmt: skip
PAIRS = {
    "mul": "mul", "maximum": "max", "minimum": "min", "atan2": "atan2", "fmod": "fmod", "remainder": "mod",
    "gt": "gt", "ge": "ge", "lt": "lt", "le": "le", "eq": "eq", "ne": "ne", "logical_and": "and", "logical_or": "or",
    "bitwise_and": "and", "bitwise_or": "or",
}  # fmt: skip


@translates(*(SAME_NAME - {"sign"}), "sgn", "sign")
def _one(call: Call) -> int:
    name = call.target._schema.name.removeprefix("aten::")
    return mapped(call, "sign" if name == "sgn" else name)


@translates("logical_not", "bitwise_not")
def _not(call: Call) -> int:
    return mapped(call, "not")


@translates("gelu")
def _gelu(call: Call) -> int:
    return mapped(call, "gelu_tanh" if call["approximate"] == "tanh" else "gelu")


@translates("leaky_relu")
def _leaky(call: Call) -> int:
    return mapped(call, "leaky", a=call["negative_slope"])


@translates("elu")
def _elu(call: Call) -> int:
    if call["input_scale"] != 1:
        raise Untranslatable("with another input_scale than 1")
    return mapped(call, "elu", a=call["alpha"], b=call["scale"])


@translates("clamp", "hardtanh", "clamp_min", "clamp_max")
def _clamp(call: Call) -> int:
    value = call.value()
    for f, names in (("least", ("min", "min_val")), ("most", ("max", "max_val"))):
        bound = next((call[name] for name in names if call[name] is not None), None)
        if isinstance(bound, (Live, Tensor)):
            value = call.program.emit(
                "zip", [value, call.as_value(bound)], call.shape, f="max" if f == "least" else "min"
            )
        elif bound is not None:
            value = call.program.emit("map", [value], call.shape, f=f, a=float(bound))
    return value


@translates("pow")
def _pow(call: Call) -> int:
    if isinstance(call["exponent"], (int, float)):
        return mapped(call, "power", a=float(call["exponent"]))
    return call.program.emit("zip", [call.value(), call.value("exponent")], call.shape, f="pow")


@translates("add", "sub", "rsub", "div", *PAIRS)
def _two(call: Call) -> int:
    name = call.target._schema.name.removeprefix("aten::")
    one, other, alpha = call["self"], call["other"], call["alpha"]
    if name == "rsub":
        one, other, name = other, one, "sub"
    if alpha not in (None, 1):
        scaled = call.as_value(other)
        other = Live(call.program.emit("map", [scaled], call.program.shapes[scaled], f="scale", a=float(alpha), b=0.0))
    if isinstance(other, (int, float)) and name in ("add", "sub", "mul", "div") and math.isfinite(other) and other:
        a = {"mul": float(other), "div": 1 / float(other)}.get(name, 1.0)
        b = {"add": float(other), "sub": -float(other)}.get(name, 0.0)
        value = call.program.emit("map", [call.as_value(one)], call.shape, f="scale", a=a, b=b)
    else:
        value = call.program.emit(
            "zip", [call.as_value(one), call.as_value(other)], call.shape, f=PAIRS.get(name, name)
        )
    mode = call["rounding_mode"]
    return call.program.emit("map", [value], call.shape, f=mode) if mode else value


@translates("prelu")
def _prelu(call: Call) -> int:
    """A slope for each channel, which is the second axis, or one for all."""
    slope = call["weight"]
    if isinstance(slope, Live):
        raise Untranslatable("with slopes that depend on the input")
    axes = (1,) * max(len(call.shape) - 2, 0)
    own = call.program.constant(slope.reshape(-1, *axes) if slope.numel() > 1 else slope.reshape(()))
    return call.program.emit("zip", [call.value(), own], call.shape, f="prelu")


@translates("where")
def _where(call: Call) -> int:
    return call.program.emit("where", [call.value("condition"), call.value("self"), call.value("other")], call.shape)


@translates("_to_copy")
def _to_copy(call: Call) -> int:
    dtype = call["dtype"]
    if dtype is None or dtype.is_floating_point:
        return call.value()
    if dtype.is_complex:
        raise Untranslatable("to complex numbers")
    return mapped(call, "truth" if dtype == torch.bool else "trunc")


def mapped(call: Call, f: str, **numbers: float) -> int:
    """A function of each number."""
    return call.program.emit("map", [call.value()], call.shape, f=f, **numbers)


# -- numbers moved -----------------------------------------------------------------------------------------------


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


def run(call: Call, tensor: Tensor, field: str = "self") -> Tensor:
    """The call itself, on another tensor."""
    return call.target(**{**call.arguments, field: tensor})


# -- sums of products --------------------------------------------------------------------------------------------


@translates("mm", "bmm")
def _product(call: Call) -> int:
    return matmul(call, call.value(), call.value("mat2"))


@translates("addmm")
def _added_product(call: Call) -> int:
    if (call["alpha"], call["beta"]) != (1, 1):
        raise Untranslatable("with other weights than 1")
    bias, product = call.value(), (call.value("mat1"), call.value("mat2"))
    if call.program.shapes[bias] == call.shape[-1:]:
        return matmul(call, *product, bias)
    return call.program.emit("zip", [matmul(call, *product), bias], call.shape, f="add")


def matmul(call: Call, one: int, other: int, *bias: int) -> int:
    """The product of two matrices, or of as many pairs of them."""
    program = call.program
    pair = [program.view(v, (1,) * (3 - len(program.shapes[v])) + program.shapes[v]) for v in (one, other)]
    shape = (1,) * (3 - len(call.shape)) + call.shape
    return program.view(program.emit("matmul", [*pair, *bias], shape), call.shape)


@translates("convolution")
def _convolution(call: Call) -> int:
    program, (image, weight) = call.program, (call.value("input"), call.value("weight"))
    axes = len(program.shapes[image]) - 2
    if axes > 2:
        raise Untranslatable(f"over {axes} axes")
    if call["transposed"] and isinstance(call["weight"], Live):
        raise Untranslatable("with weights that depend on the input")
    rows = axes == 1  # an image of one row
    if rows:
        image, weight = (program.view(v, (*program.shapes[v][:2], 1, program.shapes[v][2])) for v in (image, weight))
    two = lambda name, alone: [alone, *call[name]] if rows else list(call[name])  # noqa: E731
    shape = (*call.shape[:2], 1, call.shape[2]) if rows else call.shape
    value = program.emit(
        "conv", [image, weight, *([] if call["bias"] is None else [call.value("bias")])], shape,
        stride=two("stride", 1), padding=two("padding", 0), dilation=two("dilation", 1),
        extra=two("output_padding", 0), groups=call["groups"], transposed=call["transposed"],
    )  # fmt: skip
    return program.view(value, call.shape)


@translates("avg_pool2d", "_adaptive_avg_pool2d", "upsample_bilinear2d", "upsample_bicubic2d", "avg_pool1d",
            "_upsample_bilinear2d_aa", "upsample_linear1d", "adaptive_avg_pool1d")  # fmt: skip
def _separable(call: Call) -> int:
    """A linear map of rows times one of columns, which are seen by mapping single rows and columns."""
    field = next(iter(call.arguments))
    program, value, size = call.program, call.value(field), call.size(field)
    rows, columns = (1, size[-1]) if len(call.shape) == 3 and "1d" in str(call.target) else size[-2:]
    planes = math.prod(size) // (rows * columns)

    def image(pixels: Tensor) -> Tensor:  # (one, y, x) as the call takes it
        shaped = pixels[:, 0] if len(size) == 3 and "1d" in str(call.target) else pixels
        return run(call, shaped[None], field)[0].reshape(len(pixels), -1, call.shape[-1])

    down = image(torch.eye(rows)[:, :, None].expand(-1, -1, columns).contiguous())
    across = image(torch.eye(columns)[:, None, :].expand(-1, rows, -1).contiguous())
    down, across = down[..., down.sum(0).amax(0).argmax()].T, across[:, across.sum(0).amax(-1).argmax()]
    test = torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(0))
    if not torch.allclose(down @ test @ across, image(test), atol=1e-5):
        raise Untranslatable("with weights that are no product of rows and columns")
    lines = program.view(value, (1, planes * rows, columns))
    lines = program.emit("matmul", [lines, program.constant(across[None])], (1, planes * rows, call.shape[-1]))
    lines = program.view(lines, (planes, rows, call.shape[-1]))
    factor = program.constant(down[None]) if rows > 1 else None
    if factor is not None:
        lines = program.emit("matmul", [factor, lines], (planes, down.shape[0], call.shape[-1]))
    return program.view(lines, call.shape)


@translates("max_pool2d_with_indices")
def _maximum(call: Call) -> int:
    pairs = {name: _pair(call[given]) for name, given in (("kernel", "kernel_size"), ("padding", "padding"),
                                                          ("dilation", "dilation"))}  # fmt: skip
    return call.program.emit("maxpool", [call.value()], call.shape, stride=_pair(call["stride"] or call["kernel_size"]),
                             **pairs)  # fmt: skip


def _pair(given: Sequence[int] | int) -> list[int]:
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers * 2 if len(numbers) == 1 else numbers


# -- rows of numbers ---------------------------------------------------------------------------------------------

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
