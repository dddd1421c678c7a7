"""Compositional contrast: no output may depend on two factors.

    C(z) = Σ_n Σ_{k<j} ‖∂f_n/∂z_k‖ ‖∂f_n/∂z_j‖        (Brady et al. 2023, Provably Learning Object-Centric
                                                        Representations)

It is zero exactly where every output (a pixel) depends on at most one block of the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from recombine.remedies.base import REMEDIES, Decode, Weight
from recombine.remedies.derivatives import (
    DerivativePenalty,
    Rows,
    block_directions,
    differences,
    jacobian,
    pairwise_products,
)
from recombine.remedies.noise import Generator

SMALL = 1e-12
"""Added to squared norms under a root, whose derivative at zero is infinite."""


def compositional_contrast(decode: Decode, codes: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return the contrast, summed over outputs and averaged over the batch: one pass per number of the code.

    >>> import torch
    >>> copy = torch.nn.Identity()  # each output reads one factor
    >>> bool(compositional_contrast(copy, torch.rand(5, 2), (1, 1)) < 1e-5)
    True
    """
    squared = jacobian(decode, codes).square().split(list(blocks))
    norms = torch.stack([(block.sum(dim=0) + SMALL).sqrt() for block in squared])
    return pairwise_products(norms).sum(dim=-1).mean()


def squared_contrast(decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator = None) -> Tensor:
    """Return an estimate of the contrast with squared norms, unbiased but for the finite step: two passes per block.

    For a standard normal direction v in block k, E (∂f_n/∂z_k · v)² = ‖∂f_n/∂z_k‖², and the directions in two blocks
    are independent.
    """
    energies = differences(decode, codes, block_directions(codes, blocks, generator)).square()
    return pairwise_products(energies).sum(dim=-1).mean()


@REMEDIES.register
class Contrast(DerivativePenalty):
    """Compositional contrast, cheap: squared norms, along one random direction per factor."""

    source = "Brady et al. 2023"
    knows = ("factor blocks",)
    power = 4
    differentiates = False
    assumes = ("additivity", "coverage")
    kind: Literal["contrast"] = "contrast"
    weight: Weight = 1e-8

    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return squared_contrast(decode, codes, blocks, generator)


@REMEDIES.register
class ExactContrast(DerivativePenalty):
    """Compositional contrast as published, which takes one pass per number of the code."""

    source = "Brady et al. 2023"
    knows = ("factor blocks",)
    assumes = ("additivity", "coverage")
    kind: Literal["exact_contrast"] = "exact_contrast"
    weight: Weight = 1e-6
    rows: Rows = 0.0625

    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return compositional_contrast(decode, codes, blocks)
