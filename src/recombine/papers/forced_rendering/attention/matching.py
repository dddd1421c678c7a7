"""The width at which a decoder is as large as another, in parameters or in operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from recombine.decoders import DecoderSpec
from recombine.decoders.base import Interface

Count = Callable[[DecoderSpec, Interface], int]
STEP = 4
"""Widths of pixel tokens are multiples of this."""


@cache
def parameters(decoder: DecoderSpec, interface: Interface) -> int:
    """Numbers that are trained."""
    with torch.device("meta"):
        module = decoder.build(interface)
    return sum(parameter.numel() for parameter in module.parameters())


@cache
def operations(decoder: DecoderSpec, interface: Interface) -> int:
    """Floating-point operations for one image, counted on no device at all."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        decoder.build(interface)(torch.zeros(1, interface.code_size))
    return counter.get_total_flops()


def matched(of_width: Callable[[int], DecoderSpec], other: DecoderSpec, interface: Interface, count: Count) -> int:
    """The width whose count is nearest to another decoder's.

    Parameters
    ----------
    of_width
        The decoder at a width; the count must grow with it.
    other
        The decoder to be matched.
    interface
        Code and image of both.
    count
        `parameters` or `operations`.

    Returns
    -------
    int
        A multiple of `STEP`.
    """
    target, steps = count(other, interface), 1
    while count(of_width(2 * steps * STEP), interface) < target:
        steps *= 2
    low, high = steps, 2 * steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(of_width(middle * STEP), interface) < target else (low, middle)
    return STEP * min(low, high, key=lambda n: abs(count(of_width(n * STEP), interface) - target))
