"""Cross-term: at a stage, different factors should move the activations in orthogonal directions.

    C = mean of g_kj² / (g_kk g_jj) over pairs of factors,    g_kj = ∂a/∂z_k · ∂a/∂z_j

g is the metric tensor of the stage's activations a, whose off-diagonal part lowers the factorization F (Liang et al.
2025, Eq. 7). C lies between 0 and 1 and does not depend on the scale of the activations, so that shrinking them does
not lower it. Directions lead from each code to the nearest other value of the same factor in the batch, which keeps
them tangent to the values' curve: random directions in a block of bump codes lead away from all codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from recombine.remedies.base import REMEDIES, Decode, Penalty, Weight
from recombine.remedies.derivatives import Rows, differences, first_rows
from recombine.remedies.noise import Generator

StageName = Literal["first", "middle", "output"]
SAME = 1e-6
"""Squared distance below which two codes are of the same value."""
SMALL = 1e-8
"""Added to g_kk g_jj, which is 0 where a stage is silent: its derivative is infinite there."""


def value_directions(codes: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return unit vectors to the nearest other value of each factor in the batch, `(block, batch, code)`.

    A vector is 0 if there is no other value, or if the factor is absent, whose block is 0.
    """
    ends, directions = torch.tensor([0, *blocks]).cumsum(0).tolist(), []
    for part, first, last in zip(codes.split(list(blocks), dim=-1), ends, ends[1:], strict=False):
        there = part.abs().amax(dim=-1) > 0
        distance = (part[:, None] - part[None]).square().sum(dim=-1)
        other = (distance > SAME) & there[:, None] & there[None]
        nearest = torch.where(other, distance, torch.inf).argmin(dim=1)
        step = torch.where(other.any(dim=1)[:, None], part[nearest] - part, 0.0)
        step = step / (step.norm(dim=-1, keepdim=True) + SMALL)
        directions.append(functional.pad(step, (first, ends[-1] - last)))
    return torch.stack(directions)


def cross_term(decode: Decode, codes: Tensor, directions: Tensor) -> Tensor:
    """Return g_kj² / (g_kk g_jj), averaged over pairs of factors and over codes that have all factors.

    >>> codes, directions = torch.zeros(1, 2), torch.eye(2)[:, None]
    >>> same, apart = lambda z: z.sum(dim=1, keepdim=True), lambda z: z
    >>> [round(cross_term(decode, codes, directions).item(), 3) for decode in (same, apart)]
    [1.0, 0.0]
    """
    slopes = differences(decode, codes, directions)
    metric = torch.einsum("kbo,jbo->bkj", slopes, slopes)
    scale = metric.diagonal(dim1=1, dim2=2)
    terms = metric.square() / (scale[:, :, None] * scale[:, None, :] + SMALL)
    factors = len(directions)
    above = torch.ones(factors, factors, dtype=torch.bool, device=codes.device).triu(1)
    complete = (directions.abs().amax(dim=-1) > 0).all(dim=0)
    return (terms * above).sum(dim=(1, 2)) @ complete.to(terms.dtype) / above.sum() / complete.sum().clamp(min=1)


@REMEDIES.register
class CrossTerm(Penalty):
    """Orthogonal changes of a stage for different factors, whatever their size."""

    source = "after Liang et al. 2025"
    knows = ("factor blocks",)
    assumes = ("coverage",)
    kind: Literal["cross_term"] = "cross_term"
    weight: Weight = 1e-4
    stage: StageName = "output"
    """First hidden stage, middle hidden stage, or output."""
    reward: bool = False
    """Reward the cross-term instead of penalising it."""
    rows: Rows = 0.125
    """Share of the batch that it is computed on."""

    def loss(self, decode: Any, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        def activations(rows: Tensor) -> Tensor:
            if self.stage == "output":
                return decode(rows)
            stages = list(decode.activations(rows).values())
            return stages[0 if self.stage == "first" else (len(stages) - 2) // 2]

        directions = value_directions(codes, blocks)
        chosen = first_rows(codes, self.rows)
        value = cross_term(activations, chosen, directions[:, : len(chosen)])
        return -value if self.reward else value
