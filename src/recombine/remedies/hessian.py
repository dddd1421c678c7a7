"""Hessian penalty: factors should not interact.

    H(z) = Var_v [vᵀ H v] = 4 Σ_{i<j} H_ij²,   v_i = ±1        (Peebles et al. 2020, The Hessian Penalty, Eq. 4–6)

Second derivatives are central differences with the authors' step, since networks of ReLUs have none: a finite step
sees their kinks. Here v is a random direction within each factor's block with a random sign per block, so that numbers
within one factor's code may interact; with blocks of size 1 and unit directions it is the published penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from recombine.remedies.base import REMEDIES, Decode, Weight
from recombine.remedies.derivatives import DerivativePenalty, block_directions
from recombine.remedies.noise import Generator, signs

EPSILON = 0.1
"""The step of the published code."""


def hessian_penalty(
    decode: Decode,
    codes: Tensor,
    blocks: Sequence[int] | None = None,
    generator: Generator = None,
    *,
    draws: int = 2,
    epsilon: float = EPSILON,
    reduction: Literal["max", "mean"] = "max",
) -> Tensor:
    """Return the variance of second differences over random signs, reduced over outputs and batch.

    Without `blocks`, every number of the code has its own sign, as published. `max` is the authors' reduction.

    >>> import torch
    >>> product = lambda codes: codes.prod(dim=1)
    >>> hessian_penalty(product, torch.zeros(1, 2), draws=10_000).round().item()  # 4 H_01²
    4.0
    """
    if blocks is None:
        steps = signs((draws, *codes.shape), generator, codes)
    else:
        directions = block_directions(codes, blocks, generator)
        steps = (signs((draws, *directions.shape[:2], 1), generator, codes) * directions).sum(dim=1)
    points = torch.cat([codes[None], codes + epsilon * steps, codes - epsilon * steps])
    outputs = decode(points.flatten(0, 1)).unflatten(0, points.shape[:2])  # all in one pass
    above, below = outputs[1:].chunk(2)
    variance = ((above + below - 2 * outputs[0]) / epsilon**2).var(dim=0)
    return variance.max() if reduction == "max" else variance.mean()


def exact_hessian_penalty(decode: Decode, codes: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return 4 Σ_{k<j} ‖H_kj‖² over pairs of blocks, averaged over outputs and batch, by differentiating twice."""

    def outputs(code: Tensor) -> Tensor:
        return decode(code[None])[0].flatten()

    hessians = torch.func.vmap(torch.func.jacfwd(torch.func.jacfwd(outputs)))(codes)
    owner = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks)).to(codes.device)
    between = owner[:, None] != owner[None, :]
    return 2 * (hessians.square() * between).sum(dim=(-2, -1)).mean()


@REMEDIES.register
class Hessian(DerivativePenalty):
    """Hessian penalty between factors."""

    source = "Peebles et al. 2020"
    knows = ("factor blocks",)
    differentiates = False
    assumes = ("additivity", "coverage")
    kind: Literal["hessian"] = "hessian"
    weight: Weight = 1e-5
    """Weight of the term in the loss (0.1 in the published code, on the penalty that is not relative)."""
    draws: Annotated[int, Field(ge=2, le=64)] = 2
    """Random sign vectors per step (2 in the paper)."""

    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return hessian_penalty(decode, codes, blocks, generator, draws=self.draws, reduction="mean")
