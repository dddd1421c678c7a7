"""Translators for matrix products, convolutions, pooling, resizing, reductions, softmax and normalisation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from recombine.page.calls import Call, Live, Untranslatable, translates
from recombine.page.moving import moved

REDUCED = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "prod", "any": "any", "all": "all",
           "var": "var", "linalg_vector_norm": "norm", "max": "max", "min": "min"}  # fmt: skip


translates("mm", "bmm")(lambda call: matmul(call, call.value(), call.value("mat2")))


@translates("addmm")
def _added_product(call: Call) -> int:
    if (call["alpha"], call["beta"]) != (1, 1):
        raise Untranslatable("with alpha or beta other than 1")
    bias, product = call.value(), (call.value("mat1"), call.value("mat2"))
    if call.program.shapes[bias] == call.shape[-1:]:
        return matmul(call, *product, bias)
    return call.emit("zip", [matmul(call, *product), bias], f="add")


def matmul(call: Call, left: int, right: int, *bias: int) -> int:
    """Emit the product of two matrices or two batches of matrices."""
    program = call.program
    pair = [program.view(v, (1,) * (3 - len(program.shapes[v])) + program.shapes[v]) for v in (left, right)]
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
    """Translate a linear map that acts on rows and columns separately, whose matrices are found by probing it."""
    field = next(iter(call.arguments))
    program, value = call.program, call.value(field)
    size = program.shapes[value]
    rows, columns = (1, size[-1]) if len(call.shape) == 3 and "1d" in str(call.target) else size[-2:]
    planes = math.prod(size) // (rows * columns)

    def image(pixels: Tensor) -> Tensor:  # runs the call on (image, y, x) pixels, in the layout that it expects
        shaped = pixels[:, 0] if len(size) == 3 and "1d" in str(call.target) else pixels
        return call.run(shaped[None], field)[0].reshape(len(pixels), -1, call.shape[-1])

    down = image(torch.eye(rows)[:, :, None].expand(-1, -1, columns).contiguous())
    across = image(torch.eye(columns)[:, None, :].expand(-1, rows, -1).contiguous())
    down, across = down[..., down.sum(0).amax(0).argmax()].T, across[:, across.sum(0).amax(-1).argmax()]
    test = torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(0))
    if not torch.allclose(down @ test @ across, image(test), atol=1e-5):
        raise Untranslatable("with weights that do not factorise into rows and columns")
    lines = program.view(value, (1, planes * rows, columns))
    lines = program.emit("matmul", [lines, program.constant(across[None])], (1, planes * rows, call.shape[-1]))
    lines = program.view(lines, (planes, rows, call.shape[-1]))
    if rows > 1:
        lines = program.emit("matmul", [program.constant(down[None]), lines], (planes, down.shape[0], call.shape[-1]))
    return program.view(lines, call.shape)


@translates("max_pool2d_with_indices")
def _maximum(call: Call) -> int:
    kernel, padding, dilation, stride = (
        (list(call[name]) * 2)[:2] for name in ("kernel_size", "padding", "dilation", "stride")
    )
    return call.emit(
        "maxpool", [call.value()], kernel=kernel, stride=stride or kernel, padding=padding, dilation=dilation
    )


@translates(*REDUCED)
def _reduced(call: Call) -> int:
    f = REDUCED[call.name]
    settings: dict[str, Any] = {"f": f}
    if f == "var":
        settings["correction"] = float(1 if call["correction"] is None else call["correction"])
    if f == "norm" and call["ord"] != 2:
        raise Untranslatable("of an order other than 2")
    value, dims = call.value(), call["dim"]
    size = call.program.shapes[value]
    axes = range(len(size)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    last = sorted({axis % len(size) for axis in axes}) if size else []
    rows, _ = rows_of(call, value, last)
    count = call.program.shapes[rows][0]
    return call.program.view(call.program.emit("reduce", [rows], (count,), **settings), call.shape)


@translates("_softmax", "_log_softmax")
def _soft(call: Call) -> int:
    axis = call["dim"] % len(call.shape)
    rows, order = rows_of(call, call.value(), [axis])
    value = call.program.emit("softmax", [rows], call.program.shapes[rows], log="log" in call.name)
    value = call.program.view(value, [call.shape[k] for k in order])
    back = [order.index(k) for k in range(len(order))]
    return moved(call.program, value, lambda origin: origin.permute(back))


@translates("native_layer_norm", "native_group_norm", "_native_batch_norm_legit")
def _normalized(call: Call) -> int:
    """Normalise rows (layers, groups, or channels of an instance) to mean 0 and variance 1."""
    instance = call.shape[0] == 1 and call["training"] and call["running_mean"] is None
    if call.name == "_native_batch_norm_legit" and not instance:
        raise Untranslatable("with batch statistics")
    if call["normalized_shape"] is not None:
        count = math.prod(call["normalized_shape"])
    else:
        count = math.prod(call.shape) // (call.shape[0] * (call["group"] or call.shape[1]))
    rows = call.program.view(call.value("input"), (math.prod(call.shape) // count, count))
    value = call.program.emit("normalize", [rows], call.program.shapes[rows], epsilon=float(call["eps"]))
    return affine(call, call.program.view(value, call.shape), call["weight"], call["bias"])


@translates("_native_batch_norm_legit_no_training")
def _batch_norm(call: Call) -> int:
    scale = (call["running_var"] + call["eps"]).rsqrt()
    scale = scale if call["weight"] is None else scale * call["weight"]
    shift = -call["running_mean"] * scale
    shift = shift if call["bias"] is None else shift + call["bias"]
    return affine(call, call.value("input"), scale, shift)


def affine(call: Call, value: int, scale: Any, shift: Any) -> int:
    """Multiply by `scale` and add `shift`, along the last axes for layer norm and per channel otherwise."""
    axes = () if call["normalized_shape"] is not None else (1,) * (len(call.shape) - 2)
    for f, factor in (("mul", scale), ("add", shift)):
        if isinstance(factor, Live):
            raise Untranslatable("with weights that depend on the input")
        if factor is not None:
            own = call.program.constant(factor.reshape(*factor.shape, *axes))
            value = call.emit("zip", [value, own], f=f)
    return value


def rows_of(call: Call, value: int, last: Iterable[int]) -> tuple[int, list[int]]:
    """Return the value as `(row, n)`, where n indexes the given axes, and the new order of its axes."""
    shape, last = call.program.shapes[value], list(last)
    order = [axis for axis in range(len(shape)) if axis not in last] + last
    value = moved(call.program, value, lambda origin: origin.permute(order)) if shape else value
    count = math.prod(shape[axis] for axis in last)
    return call.program.view(value, (math.prod(shape) // max(count, 1), count)), order
