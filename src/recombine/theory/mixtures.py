"""Mixtures of products of single-factor distributions (Eq. 14, 18–20).

Conventions
-----------
A distribution over a factor grid is a flat vector over its points, with optional leading batch axes; it sums to 1. A
mixture of rank R is Σ_r λ_r Π_i p_i^(r)(x_i), where the weights and every p_i^(r) are distributions. Divergences are
from the distribution to the mixture: Kullback–Leibler in nats, or total variation, half the sum of absolute
differences. `mixture_rank` is the smallest rank within ε.

For Kullback–Leibler the mixture is fitted by expectation–maximisation from several random starts, and the best fit is
returned; distributions that have converged, or are close enough, leave the batch. For total variation, the fit
continues by gradient descent on a smoothed distance, and the best mixture is returned.

Known answers: at rank 1, the divergence is the total correlation (mutual information for two factors), which is 0 for
independent factors; planted mixtures of k products are recovered with rank k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import refuse_not_finite
from recombine.theory.ranks import MORE
from recombine.theory.search import SumOfProducts, khatri_rao, ordered

Divergence = Literal["kl", "tv"]
RESTARTS = 6
ITERATIONS = 3000
"""Maximum number of EM sweeps."""
TOLERANCE = 1e-9
"""A fit ends when it improves by less than this per sweep, in nats."""
BLOCK = 8
"""Sweeps between evaluations of the divergence."""
EXACT = 1e-12
"""Divergence that counts as 0."""
POLISHING = 400
"""Number of gradient steps on the total variation."""

Found = list[Tensor]
"""Weights, the distributions of every factor, and divergences."""


@dataclass(frozen=True, eq=False)
class MixtureOfProducts(SumOfProducts):
    """A mixture for every distribution in a batch: weights that sum to 1, and distributions for each factor."""

    divergence: Float[Tensor, "*batch"]


def mixture_of_products(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    rank: int,
    *,
    divergence: Divergence = "kl",
    restarts: int = RESTARTS,
) -> MixtureOfProducts:
    """Return the closest mixture of `rank` products found from several starts, for each distribution over a grid.

    The divergence is Kullback–Leibler (`kl`) or total variation (`tv`).

    >>> same = torch.eye(2).flatten() / 2
    >>> [round(mixture_of_products(same, (2, 2), rank).divergence.item(), 4) for rank in (1, 2)]
    [0.6931, 0.0]
    """
    if divergence not in ("kl", "tv"):
        raise InvalidValue("divergence", divergence, "kl or tv")
    flat = _distributions(probabilities)
    fit = Fit(shape, rank, EXACT)
    best = fit.best(flat, restarts)
    if divergence == "tv":
        best = fit.polished(flat, best)
    batch = probabilities.shape[:-1]
    weights, *factors, distance = best
    return MixtureOfProducts(*ordered(weights, factors, batch), distance.reshape(batch))


def mixture_rank(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    divergence: Divergence = "kl",
    largest: int = 8,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*batch"]:
    """Smallest number of products whose mixture is within ε of a distribution (Eq. 20); −1 if above `largest`.

    >>> mixture_rank(torch.eye(3).flatten() / 3, (3, 3), 0.01).item()
    3
    """
    flat = _distributions(probabilities)
    ranks = torch.full((len(flat),), MORE, dtype=torch.int64, device=flat.device)
    for rank in range(1, min(largest, flat.shape[-1]) + 1):
        places = torch.nonzero(ranks == MORE).flatten()
        if not len(places):
            break
        if divergence == "kl":  # the fit may stop once it is close enough
            distance = Fit(shape, rank, enough=epsilon).best(flat[places], restarts)[-1]
        else:
            mixture = mixture_of_products(flat[places], shape, rank, divergence=divergence, restarts=restarts)
            distance = mixture.divergence
        ranks[places[distance <= epsilon]] = rank
    return ranks.reshape(probabilities.shape[:-1])


def _distributions(probabilities: Tensor) -> Tensor:
    """Validate distributions and return them flat, in double precision."""
    refuse_not_finite("probabilities", probabilities)
    flat = probabilities.double().reshape(-1, probabilities.shape[-1])
    if bool((flat < 0).any()):
        raise InvalidValue("probabilities", float(flat.min()), "at least 0")
    sums = flat.sum(dim=-1, keepdim=True)
    if bool(((sums - 1).abs() > 1e-4).any()):
        raise InvalidValue("sum of probabilities", float(sums[(sums - 1).abs().argmax()]), "1")
    return flat / sums


@dataclass(frozen=True, eq=False)
class Fit:
    """Settings for fitting mixtures of `rank` products."""

    shape: tuple[int, ...]
    rank: int
    enough: float
    """Divergence at which a fit may stop."""

    def best(self, flat: Tensor, restarts: int) -> Found:
        """Return the best of several starts for every distribution; those that are close enough are not restarted."""
        generator = torch.Generator().manual_seed(0)
        best = self.descended(flat, *self.start(flat, generator))
        for _ in range(0 if self.rank == 1 else restarts - 1):
            places = torch.nonzero(best[-1] > self.enough).flatten()
            if not len(places):
                break
            fitted = self.descended(flat[places], *self.start(flat[places], generator))
            better = fitted[-1] < best[-1][places]
            for whole, part in zip(best, fitted, strict=True):
                whole[places[better]] = part[better]
        return best

    def start(self, like: Tensor, generator: torch.Generator) -> tuple[Tensor, list[Tensor]]:
        """Return random perturbations of the marginal distributions."""
        grid = like.unflatten(-1, self.shape)
        factors = []
        for axis, size in enumerate(self.shape):
            others = [1 + k for k in range(len(self.shape)) if k != axis]
            drawn = torch.rand(len(like), size, self.rank, generator=generator, dtype=like.dtype).to(like.device)
            near = grid.sum(dim=others)[..., None] * (0.05 + drawn.square())
            factors.append(near / near.sum(dim=-2, keepdim=True))
        return torch.full((len(like), self.rank), 1 / self.rank, dtype=like.dtype, device=like.device), factors

    def descended(self, flat: Tensor, weights: Tensor, factors: list[Tensor]) -> Found:
        """Run expectation–maximisation until convergence."""
        result = [weights.clone(), *(own.clone() for own in factors)]
        divergence = torch.full((len(flat),), math.inf, dtype=flat.dtype, device=flat.device)
        active = torch.arange(len(flat), device=flat.device)
        for _ in range(-(-ITERATIONS // BLOCK)):
            own, weights, factors = flat[active], result[0][active], [part[active] for part in result[1:]]
            for _sweep in range(BLOCK):
                weights, factors = self._sweep(own, weights, factors)
            for whole, part in zip(result, (weights, *factors), strict=True):
                whole[active] = part
            now = kullback_leibler(own, SumOfProducts(weights, tuple(factors)).values)
            done = ((divergence[active] - now).abs() < BLOCK * TOLERANCE) | (now <= self.enough)
            divergence[active] = now
            active = active[~done]
            if not len(active):
                break
        return [*result, divergence]

    def _sweep(self, flat: Tensor, weights: Tensor, factors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        products = khatri_rao(factors) * weights[..., None, :]
        mixture = products.sum(dim=-1).clamp(min=torch.finfo(flat.dtype).tiny)
        shares = products * (flat / mixture)[..., None]  # responsibilities
        weights = shares.sum(dim=-2)
        grid = shares.unflatten(-2, self.shape)
        below = torch.where(weights > 0, weights, 1.0)[..., None, :]
        factors = []
        for axis in range(len(self.shape)):
            others = [1 + k for k in range(len(self.shape)) if k != axis]
            factors.append(grid.sum(dim=others) / below)
        return weights, factors

    def polished(self, flat: Tensor, fitted: Found) -> Found:
        """Improve mixtures by gradient descent on the total variation."""
        near = fitted[:-1]
        best = [*near, total_variation(flat, SumOfProducts(near[0], tuple(near[1:])).values)]
        tiny = torch.finfo(flat.dtype).tiny
        logits = [part.clamp(min=tiny).log().clamp(min=-30).requires_grad_() for part in near]
        optimizer = torch.optim.Adam(logits, lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, POLISHING)
        for _step in range(POLISHING):
            with torch.enable_grad():
                now, own = logits[0].softmax(dim=-1), [logit.softmax(dim=-2) for logit in logits[1:]]
                mixture = SumOfProducts(now, tuple(own)).values
                smooth = ((flat - mixture).square() + 1e-12).sqrt().sum()
            with torch.no_grad():
                distance = total_variation(flat, mixture)
                better = distance < best[-1]
                for whole, part in zip(best, (now, *own, distance), strict=True):
                    whole[better] = part[better]
            optimizer.zero_grad()
            smooth.backward()
            optimizer.step()
            schedule.step()
        return best


def kullback_leibler(p: Tensor, q: Tensor) -> Tensor:
    """KL(p‖q) in nats, clamped at 0 because of rounding errors."""
    tiny = torch.finfo(p.dtype).tiny
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q.clamp(min=tiny))).sum(dim=-1).clamp(min=0)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the sum of absolute differences."""
    return (p - q).abs().sum(dim=-1) / 2
