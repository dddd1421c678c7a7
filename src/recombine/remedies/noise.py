"""Random numbers for loss terms, from a `torch.Generator` or from a seed and a step.

An ensemble needs numbers that a member draws alike alone, in any ensemble, inside a CUDA graph and after a restart.
`Noise` hashes (seed, step, number of the draw, index), so it has no state to save and works under `torch.func.vmap`,
where seed and step differ by member. In a training loop of your own, pass a `torch.Generator`, or nothing.
"""

from __future__ import annotations

import math
import zlib
from functools import cached_property
from itertools import count

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
"""Mask of 32 bits: products are taken in 64 and cut, since torch has no unsigned multiplication."""


class Noise:
    """Random bits as a function of a seed and a step, each an integer tensor without axes."""

    def __init__(self, seed: Tensor, step: Tensor, purpose: str = "") -> None:
        self.seed, self.step, self.start = seed, step, zlib.crc32(purpose.encode())
        self.draws = count(1)

    @cached_property
    def key(self) -> Tensor:
        """Hash of purpose, seed and step. Computed when first needed: most networks draw nothing, in every step."""
        return mixed(mixed(self.seed ^ self.start) ^ mixed(self.seed >> 32) + mixed(self.step))

    def bits(self, number: int) -> Tensor:
        """That many integers below 2³², independent of all draws before."""
        index = torch.arange(number, device=self.key.device)
        return mixed(mixed(index) ^ mixed(self.key + next(self.draws)))


def mixed(word: Tensor) -> Tensor:
    """A bijective hash of 32-bit integers (Wellons' lowbias32)."""
    word = word & WORD
    word = (word ^ (word >> 16)) * 0x7FEB352D & WORD
    word = (word ^ (word >> 15)) * 0x846CA68B & WORD
    return word ^ (word >> 16)


Generator = Noise | torch.Generator | None


def uniform(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Numbers between 0 and 1, neither included, in float32 on the device of `like`."""
    if isinstance(generator, Noise):
        high = generator.bits(math.prod(shape)) >> 8  # as many bits as float32 holds
        return ((high.float() + 0.5) / 2**24).view(shape)
    device = generator.device if generator is not None else like.device
    return torch.rand(shape, generator=generator, device=device).to(like.device)


def normal(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Standard normal numbers."""
    if isinstance(generator, Noise):
        radius, angle = uniform(shape, generator, like), uniform(shape, generator, like)
        return (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()  # Box and Muller
    device = generator.device if generator is not None else like.device
    return torch.randn(shape, generator=generator, device=device).to(like.device)


def signs(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Rademacher numbers, +1 or -1."""
    return torch.where(uniform(shape, generator, like) < 0.5, -1.0, 1.0)
