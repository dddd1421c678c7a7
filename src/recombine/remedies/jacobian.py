"""Two penalties on the Jacobian J of the outputs with respect to the code.

    orthogonal:  Var_v ‖J v‖² = 4 Σ_{i<j} (J_i · J_j)²,  v_i = ±1   (Wei et al. 2021, Orthogonal Jacobian)
    sparse:      Σ_ij |J_ij|                                        (Rhodes and Lee 2021, Jacobian L1)

As for the Hessian penalty, signs belong to blocks: columns of one factor's code need not be orthogonal to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from recombine.remedies.base import REMEDIES, Decode, Weight
from recombine.remedies.derivatives import DerivativePenalty, block_directions, differences, jacobian, slopes
from recombine.remedies.noise import Generator, uniform


def orthogonal_jacobian(decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator = None) -> Tensor:
    """Return an estimate of 4 Σ_{k<j} ‖J_kᵀ J_j‖² per example, averaged over the batch: two passes per block.

    With standard normal directions v_k in each block, E (J v_k · J v_j)² = ‖J_kᵀ J_j‖², the squared Frobenius norm.
    Derivatives are central differences; the published code takes one-sided ones.
    """
    derivatives = differences(decode, codes, block_directions(codes, blocks, generator))
    products = torch.einsum("kbo,jbo->bkj", derivatives, derivatives)
    return 2 * (products.square().sum(dim=(1, 2)) - products.diagonal(dim1=1, dim2=2).square().sum(dim=1)).mean()


def exact_orthogonal_jacobian(decode: Decode, codes: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return the same exactly: one pass per number of the code."""
    columns = jacobian(decode, codes)
    products = torch.einsum("ibo,jbo->bij", columns, columns)
    owner = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks)).to(codes.device)
    return 2 * (products.square() * (owner[:, None] != owner[None, :])).sum(dim=(1, 2)).mean()


def jacobian_l1(decode: Decode, codes: Tensor, generator: Generator = None, *, draws: int | None = None) -> Tensor:
    """Return Σ |J_ij| averaged over the batch; estimated from `draws` columns per example if given."""
    size = codes.shape[-1]
    if draws is None:
        return jacobian(decode, codes).abs().sum(dim=(0, 2)).mean()
    column = (uniform((draws, len(codes)), generator, codes) * size).long()
    steps = functional.one_hot(column, size).to(codes.dtype)
    return slopes(decode, codes, steps).abs().sum(dim=-1).mean() * size


@REMEDIES.register
class OrthogonalJacobian(DerivativePenalty):
    """Orthogonal changes of the output for different factors."""

    source = "Wei et al. 2021"
    knows = ("factor blocks",)
    power = 4
    differentiates = False
    assumes = ("coverage",)
    kind: Literal["orthogonal_jacobian"] = "orthogonal_jacobian"
    weight: Weight = 1e-10
    """Weight of the term in the loss (0.1 in the published code, on the penalty that is not relative)."""

    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return orthogonal_jacobian(decode, codes, blocks, generator)


@REMEDIES.register
class JacobianL1(DerivativePenalty):
    """Sparse changes of the output."""

    source = "Rhodes and Lee 2021"
    power = 1
    assumes = ("coverage",)
    kind: Literal["jacobian_l1"] = "jacobian_l1"
    weight: Weight = 1e-7
    draws: Annotated[int, Field(ge=1, le=64)] = 2
    """Columns of the Jacobian per example and step."""

    def value(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return jacobian_l1(decode, codes, generator, draws=self.draws)
