"""Self-attention of many short sequences with narrow heads, read from and written to the layout of the linear layers.

A layer's queries, keys and values are `(sequence, token, 3, head, depth)`, as its linear layer gives them, and outputs
`(sequence, token, head, depth)`. Libraries need copies in another layout, and kernels for heads of at least 32 numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from recombine.kernels.triton.convolution import precision

QUERIES, KEYS = 128, 64
"""Tokens of a tile and those that it meets at a time."""
DEEPEST = 64
"""Largest depth of a head; above it, libraries are faster."""
LOG2E = tl.constexpr(1.4426950408889634)


def takes(depth: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels support heads of a depth and are faster for them."""
    return dtype == torch.bfloat16 and depth <= DEEPEST


@triton.jit
def _tile(tokens, TALL: tl.constexpr):
    """Return the first token of a tile, and its sequence; tiles of a sequence run together, as they share keys."""
    tiles = tl.cdiv(tokens, TALL)
    return tl.program_id(0) % tiles * TALL, (tl.program_id(0) // tiles).to(tl.int64)


@triton.jit
def _rows(values, first, step, tokens, depth, TALL: tl.constexpr, DEEP: tl.constexpr):
    """Load some tokens' vectors, with zeros where there are none."""
    row, column = first + tl.arange(0, TALL), tl.arange(0, DEEP)
    here = (row < tokens)[:, None] & (column < depth)[None, :]
    return tl.load(values + row[:, None] * step + column[None, :], mask=here, other=0.0)


@triton.jit
def _store(values, numbers, first, step, tokens, depth, TALL: tl.constexpr, DEEP: tl.constexpr):
    """Store some tokens' vectors."""
    row, column = first + tl.arange(0, TALL), tl.arange(0, DEEP)
    here = (row < tokens)[:, None] & (column < depth)[None, :]
    tl.store(values + row[:, None] * step + column[None, :], numbers.to(values.dtype.element_ty), mask=here)


@triton.jit
def _attended(
    mixed, outputs, logs, tokens, heads, scale,
    depth: tl.constexpr, PRECISION: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Compute the outputs of a tile of queries, and the logarithms of the sums of their weights."""
    first, sequence = _tile(tokens, TALL)
    head = tl.program_id(1)
    width = heads * depth
    base, step = mixed + sequence * tokens * 3 * width + head * depth, 3 * width
    query = _rows(base, first, step, tokens, depth, TALL, DEEP)
    largest, weight = tl.full((TALL,), -float("inf"), tl.float32), tl.zeros((TALL,), tl.float32)
    total = tl.zeros((TALL, DEEP), tl.float32)
    for start in range(0, tokens, WIDE):
        key = _rows(base + width, start, step, tokens, depth, WIDE, DEEP)
        value = _rows(base + 2 * width, start, step, tokens, depth, WIDE, DEEP)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * LOG2E)
        score = tl.where((start + tl.arange(0, WIDE) < tokens)[None, :], score, -float("inf"))
        higher = tl.maximum(largest, tl.max(score, axis=1))
        share, fall = tl.exp2(score - higher[:, None]), tl.exp2(largest - higher)
        weight = weight * fall + tl.sum(share, axis=1)
        total = total * fall[:, None] + tl.dot(share.to(value.dtype), value, input_precision=PRECISION)
        largest = higher
    _store(outputs + sequence * tokens * width + head * depth, total / weight[:, None], first, width, tokens, depth,
           TALL, DEEP)  # fmt: skip
    row = first + tl.arange(0, TALL)
    tl.store(logs + (sequence * heads + head) * tokens + row, largest + tl.log2(weight), mask=row < tokens)


@triton.jit
def _queries_back(
    mixed, outputs, up, below, logs, products, tokens, heads, scale,
    depth: tl.constexpr, PRECISION: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a tile of queries, and the products of their outputs and gradients."""
    first, sequence = _tile(tokens, TALL)
    head = tl.program_id(1)
    width, row = heads * depth, first + tl.arange(0, TALL)
    place, step = sequence * tokens * 3 * width + head * depth, 3 * width
    inner, line = sequence * tokens * width + head * depth, (sequence * heads + head) * tokens + row
    query = _rows(mixed + place, first, step, tokens, depth, TALL, DEEP)
    slope = _rows(up + inner, first, width, tokens, depth, TALL, DEEP)
    output = _rows(outputs + inner, first, width, tokens, depth, TALL, DEEP)
    product = tl.sum(slope.to(tl.float32) * output.to(tl.float32), axis=1)
    tl.store(products + line, product, mask=row < tokens)
    log = tl.load(logs + line, mask=row < tokens, other=0.0)
    total = tl.zeros((TALL, DEEP), tl.float32)
    for start in range(0, tokens, WIDE):
        key = _rows(mixed + place + width, start, step, tokens, depth, WIDE, DEEP)
        value = _rows(mixed + place + 2 * width, start, step, tokens, depth, WIDE, DEEP)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * LOG2E)
        score = tl.where((start + tl.arange(0, WIDE) < tokens)[None, :], score, -float("inf"))
        share = tl.exp2(score - log[:, None])
        away = share * (tl.dot(slope, tl.trans(value), input_precision=PRECISION) - product[:, None])
        total += tl.dot(away.to(key.dtype), key, input_precision=PRECISION)
    _store(below + place, total * scale, first, step, tokens, depth, TALL, DEEP)


@triton.jit
def _keys_back(
    mixed, up, below, logs, products, tokens, heads, scale,
    depth: tl.constexpr, PRECISION: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of keys and values."""
    first, sequence = _tile(tokens, TALL)
    head = tl.program_id(1)
    width = heads * depth
    place, step = sequence * tokens * 3 * width + head * depth, 3 * width
    inner, line = sequence * tokens * width + head * depth, (sequence * heads + head) * tokens
    key = _rows(mixed + place + width, first, step, tokens, depth, TALL, DEEP)
    value = _rows(mixed + place + 2 * width, first, step, tokens, depth, TALL, DEEP)
    keys, values = tl.zeros((TALL, DEEP), tl.float32), tl.zeros((TALL, DEEP), tl.float32)
    for start in range(0, tokens, WIDE):
        row = start + tl.arange(0, WIDE)
        query = _rows(mixed + place, start, step, tokens, depth, WIDE, DEEP)
        slope = _rows(up + inner, start, width, tokens, depth, WIDE, DEEP)
        log = tl.load(logs + line + row, mask=row < tokens, other=float("inf"))  # absent queries have no weight
        product = tl.load(products + line + row, mask=row < tokens, other=0.0)
        share = tl.exp2(tl.dot(key, tl.trans(query), input_precision=PRECISION) * (scale * LOG2E) - log[None, :])
        values += tl.dot(share.to(slope.dtype), slope, input_precision=PRECISION)
        away = share * (tl.dot(value, tl.trans(slope), input_precision=PRECISION) - product[None, :])
        keys += tl.dot(away.to(query.dtype), query, input_precision=PRECISION)
    _store(below + place + width, keys * scale, first, step, tokens, depth, TALL, DEEP)
    _store(below + place + 2 * width, values, first, step, tokens, depth, TALL, DEEP)


class Attention(torch.autograd.Function):
    """Map queries, keys and values `(sequence, token, 3, head, depth)` to outputs `(sequence, token, head, depth)`."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor) -> Tensor:
        mixed = mixed.contiguous()
        sequences, tokens, _, heads, depth = mixed.shape
        outputs = mixed.new_empty(sequences, tokens, heads, depth)
        logs = mixed.new_empty(sequences, heads, tokens, dtype=torch.float32)
        grid, shape = _plan(mixed)
        _attended[grid](mixed, outputs, logs, **shape)
        ctx.save_for_backward(mixed, outputs, logs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        mixed, outputs, logs = ctx.saved_tensors
        below, products, up = torch.empty_like(mixed), torch.empty_like(logs), gradients[0].contiguous()
        grid, shape = _plan(mixed)
        _queries_back[grid](mixed, outputs, up, below, logs, products, **shape)
        _keys_back[grid](mixed, up, below, logs, products, **shape)
        return below


def _plan(mixed: Tensor) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the kernels' grid and shapes."""
    sequences, tokens, _, heads, depth = mixed.shape
    deep = max(16, triton.next_power_of_2(depth))  # tensor cores need 16
    shape = {
        "tokens": tokens, "heads": heads, "depth": depth, "scale": depth**-0.5, "TALL": QUERIES, "WIDE": KEYS,
        "DEEP": deep, "PRECISION": precision(mixed),
    }  # fmt: skip
    return (triton.cdiv(tokens, QUERIES) * sequences, heads), shape
