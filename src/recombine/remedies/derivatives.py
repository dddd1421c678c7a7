"""What penalties on derivatives share: which codes they look at, directions in code space, and the outputs' scale.

`blocks` are the sizes of the factors' codes, side by side in a code vector: `(28, 28)` for two bump codes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from recombine.remedies.base import Decode, Penalty, Privilege
from recombine.remedies.noise import Generator, normal, uniform

FEWEST = 2
"""Rows of the batch at least: the scale of the outputs is their variance over rows."""
Rows = Annotated[float, Field(gt=0, le=1)]
"""Share of the batch that a penalty is computed on."""
SMALLEST_SCALE = 1e-3
"""Added to the outputs' variance: a fresh network's outputs hardly vary, and dividing by that would drown the error."""


class DerivativePenalty(Penalty):
    """A penalty on derivatives of the outputs with respect to the code."""

    where: Literal["kept", "all"] = "kept"
    """At codes of the batch (`kept`), or at recombined ones (`all`), which include held-out combinations."""
    rows: Rows = 0.125
    """Share of the batch that it is computed on."""
    relative: bool = True
    """Divide by the scale of the outputs, so that shrinking them does not lower the penalty."""

    power: ClassVar[int] = 2
    """The power of the outputs' scale with which the penalty grows."""

    @property
    def privileges(self) -> tuple[Privilege, ...]:
        if self.where == "kept":
            return self.knows
        return tuple(dict.fromkeys((*self.knows, "factor blocks", "held-out codes")))  # blocks are recombined

    @abstractmethod
    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        """Return the penalty at the given codes."""

    def loss(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        codes = recombined(codes, blocks, generator) if self.where == "all" else codes
        codes = first_rows(codes, self.rows)
        value = self.value(decode, codes, blocks, generator)
        if not self.relative:
            return value
        variance = decode(codes).var(dim=0, unbiased=False).mean()
        return value / (variance + SMALLEST_SCALE) ** (self.power / 2)


def first_rows(codes: Tensor, share: float) -> Tensor:
    """A share of the batch, which is shuffled already."""
    return codes[: max(FEWEST, round(share * len(codes)))]


def recombined(codes: Tensor, blocks: Sequence[int], generator: Generator = None) -> Tensor:
    """Codes whose blocks come from different examples of the batch, drawn at random."""
    parts = codes.split(list(blocks), dim=-1)
    orders = uniform((len(parts), len(codes)), generator, codes).argsort(dim=-1)
    return torch.cat([part[order] for part, order in zip(parts, orders, strict=True)], dim=-1)


def block_directions(codes: Tensor, blocks: Sequence[int], generator: Generator = None) -> Tensor:
    """One standard normal direction per block, `(block, batch, code)`, zero in all other blocks."""
    parts = normal(tuple(codes.shape), generator, codes).split(list(blocks), dim=-1)
    ends = torch.tensor([0, *blocks]).cumsum(0).tolist()
    return torch.stack([
        functional.pad(part, (first, ends[-1] - last)) for part, first, last in zip(parts, ends, ends[1:], strict=False)
    ])  # fmt: skip


def slopes(decode: Decode, codes: Tensor, directions: Tensor) -> Tensor:
    """Derivatives of the outputs along each direction, `(direction, batch, output)`, in forward mode."""
    codes = codes.contiguous()  # a dual tensor is written to: no two elements may share memory

    def along(direction: Tensor) -> Tensor:
        return torch.func.jvp(decode, (codes,), (direction.contiguous(),))[1]

    return torch.func.vmap(along)(directions).flatten(2)


def differences(decode: Decode, codes: Tensor, directions: Tensor, step: float = 0.02) -> Tensor:
    """The same by central differences, all in one pass, which needs no derivative with respect to the codes."""
    ends = torch.cat([(codes + step * directions).flatten(0, 1), (codes - step * directions).flatten(0, 1)])
    above, below = decode(ends).chunk(2)
    return ((above - below) / (2 * step)).unflatten(0, directions.shape[:2]).flatten(2)


def jacobian(decode: Decode, codes: Tensor) -> Tensor:
    """All derivatives, `(code, batch, output)`: one pass per number of the code."""
    steps = torch.eye(codes.shape[-1], dtype=codes.dtype, device=codes.device)
    return slopes(decode, codes, steps[:, None].expand(-1, *codes.shape))


def pairwise_products(parts: Tensor) -> Tensor:
    """The sum of products over all pairs of the first axis."""
    return (parts.sum(dim=0).square() - parts.square().sum(dim=0)) / 2
