"""Compositional complexity of distributions (Eq. 19–20): how many products of distributions mix to them.

`mixture_rank` is the least rank within ε. Frequencies of a sample are fitted better by every further product;
`mixture_curve` therefore splits counts into folds and chooses the smallest rank whose left-out log-likelihood is not
clearly below the best.

Known answers: independent factors have rank 1; planted mixtures of k products are found with k, from the distribution
and from a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.checks import checked, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.choosing import FOLDS, chosen_range
from recombine.theory.cp import several_factors
from recombine.theory.least_ranks import MORE
from recombine.theory.mixing import EXACT, Fit, mixed
from recombine.theory.mixtures import (
    ITERATIONS,
    RESTARTS,
    TOLERANCE,
    Divergence,
    distributions,
    mixture_of_products,
)

STEPS, IMPROVEMENT = 500, 1e-7
"""Sweeps at most, and nats that one must gain, of a mixture that predicts left-out counts."""
PSEUDOCOUNT = 1e-6
"""Share of an even distribution in what predicts left-out counts, so that none is impossible."""


@checked
def mixture_rank(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    divergence: Divergence = "kl",
    largest: int = 8,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*batch"]:
    """The least number of products whose mixture is within ε of a distribution (Eq. 20).

    Parameters
    ----------
    probabilities
        Over the grid's points, in its order.
    shape
        Number of values of each factor.
    epsilon
        Largest divergence.
    divergence
        Kullback–Leibler (`kl`, nats) or total variation (`tv`).
    largest
        Largest rank to try.
    restarts
        Starts of every fit.

    Returns
    -------
    Tensor
        Of each distribution; −1 where it is larger than `largest`.

    Examples
    --------
    >>> mixture_rank(torch.eye(3).flatten() / 3, (3, 3), 0.01).item()
    3
    """
    shape = several_factors(shape, probabilities.shape[-1])
    number("epsilon", epsilon, above=0)
    whole_number("largest", largest)
    whole_number("restarts", restarts)
    flat = distributions(probabilities)
    ranks = torch.full((len(flat),), MORE, dtype=torch.int64, device=flat.device)
    for rank in range(1, min(largest, flat.shape[-1]) + 1):
        places = torch.nonzero(ranks == MORE).flatten()
        if not len(places):
            break
        if divergence == "kl":  # a search may end where it is near enough
            fit = Fit(shape, rank, ITERATIONS, TOLERANCE, enough=epsilon)
            distance = fit.best(flat[places], restarts, torch.Generator().manual_seed(0))[2]
        else:
            distance = mixture_of_products(
                flat[places], shape, rank, divergence=divergence, restarts=restarts
            ).divergence
        ranks[places[distance <= epsilon]] = rank
    return ranks.reshape(probabilities.shape[:-1])


@dataclass(frozen=True, eq=False)
class MixtureCurve:
    """Left-out log-likelihoods against rank, and the rank that they choose."""

    ranks: tuple[int, ...]
    """From 1 on."""
    left_out: Float[Tensor, "*batch rank"]
    """Mean log-likelihood of a left-out count, in nats."""
    chosen: Int[Tensor, "*batch"]
    low: Int[Tensor, "*batch"]
    """The smallest choice that leaving one fold out leads to."""
    high: Int[Tensor, "*batch"]


@checked
def mixture_curve(
    counts: Int[Tensor, "*batch point"],
    shape: tuple[int, ...],
    *,
    largest: int = 6,
    folds: int = FOLDS,
    restarts: int = RESTARTS,
    seed: int = 0,
) -> MixtureCurve:
    """How many products a sample's distribution is a mixture of.

    Parameters
    ----------
    counts
        How often each combination was seen.
    shape
        Number of values of each factor.
    largest
        Largest rank to try.
    folds
        Parts of the sample that are left out in turn.
    restarts
        Starts of every fit.
    seed
        Of the folds and the starts.

    Returns
    -------
    MixtureCurve
        Over ranks from 1 to `largest`.

    Examples
    --------
    >>> same, even = torch.tensor([90, 10, 10, 90]), torch.tensor([50, 50, 50, 50])
    >>> mixture_curve(torch.stack([same, even]), (2, 2), largest=3).chosen.tolist()
    [2, 1]
    """
    shape = several_factors(shape, counts.shape[-1])
    whole_number("largest", largest)
    whole_number("folds", folds, at_least=3)
    whole_number("restarts", restarts)
    whole_number("seed", seed, at_least=0)
    flat = counts.reshape(-1, counts.shape[-1])
    if bool((flat < 0).any()) or bool((flat.sum(dim=-1) < folds).any()):
        raise InvalidValue("counts", int(flat.sum(dim=-1).min()), f"counts, not negative, of sum {folds} or more")
    parts = _split(flat, folds, seed)
    ranks = tuple(range(1, min(largest, counts.shape[-1]) + 1))
    fitted, scored = torch.cat([flat - part for part in parts]), torch.cat(parts)
    scores = torch.stack([_likelihood(fitted, scored, shape, rank, restarts, seed) for rank in ranks], dim=-1)
    scores = scores.unflatten(0, (folds, len(flat)))
    chosen, low, high = (1 + own.reshape(counts.shape[:-1]) for own in chosen_range(-scores))
    return MixtureCurve(ranks, scores.mean(dim=0).reshape(*counts.shape[:-1], -1), chosen, low, high)


def _split(counts: Tensor, folds: int, seed: int) -> list[Tensor]:
    """Counts dealt out at random to as many folds."""
    generator = torch.Generator().manual_seed(seed)
    left, parts = counts.cpu(), []
    for fold in range(folds, 1, -1):
        part = torch.binomial(left.double(), torch.full(left.shape, 1 / fold, dtype=torch.float64), generator).to(left)
        parts.append(part.to(counts.device))
        left = left - part
    return [*parts, left.to(counts.device)]


def _likelihood(fitted: Tensor, scored: Tensor, shape: tuple[int, ...], rank: int, restarts: int, seed: int) -> Tensor:
    """Mean log-likelihood of some counts under a mixture that was fitted to others."""
    flat = fitted.double() / fitted.sum(dim=-1, keepdim=True)
    fit = Fit(shape, rank, STEPS, IMPROVEMENT, EXACT)
    weights, factors, _, _ = fit.best(flat, restarts, torch.Generator().manual_seed(seed))
    mixture = mixed(weights, factors)
    mixture = (1 - PSEUDOCOUNT) * mixture + PSEUDOCOUNT / mixture.shape[-1]
    return torch.special.xlogy(scored.double(), mixture).sum(dim=-1) / scored.sum(dim=-1).clamp(min=1)
