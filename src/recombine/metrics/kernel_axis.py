"""Where a kernel lies between memorisation and factorization (A.4, A.5), in both of the paper's readings.

Conventions
-----------
The paper reads a kernel of one term in two ways. A.4: rank 1, a single product of a kernel per factor, is "purely
factorized". A.5: learning a single term in all factors is "pure memorisation", and weight in single-factor terms is
factorization. The delta kernel is rank 1 and memorises, so that one number cannot be both; here are two.

- `single_factor` (A.5): PF_Coeff of one-factor terms (Eq. 33, squared weights), 1 for additive kernels. The delta
  kernel's is not 0 but Σ_i (N_i − 1) / (Π_i N_i − 1), 2 / (N + 1) for two factors; `above_delta` is on a scale on
  which that is 0 and 1 stays 1, and below 0 for kernels with less.
- `rank` (A.4): effective number of products. With e_r the relative error of the best sum of r products (Eq. 30), the
  r-th one explains e²_{r−1} − e²_r of the squared norm; the number is exp of the entropy of these shares. For two
  factors they are the squared operator-Schmidt values. For more, sums are searched up to `largest` products, and what
  is left then counts as one more, so that the number is a lower bound.

Known answers: delta, rank 1 and 0 above itself; products, rank 1; additive, PF_Coeff 1 and a rank above 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.checks import checked, finite, number, whole_number
from recombine.errors import InvalidValue
from recombine.metrics.factorization import partial_factorization
from recombine.metrics.ranks import effective_rank, schmidt_spectrum
from recombine.theory.ranks import kernel_decomposition

LARGEST = 6
"""Products that a sum may have for three factors or more."""
LARGEST_GRID = 4096
"""Points of a grid whose known kernels are evaluated: each is a matrix of its square."""
NARROWEST = 1e-6
"""Narrowest Gaussian in grid steps, and one over the widest."""
NEXT_TO_NOTHING = 1e-12
"""Share of a squared norm that counts as none."""


@dataclass(frozen=True)
class KernelAxis:
    """A kernel's place in both readings."""

    single_factor: Float[Tensor, "*member"]
    above_delta: Float[Tensor, "*member"]
    rank: Float[Tensor, "*member"]


@checked
def kernel_axis(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], *, largest: int = LARGEST
) -> KernelAxis:
    """PF_Coeff (A.5), also with the delta kernel at 0, and effective number of products (A.4).

    Parameters
    ----------
    gram
        Gram matrix over the grid's points, in its order.
    shape
        Number of values of each factor, two factors or more.
    largest
        Products that a sum may have, for three factors or more.

    Returns
    -------
    KernelAxis
        Numbers per member; NaN where a kernel is constant (PF_Coeff) or zero (rank).

    Examples
    --------
    >>> place = kernel_axis(torch.eye(9), (3, 3))
    >>> place.single_factor.item(), round(place.above_delta.item(), 6), round(place.rank.item(), 6)
    (0.5, 0.0, 1.0)
    """
    whole_number("largest", largest)
    finite("gram", gram)
    single = partial_factorization(gram, shape)
    return KernelAxis(single, above_delta(single, shape), _rank(gram, shape, largest))


def above_delta(single_factor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """PF_Coeff of one-factor terms on a scale on which the delta kernel's is 0; NaN on a grid of one point."""
    delta = sum(count - 1 for count in shape) / max(1, prod(shape) - 1)
    return (single_factor - delta) / (1 - delta) if delta < 1 else torch.full_like(single_factor, torch.nan)


@checked
def landmarks(
    shape: tuple[int, ...], *, bump: float = 1.0, broad: float | None = None, largest: int = LARGEST
) -> dict[str, KernelAxis]:
    """Where kernels that one knows lie, for a figure to place networks between.

    Parameters
    ----------
    shape
        Number of values of each factor, two factors or more.
    bump
        Standard deviation of ideal bumps, in grid steps; their overlap is Π exp(−d²/4s²).
    broad
        The same for broad Gaussians; half of the longest factor by default.
    largest
        As for `kernel_axis`.

    Returns
    -------
    dict of KernelAxis
        `delta`, δ in every factor (memorisation); `additive`, the sum of one δ per factor; `or`, 1 where any factor is
        equal; `broad`, the product of broad Gaussians; `bump`, the Gram matrix of ideal bumps.

    Examples
    --------
    >>> {name: round(place.single_factor.item(), 2) for name, place in landmarks((6, 6)).items()}
    {'delta': 0.29, 'additive': 1.0, 'or': 0.91, 'broad': 0.99, 'bump': 0.8}
    """
    if prod(shape) > LARGEST_GRID:
        raise InvalidValue("shape", shape, f"at most {LARGEST_GRID} combinations")
    number("bump", bump, at_least=NARROWEST, at_most=1 / NARROWEST)
    widest = max(shape) / 2 if broad is None else number("broad", broad, at_least=NARROWEST, at_most=1 / NARROWEST)
    places = torch.cartesian_prod(*(torch.arange(count) for count in shape)).double()
    steps = places[:, None, :] - places[None, :, :]
    equal = (steps == 0).double()
    kernels = {
        "delta": equal.prod(dim=-1),
        "additive": equal.sum(dim=-1),
        "or": 1 - (1 - equal).prod(dim=-1),
        "broad": torch.exp(-(steps**2).sum(dim=-1) / (4 * widest**2)),
        "bump": torch.exp(-(steps**2).sum(dim=-1) / (4 * bump**2)),
    }
    return {name: kernel_axis(kernel, shape, largest=largest) for name, kernel in kernels.items()}


def _rank(gram: Tensor, shape: tuple[int, ...], largest: int) -> Tensor:
    """Effective number of products; NaN for a kernel that is 0."""
    zero = gram.abs().amax(dim=(-2, -1)) == 0
    if len(shape) == 2:
        shares = schmidt_spectrum(torch.where(zero[..., None, None], 1.0, gram), shape).square()
    else:
        shares = _explained(gram, shape, largest)
    return torch.where(zero, torch.nan, effective_rank(shares))


def _explained(gram: Tensor, shape: tuple[int, ...], largest: int) -> Tensor:
    """Share of the squared norm that each further product explains, and what is left at last."""
    left = [torch.ones(gram.shape[:-2], dtype=torch.float64, device=gram.device)]
    for rank in range(1, min(largest, gram.shape[-1] ** 2) + 1):
        error = kernel_decomposition(gram, shape, rank).error.square()
        left.append(torch.minimum(error, left[-1]))  # a search that ends worse than the one before adds nothing
        if bool((error < NEXT_TO_NOTHING).all()):
            break
    curve = torch.stack([*left, torch.zeros_like(left[0])], dim=-1)
    return -curve.diff(dim=-1)
