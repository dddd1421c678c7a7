"""Kernels as sums of products of a kernel per factor (Eq. 29–31): the CP rank of a Gram matrix over a factor grid.

Conventions
-----------
A Gram matrix K[(x₁ … xₙ), (x₁′ … xₙ′)] over a grid is a function of n pairs (x_i, x_i′). Its rank is that of this
function (`complexity`): the least number of products Π_i k_i(x_i, x_i′) that sum to it, up to a relative error of ε.
For two factors that is the operator-Schmidt rank, and the singular value decomposition finds it.

What one term means is read in two ways. A.4 calls a kernel of rank 1 "purely factorized". A.5 calls a single term in
all n factors "memorisation": δ_x δ_y tells every combination apart and knows nothing of any factor alone. Both are rank
1, so that rank does not tell them apart; PF_Coeff does (`recombine.metrics.partial_factorization`): the delta kernel
has nearly all its weight in the term of all factors, the product of broad kernels in terms of one.

Known answers: products have rank 1, the delta kernel too; additive kernels Σ_i k_i(x_i, x_i′) have rank 2 for two
factors and n for n; the OR kernel 1 − Π_i (1 − δ_i) has rank 2 whatever n.
"""

from __future__ import annotations

from itertools import chain

from jaxtyping import Float, Int
from torch import Tensor

from recombine.checks import checked, finite, number
from recombine.theory.complexity import EXACT_ERROR, epsilon_rank
from recombine.theory.cp import RESTARTS, CPDecomposition, cp_decomposition, several_factors


@checked
def kernel_decomposition(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...], rank: int, *, restarts: int = RESTARTS
) -> CPDecomposition:
    """The best sum of `rank` products of single-factor kernels (Eq. 30).

    Parameters
    ----------
    gram
        Gram matrix over the grid's points, in its order.
    shape
        Number of values of each factor.
    rank
        Products in the sum.
    restarts
        Starts of the search; for two factors none is needed.

    Returns
    -------
    CPDecomposition
        Its factors are the kernels k_i, flat over pairs (x_i, x_i′).

    Examples
    --------
    >>> import torch
    >>> additive = torch.kron(torch.eye(2), torch.ones(3, 3)) + torch.kron(torch.ones(2, 2), torch.eye(3))
    >>> [round(kernel_decomposition(additive, (2, 3), rank).error.item(), 2) for rank in (1, 2)]
    [0.21, 0.0]
    """
    pairs, sizes = over_pairs(gram, shape)
    return cp_decomposition(pairs, sizes, rank, restarts=restarts)


@checked
def kernel_rank(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    *,
    epsilon: float = EXACT_ERROR,
    largest: int = 8,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*member"]:
    """The least number of products of single-factor kernels that sum to a kernel (Eq. 31).

    Parameters
    ----------
    gram
        Gram matrix over the grid's points, in its order.
    shape
        Number of values of each factor.
    epsilon
        Largest relative error; next to none by default.
    largest
        Largest rank to try.
    restarts
        Starts of every search.

    Returns
    -------
    Tensor
        One number per member; −1 where it is larger than `largest`.

    Examples
    --------
    >>> import torch
    >>> same_x, same_y = torch.kron(torch.eye(3), torch.ones(4, 4)), torch.kron(torch.ones(3, 3), torch.eye(4))
    >>> kernel_rank(torch.stack([same_x * same_y, same_x + same_y]), (3, 4)).tolist()
    [1, 2]
    """
    number("epsilon", epsilon, above=0, at_most=1)
    pairs, sizes = over_pairs(gram, shape)
    return epsilon_rank(pairs, sizes, epsilon, largest=largest, restarts=restarts)


def over_pairs(gram: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """A Gram matrix as a function of a pair of values for each factor, flat, and the number of such pairs."""
    shape = several_factors(shape, gram.shape[-1])
    finite("gram", gram)
    lead, factors = gram.ndim - 2, len(shape)
    paired = gram.double().unflatten(-1, shape).unflatten(lead, shape)
    order = chain.from_iterable((lead + k, lead + factors + k) for k in range(factors))
    return paired.permute(*range(lead), *order).flatten(lead), tuple(size**2 for size in shape)
