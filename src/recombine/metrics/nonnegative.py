"""Least squares with weights that are not negative, many problems at once.

Conventions: a problem is min ‖s − A w‖² over w ≥ 0, given by its Gram matrix AᵀA and the products Aᵀs, in double
precision. Columns are scaled to unit length first; a column of zeros gets weight 0, so problems of different sizes are
padded with such. A ridge of `RIDGE` on the scaled Gram matrix makes the weights unique where columns coincide; it
changes the variance explained by about as much.

Method: block principal pivoting (Kim and Park 2011, SIAM J. Sci. Comput. 33). A set of columns is guessed to be in
use, least squares is solved on it, every column that contradicts the guess changes sides, and so on until none does:
some ten rounds for fifty columns, each one batched Cholesky decomposition. Where changing all of them stops helping,
only the last one changes (which cannot go round in circles). Whatever is open after `PIVOTS` rounds is finished by
coordinate descent.

Known answers: positive weights are found again; an s that every column opposes gets weights 0.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked

RIDGE = 1e-10
TOLERANCE = 1e-8
"""Share of the largest product by which a weight or a gradient may be below zero."""
PIVOTS = 300
SWEEPS = 500
PATIENCE = 3
"""Rounds without progress before columns change sides one at a time."""


@checked
def nonnegative_weights(
    gram: Float[Tensor, "*problem column column"], products: Float[Tensor, "*problem column"]
) -> Float[Tensor, "*problem column"]:
    """Weights w ≥ 0 that minimise ‖s − A w‖².

    Parameters
    ----------
    gram
        AᵀA.
    products
        Aᵀs.

    Returns
    -------
    Tensor
        One weight per problem and column, in double precision.

    Examples
    --------
    >>> weights = nonnegative_weights(torch.eye(3), torch.tensor([2.0, -1.0, 0.5]))
    >>> [round(weight, 6) for weight in weights.tolist()]
    [2.0, 0.0, 0.5]
    """
    columns = products.shape[-1]
    length = gram.double().diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    inverse = torch.where(length > 0, 1 / torch.where(length > 0, length, 1.0), 0.0)
    scaled = gram.double() * inverse[..., :, None] * inverse[..., None, :]
    scaled = scaled + RIDGE * torch.eye(columns, dtype=torch.float64, device=gram.device)
    targets = products.double() * inverse
    problems = math.prod(products.shape[:-1])  # -1 would be ambiguous without columns
    weights = _pivoted(scaled.reshape(problems, columns, columns), targets.reshape(problems, columns))
    return weights.reshape(products.shape) * inverse


def _pivoted(gram: Tensor, targets: Tensor) -> Tensor:
    """Weights by block principal pivoting, for columns of unit length."""
    problems, columns = targets.shape
    result = torch.zeros_like(targets)
    weights, gradient = torch.zeros_like(targets), -targets
    used = torch.zeros_like(targets, dtype=torch.bool)
    fewest = torch.full((problems,), columns + 1, device=targets.device)
    patience = torch.full((problems,), PATIENCE, device=targets.device)
    open_problems = torch.arange(problems, device=targets.device)
    slack = -TOLERANCE * targets.abs().amax(dim=-1, keepdim=True) if columns else targets
    for _ in range(PIVOTS):
        wrong = torch.where(used, weights < slack, gradient < slack)
        count = wrong.sum(dim=-1)
        result[open_problems] = weights
        left = torch.nonzero(count).flatten()
        if not len(left):
            return result.clamp(min=0)
        open_problems, gram, targets, slack = open_problems[left], gram[left], targets[left], slack[left]
        wrong, count, used, fewest, patience = wrong[left], count[left], used[left], fewest[left], patience[left]
        better = count < fewest
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, PATIENCE, patience - 1)
        used = used ^ torch.where((patience >= 0)[:, None], wrong, _last(wrong))
        weights = _least_squares(gram, targets, used)
        gradient = (gram @ weights[..., None])[..., 0] - targets
    result[open_problems] = _descended(gram, targets, weights.clamp(min=0))
    return result.clamp(min=0)


def _last(wrong: Bool[Tensor, "problem column"]) -> Bool[Tensor, "problem column"]:
    """Only the last true column of each row."""
    later = wrong.flip(-1).cumsum(dim=-1).flip(-1)
    return wrong & (later == 1)


def _least_squares(gram: Tensor, targets: Tensor, used: Tensor) -> Tensor:
    """Unrestricted weights of the used columns; 0 for the others."""
    inside = used[:, :, None] & used[:, None, :]
    matrix = torch.where(inside, gram, 0.0) + torch.diag_embed((~used).to(gram.dtype))
    factor = torch.linalg.cholesky_ex(matrix).L
    solved = torch.cholesky_solve(torch.where(used, targets, 0.0)[..., None], factor)[..., 0]
    return torch.where(used, solved, 0.0)


def _descended(gram: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weights after sweeps of coordinate descent."""
    weights = weights.nan_to_num(nan=0.0, posinf=0.0)
    for _ in range(SWEEPS):
        for column in range(targets.shape[-1]):
            gradient = (gram[:, column] * weights).sum(dim=-1) - targets[:, column]
            weights[:, column] = (weights[:, column] - gradient / gram[:, column, column]).clamp(min=0)
    return weights
