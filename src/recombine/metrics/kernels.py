"""Kernels of a network's outputs, and which simple kernel they are like (Eq. 1–4, 29, 34; Fig. 1e, 8).

Conventions
-----------
A Gram matrix is over the grid's points, from flattened outputs: `cosine` similarity, `l2` distance, or `overlap`: the
share of pixels past a threshold in both outputs, of all pixels. For dark bumps on white "past" is below (the scripts:
0.3), for bright ones above 1 − that; a threshold that is given is a share of the bump's height, which is 1, over the
background, of either kind. A block takes some rows (held-out points) and columns (kept points).

Theoretical kernels between points z and z′, from equality of their factor values (δ) or distance:

- `binary`: 1 if any factor is equal, δ_x + δ_y − δ_x δ_y for two (Eq. 3–4);
- `product`: 1 if all are equal, δ_x δ_y: nothing at all between held-out and kept points, so no agreement;
- `gaussian_product`: Π exp(−d²/4s²), the overlap of bumps of variance s² in every factor at once;
- `gaussian_radial`: the same with the one width, of a geometric range, that agrees best;
- `gaussian_sum`: Σ exp(−d²/4s²), a smooth form of the binary one.

Rows are normalised to unit sum. Agreement is the Pearson correlation of all entries; its null permutes the columns'
labels, all rows alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

DARK_THRESHOLD = 0.3
"""A dark pixel is below this (published scripts)."""
PERMUTATIONS = 1999
WIDTHS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Range from which the radial kernel takes its width, in grid spacings."""

Kernel = Literal["cosine", "l2", "overlap"]


def gram_matrix(
    outputs: Float[Tensor, "*member point pixel"],
    kernel: Kernel = "cosine",
    *,
    dark: bool = False,
    threshold: float | None = None,
) -> Float[Tensor, "*member point point"]:
    """Similarity (or distance) of the outputs at every pair of points, in double precision.

    For `overlap`, bumps are bright or `dark` on white, and the threshold is the share of the bump's height, above 0 and
    at most 1, that a pixel must be over (for dark bumps: under) the background; the scripts' if left out, about 0.7.

    >>> gram_matrix(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    flat = outputs.double()
    if kernel == "cosine":
        unit = torch.nn.functional.normalize(flat, dim=-1)
        return unit @ unit.mT
    if kernel == "l2":
        square = flat.square().sum(dim=-1)
        return (square[..., :, None] + square[..., None, :] - 2 * flat @ flat.mT).clamp(min=0).sqrt()
    if kernel != "overlap":
        raise InvalidValue("kernel", kernel, "cosine, l2 or overlap")
    least = 1 - DARK_THRESHOLD if threshold is None else threshold
    most = DARK_THRESHOLD if threshold is None else 1 - threshold
    past = (flat < most if dark else flat > least).double()
    return past @ past.mT / flat.shape[-1]


def _equal(rows: Tensor, columns: Tensor) -> Tensor:
    return rows[:, None, :] == columns[None, :, :]


def _bumps(rows: Tensor, columns: Tensor, width: float) -> Tensor:
    return torch.exp(-((rows[:, None, :] - columns[None, :, :]) ** 2) / (4 * width**2))


THEORIES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "binary": lambda rows, columns, width: _equal(rows, columns).any(dim=-1).double(),
    "product": lambda rows, columns, width: _equal(rows, columns).all(dim=-1).double(),
    "gaussian_product": lambda rows, columns, width: _bumps(rows, columns, width).prod(dim=-1),
    "gaussian_sum": lambda rows, columns, width: _bumps(rows, columns, width).sum(dim=-1),
}


def theoretical_kernel(
    name: str, rows: Float[Tensor, "row factor"], columns: Float[Tensor, "column factor"], width: float = 1.0
) -> Float[Tensor, "row column"]:
    """One of `THEORIES` between points, for bumps of a width in grid spacings; rows sum to 1, or to 0 without likeness.

    >>> points = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> theoretical_kernel("binary", points[:1], points).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return normalised(THEORIES[name](rows, columns, width))


def normalised(kernel: Float[Tensor, "*member row column"]) -> Float[Tensor, "*member row column"]:
    """Each row divided by its sum; a row of zeros stays."""
    total = kernel.sum(dim=-1, keepdim=True)
    return torch.where(total == 0, 0.0, kernel / torch.where(total == 0, 1.0, total))


def correlation(first: Float[Tensor, "*member row column"], second: Float[Tensor, "row column"]) -> Tensor:
    """Pearson correlation of all entries; 0 where one of them does not vary."""
    a = first.flatten(-2) - first.flatten(-2).mean(dim=-1, keepdim=True)
    b = second.flatten() - second.mean()
    scale = a.norm(dim=-1) * b.norm()
    return torch.where(scale > 0, (a @ b) / torch.where(scale > 0, scale, 1.0), 0.0)


@dataclass(frozen=True)
class KernelAgreement:
    """How well each theoretical kernel describes a block, with a permutation test of the binary one."""

    agreement: dict[str, Tensor]
    p_value: Tensor
    """Share of permutations (and the truth itself) in which the binary kernel agrees at least as well."""


def kernel_agreement(
    gram: Float[Tensor, "*member point point"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    permutations: int = PERMUTATIONS,
) -> KernelAgreement:
    """Agreement of the held-out × kept block of a Gram matrix with every theoretical kernel; positions in spacings."""
    if not bool(held_out.any()) or bool(held_out.all()):
        raise InvalidValue("held_out", f"{int(held_out.sum())} points", "a mask with points on both sides")
    rows, columns = positions[held_out].double(), positions[~held_out].double()
    block = normalised(gram.double()[..., held_out, :][..., ~held_out])
    agreement = {name: correlation(block, theoretical_kernel(name, rows, columns)) for name in THEORIES}
    radial = [correlation(block, theoretical_kernel("gaussian_product", rows, columns, w)) for w in WIDTHS]
    agreement["gaussian_radial"] = torch.stack(radial).amax(dim=0)
    binary = theoretical_kernel("binary", rows, columns)
    return KernelAgreement(agreement, _permutation_p(block, binary, agreement["binary"], permutations))


def _permutation_p(block: Tensor, theory: Tensor, agreement: Tensor, permutations: int) -> Tensor:
    """Share of column orders in which the theory agrees at least as well.

    Permuting columns changes neither means nor norms, so only Σ block · theory[:, order] is left, and that is a sum
    over entries of one matrix of products between columns.
    """
    products = theory.mT @ block  # [theory's column, block's column]
    means = block.mean(dim=(-2, -1)) * theory.mean() * theory.numel()
    spread = (block - block.mean(dim=(-2, -1), keepdim=True)).flatten(-2).norm(dim=-1) * (theory - theory.mean()).norm()
    generator = torch.Generator().manual_seed(0)
    columns = theory.shape[1]
    orders = torch.rand(permutations, columns, generator=generator, dtype=torch.float64).argsort(dim=1)
    at = (orders * columns + torch.arange(columns)).to(theory.device)
    sums = products.flatten(-2)[..., at.flatten()].unflatten(-1, at.shape).sum(dim=-1) - means[..., None]
    scale = torch.where(spread > 0, spread, 1.0)[..., None]
    permuted = torch.where(spread[..., None] > 0, sums / scale, 0.0)
    beaten = (permuted >= agreement[..., None] - 1e-12).sum(dim=-1)
    return (beaten + 1).to(agreement.dtype) / (permutations + 1)


def block_contrast(
    gram: Float[Tensor, "*member point point"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"] | None = None,
) -> Float[Tensor, "*member"]:
    """Mean similarity of pairs that share a factor value minus that of pairs that share none, over the spread.

    With `held_out`, only pairs of a held-out and a kept point count (the OOD × ID block, whose own spread it is then);
    all pairs of different points without. NaN where no pair shares a value, or all do.
    """
    shares = _equal(positions, positions).any(dim=-1)
    if held_out is None:
        counted = ~torch.eye(len(positions), dtype=torch.bool, device=gram.device)
    else:
        counted = held_out[:, None] & ~held_out[None, :]
    with_one, without = gram[..., shares & counted], gram[..., ~shares & counted]
    return (with_one.mean(dim=-1) - without.mean(dim=-1)) / gram[..., counted].std(dim=-1)
