"""Distributions as mixtures of products of single-factor distributions (Eq. 14, 18).

Conventions
-----------
A distribution over a factor grid is flat over its points, with any batch axes in front, not negative, of sum 1. A
mixture of rank R is Σ_r λ_r Π_i p_i^(r)(x_i): weights and every p_i^(r) are distributions. Divergences are of the
distribution from the mixture: Kullback–Leibler in nats, or total variation, half the summed absolute difference.

For Kullback–Leibler the mixture is fitted by expectation–maximisation, which never makes it worse, from several random
starts of which the best is kept. For total variation it starts there and goes on by gradients of a smoothed distance,
as no such steps are known; the best mixture on the way is kept.

Known answers: at rank 1 the divergence is the total correlation, for two factors the mutual information; independent
factors have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.cp import several_factors
from recombine.theory.mixing import EXACT, Fit, Found, mixed

Divergence = Literal["kl", "tv"]
RESTARTS = 6
ITERATIONS = 3000
TOLERANCE = 1e-9
"""Nats per sweep: an improvement below it ends a fit."""


@dataclass(frozen=True, eq=False)
class MixtureOfProducts:
    """A mixture for every distribution of a batch."""

    weights: Float[Tensor, "*batch rank"]
    """Of sum 1, falling."""
    factors: tuple[Float[Tensor, "*batch _ rank"], ...]
    """For each factor, its distributions."""
    divergence: Float[Tensor, "*batch"]
    converged: Bool[Tensor, "*batch"]

    @property
    def values(self) -> Float[Tensor, "*batch point"]:
        """The mixture, at every point of the grid."""
        return mixed(self.weights, self.factors)


@checked
def mixture_of_products(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    rank: int,
    *,
    divergence: Divergence = "kl",
    restarts: int = RESTARTS,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> MixtureOfProducts:
    """The nearest mixture of `rank` products that was found for each distribution.

    Parameters
    ----------
    probabilities
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    rank
        Products in the mixture.
    divergence
        Kullback–Leibler (`kl`) or total variation (`tv`).
    restarts
        Starts of which the best is kept.
    iterations
        Sweeps of one fit at most.
    tolerance
        A sweep that improves by less ends a fit.
    seed
        Of the starts.

    Returns
    -------
    MixtureOfProducts
        One per distribution of the batch.

    Examples
    --------
    >>> same = torch.eye(2).flatten() / 2
    >>> [round(mixture_of_products(same, (2, 2), rank).divergence.item(), 4) for rank in (1, 2)]
    [0.6931, 0.0]
    """
    shape = several_factors(shape, probabilities.shape[-1])
    whole_number("rank", rank, at_most=probabilities.shape[-1])
    whole_number("restarts", restarts)
    whole_number("iterations", iterations)
    number("tolerance", tolerance, above=0)
    whole_number("seed", seed, at_least=0)
    flat = distributions(probabilities)
    fit = Fit(shape, rank, iterations, tolerance, EXACT)
    best = fit.best(flat, restarts, torch.Generator().manual_seed(seed))
    if divergence == "tv":
        best = fit.polished(flat, *best)
    return _ordered(best, probabilities.shape[:-1])


def distributions(probabilities: Tensor) -> Tensor:
    """Flat and in double precision, refused if they are none."""
    finite("probabilities", probabilities)
    flat = probabilities.double().reshape(-1, probabilities.shape[-1])
    if bool((flat < 0).any()):
        raise InvalidValue("probabilities", float(flat.min()), "numbers that are not negative")
    sums = flat.sum(dim=-1, keepdim=True)
    if bool(((sums - 1).abs() > 1e-4).any()):
        raise InvalidValue("probabilities", float(sums[(sums - 1).abs().argmax()]), "numbers of sum 1")
    return flat / sums


def _ordered(fitted: Found, batch: torch.Size) -> MixtureOfProducts:
    weights, order = fitted[0].sort(dim=-1, descending=True)
    factors = tuple(part.gather(-1, order[..., None, :].expand_as(part)) for part in fitted[1])
    return MixtureOfProducts(
        weights.reshape(*batch, -1), tuple(part.reshape(*batch, *part.shape[-2:]) for part in factors),
        fitted[2].reshape(batch), fitted[3].reshape(batch),
    )  # fmt: skip
