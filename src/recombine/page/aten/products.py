"""Products of matrices, convolutions, and what is linear in rows and columns: pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from recombine.page.aten.calls import Call, Live, Untranslatable, run, translates


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
