"""The compiled kernels, called on tensors: images `(batch, y, x, channel)` with a border of zeros, float32.

Weights and their gradients are as torch keeps those of transposed convolutions, `(in, out, y, x)`. Sums over images are
made chunk by chunk and added up in order, so that bits do not depend on how many threads there are.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from recombine.native.build import library

CHUNK = 8
"""Images whose sums are made together, by one thread."""
FEWEST = 32
"""Channels from which on fewer multiplications (Winograd) are worth the additions they cost."""


def forward(x: Tensor, weight: Tensor, bias: Tensor, up: bool) -> Tensor:
    """ReLU of a transposed convolution: kernel 3, the same size; or kernel 4, stride 2, twice the size."""
    batch, height, width, channels, out = *_inner(x), weight.shape[1]
    scale = 2 if up else 1
    y = x.new_empty(batch, scale * height + 2, scale * width + 2, out)
    if _fewer(channels, out, up):
        u = _spread(True) @ weight.reshape(-1, 9).T
        _each_chunk("winograd_forward", batch, x, u, bias, y, height, width, channels, out)
    else:
        taps = weight.flatten(2).permute(2, 0, 1).contiguous()
        _each_chunk("forward", batch, x, taps, bias, y, height, width, channels, out, up)
    return y


def input_gradient(z: Tensor, weight: Tensor, gate: Tensor, up: bool) -> tuple[Tensor, Tensor]:
    """Gradient before the ReLU below (`gate`: its answers) from the one before this layer's; and its sum by channel."""
    batch, height, width, channels, out = *_inner(gate), weight.shape[1]
    x, sums = torch.empty_like(gate), _sums(batch, channels)
    if _fewer(out, channels, up):
        u = (_spread(False) @ weight.reshape(-1, 9).T).view(-1, channels, out).mT.contiguous()
        _each_chunk("winograd_input_gradient", batch, z, u, gate, x, sums, height, width, channels, out, CHUNK)
    else:
        taps = weight.flatten(2).permute(2, 1, 0).contiguous()
        _each_chunk("input_gradient", batch, z, taps, gate, x, sums, height, width, channels, out, up, CHUNK)
    return x, sums.sum(dim=0)


def weight_gradient(x: Tensor, z: Tensor, up: bool) -> Tensor:
    """Gradient of the weights, from the layer's input and the gradient before its ReLU."""
    batch, height, width, channels, out = *_inner(x), z.shape[-1]
    if _fewer(channels, out, up):
        sums = _sums(batch, 36, channels * out)
        _each_chunk("winograd_weight_gradient", batch, x, z, sums, height, width, channels, out, CHUNK)
        return (sums.sum(dim=0).T @ _spread(True)).view(channels, out, 3, 3)
    side = 4 if up else 3
    sums = _sums(batch, side * side, channels, out)
    _each_chunk("weight_gradient", batch, x, z, sums, height, width, channels, out, up, CHUNK)
    return sums.sum(dim=0).permute(1, 2, 0).unflatten(-1, (side, side))


def draw(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution to one channel, kernel 3, padding 1; weights `(1, channel, y, x)`."""
    batch, height, width, channels = _inner(x)
    y = x.new_empty(batch, height, width)
    _each_chunk("draw", batch, x, _places(weight), bias, y, height, width, channels)
    return y


def undraw(x: Tensor, weight: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients: before the ReLU of its input, the sum of that by channel, and of its weights."""
    batch, height, width, channels = _inner(x)
    below, weights, sums = torch.empty_like(x), _sums(batch, 9, channels), _sums(batch, channels)
    _each_chunk("undraw", batch, x, _places(weight), z, below, weights, sums, height, width, channels, CHUNK)
    return below, sums.sum(dim=0), weights.sum(dim=0).T.reshape(weight.shape)


def _inner(image: Tensor) -> tuple[int, int, int, int]:
    batch, height, width, channels = image.shape
    return batch, height - 2, width - 2, channels


def _places(weight: Tensor) -> Tensor:
    return weight.flatten(2).squeeze(0).T.contiguous()


def _sums(batch: int, *shape: int) -> Tensor:
    return torch.zeros(-(-batch // CHUNK), *shape)


def _fewer(channels: int, out: int, up: bool) -> bool:
    return not up and min(channels, out) >= FEWEST


@cache
def _spread(mirrored: bool) -> Tensor:
    """`(36, 9)`: a kernel's nine places to Winograd's thirty-six; the forward pass sees it mirrored."""
    rows = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6]]
    g = torch.tensor([*rows, [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], dtype=torch.float64)
    both = torch.einsum("ai,bj->abij", g, g).flatten(0, 1)
    return (both.flip(1, 2) if mirrored else both).reshape(36, 9).float()


def _each_chunk(name: str, batch: int, *arguments: Tensor | int) -> None:
    """Call a kernel on all images, in as many threads as torch has; its last arguments are the first and last image."""
    function = getattr(library(), f"recombine_{name}")
    values = [
        ctypes.c_void_p(given.data_ptr()) if isinstance(given, Tensor) else ctypes.c_long(given) for given in arguments
    ]
    threads = min(torch.get_num_threads(), -(-batch // CHUNK))
    if threads <= 1:
        function(*values, ctypes.c_long(0), ctypes.c_long(batch))
        return
    chunks = -(-batch // CHUNK)
    ends = [min(batch, CHUNK * (chunks * part // threads)) for part in range(threads + 1)]
    parts = [[*values, ctypes.c_long(first), ctypes.c_long(last)] for first, last in pairwise(ends)]
    list(_threads(threads).map(lambda part: function(*part), parts))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="recombine")
