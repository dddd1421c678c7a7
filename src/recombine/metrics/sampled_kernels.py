"""Interaction weights of a whole grid's kernel, estimated from some of its points (Eq. 34).

Conventions
-----------
The Gram matrix is over kept points only, in the grid's order. A kernel is that of features φ, so that a missing point
is a missing row of φ. Terms of all orders below the top one are fitted to kept points by least squares; filling in
missing points by the prediction of these terms, again and again until nothing changes (backfitting, EM), ends at the
same fit. Let Q_S be an orthonormal basis of each set's space over the grid, C_S the rows of pinv(Q at kept points) that
belong to it, and R what the fit leaves over at kept points, in D dimensions where the whole grid's top term has T.
Fewer points per value make what is left over leak into lower terms, so that these need a correction:

- σ² = tr R / D is taken for independent from point to point. It adds σ² C_S C_Sᵀ to the term of S where the whole grid
  has σ² I: the term is C_S K C_Sᵀ − σ² (C_S C_Sᵀ − I), and θ_S its norm. The top term has T σ⁴ from it;
- what else R has, ‖R‖² − D σ⁴, is taken for random from pair to pair. It is scaled to the T (T + 1) − 2 entries of a
  symmetric matrix without trace for the top term, and by the same token taken off the lower terms' θ².

Where kept points fall into parts that share no value, lower terms are not determined; the shortest ones are taken.

Known answers, at any sampling that shows every value (with more points than lower terms have dimensions): the complete
grid gives `interaction_weights`; additive kernels have PF_Coeff 1; the delta kernel of N × N points has its
(N − 1) / (N + 1) in the top term, which is 1 in the limit of large grids. Sums of these are without error too, the
binary (OR) kernel of two factors among them, also through a centre hole. Kernels of random features have next to no
bias down to half of the points.

A centre hole is no random sample: the structure that smooth kernels have inside it is not seen, and errs to either side
(products of Gaussians exp(−d²/4s²) on 12 × 12 points without the middle 6 × 6: PF_Coeff 0.04 too high for s = 1, 0.09
too low for 2, 0.04 too low for 4). A top term that is there in the hole alone leaves no trace at all.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, grid_shape
from recombine.errors import InvalidValue
from recombine.metrics.factorization import Weight, chosen_terms, share_of_terms, subsets


@checked
def sampled_interaction_weights(
    gram: Float[Tensor, "*member sample sample"],
    shape: tuple[int, ...],
    kept: Bool[Tensor, " point"],
    weight: Weight = "square",
) -> dict[tuple[int, ...], Float[Tensor, "*member"]]:
    """Weight of each set of factors in a kernel over a whole grid, estimated from some of its points.

    Parameters
    ----------
    gram
        Gram matrix over kept points, in the grid's order.
    shape
        Number of values of each factor.
    kept
        True at the grid's points that the Gram matrix is over.
    weight
        θ² or |θ|.

    Returns
    -------
    dict of Tensor
        As `interaction_weights` gives for the whole grid.

    Examples
    --------
    >>> kept = torch.ones(16, dtype=torch.bool)
    >>> kept[5] = kept[6] = kept[12] = False
    >>> weights = sampled_interaction_weights(torch.eye(13), (4, 4), kept)
    >>> {inside: round(value.item(), 6) for inside, value in weights.items()}
    {(0,): 3.0, (1,): 3.0, (0, 1): 9.0}
    """
    shape = grid_shape(shape, len(kept))
    finite("gram", gram)
    if int(kept.sum()) != gram.shape[-1]:
        raise InvalidValue("kept", int(kept.sum()), f"a mask of {gram.shape[-1]} points, as the Gram matrix has")
    shows_every_value(kept, shape)
    bases = _bases(shape, gram.device)
    *lower, top = subsets(len(shape))
    names = [(), *lower]
    here = torch.cat([bases[inside] for inside in names], dim=1)[kept.to(gram.device)]
    inverse = torch.linalg.pinv(here)
    rank = round(torch.einsum("ij,ji->", here, inverse).item())
    left = gram.shape[-1] - rank
    if left < 1:
        raise InvalidValue(
            "kept", gram.shape[-1], f"more points than the terms of lower order have dimensions ({rank})"
        )
    kernel = gram.double()
    remover = torch.eye(gram.shape[-1], dtype=torch.float64, device=gram.device) - here @ inverse
    residual = remover @ kernel @ remover
    noise = residual.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / left
    entries = max(1, _entries(left))
    pair = (residual.square().sum(dim=(-2, -1)) - left * noise**2).clamp(min=0) / entries
    parts = inverse.split([bases[inside].shape[1] for inside in names])
    squares = {
        inside: _lower_term(kernel, part, noise, pair) for inside, part in zip(names, parts, strict=True) if inside
    }
    full = prod(count - 1 for count in shape)
    squares[top] = full * noise**2 + pair * _entries(full)
    return squares if weight == "square" else {inside: value.sqrt() for inside, value in squares.items()}


@checked
def sampled_factorization(
    gram: Float[Tensor, "*member sample sample"],
    shape: tuple[int, ...],
    kept: Bool[Tensor, " point"],
    order: int = 1,
    weight: Weight = "square",
    *,
    family: Collection[Any] | None = None,
) -> Float[Tensor, "*member"]:
    """PF_Coeff of a kernel over a whole grid, estimated from some of its points.

    Parameters
    ----------
    gram
        Gram matrix over kept points, in the grid's order.
    shape
        Number of values of each factor.
    kept
        True at the grid's points that the Gram matrix is over.
    order
        Factors that a term may have.
    weight
        θ² or |θ|.
    family
        Sets of indices of factors whose terms count, instead of those of an order.

    Returns
    -------
    Tensor
        One number per member; NaN for a constant kernel.

    Examples
    --------
    >>> kept = torch.tensor([True, True, True, True, False, True, True, True, True])
    >>> round(sampled_factorization(torch.eye(8), (3, 3), kept).item(), 6)
    0.5
    """
    chosen = chosen_terms(len(shape), order, family)
    return share_of_terms(sampled_interaction_weights(gram, shape, kept, weight), chosen)


def _entries(dimensions: int) -> int:
    """Twice the number of different entries of a symmetric matrix without trace."""
    return dimensions * (dimensions + 1) - 2


def _lower_term(kernel: Tensor, part: Tensor, noise: Tensor, pair: Tensor) -> Tensor:
    """Squared norm of a term, less what leaks into it beyond what the whole grid has there."""
    spread, size = part @ part.mT, len(part)
    leaked = spread - torch.eye(size, dtype=part.dtype, device=part.device)
    square = (part @ kernel @ part.mT - noise[..., None, None] * leaked).square().sum(dim=(-2, -1))
    excess = spread.trace() ** 2 + spread.square().sum() - size * (size + 1)
    return (square - pair * excess).clamp(min=0)


def _bases(shape: tuple[int, ...], device: torch.device) -> dict[tuple[int, ...], Tensor]:
    """For each set but that of all factors, an orthonormal basis of the functions of exactly these factors."""
    means = [torch.full((count, 1), count**-0.5, dtype=torch.float64, device=device) for count in shape]
    deviations = [_deviations(count).to(device) for count in shape]
    return {
        inside: reduce(_kronecker, [deviations[k] if k in inside else means[k] for k in range(len(shape))])
        for inside in [(), *subsets(len(shape))][:-1]
    }


def _kronecker(first: Tensor, second: Tensor) -> Tensor:
    """`torch.kron`, which refuses some matrices of one column."""
    return (first[:, None, :, None] * second[None, :, None, :]).reshape(len(first) * len(second), -1)


def _deviations(count: int) -> Tensor:
    """An orthonormal basis of what has mean 0 over a factor's values."""
    spanning = torch.cat([torch.ones(count, 1), torch.eye(count)[:, 1:]], dim=1).double()
    return torch.linalg.qr(spanning).Q[:, 1:].contiguous()


def shows_every_value(kept: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a sample in which some value of a factor never occurs."""
    for factor, count in enumerate(shape):
        seen = kept.reshape(shape).movedim(factor, 0).reshape(count, -1).any(dim=1)
        if not bool(seen.all()):
            raise InvalidValue(
                "kept", f"nothing at value {int((~seen).nonzero()[0])} of factor {factor}", "points at every value"
            )
