"""Distributions as mixtures of products of single-factor distributions (Eq. 14, 18–20), and how many it takes.

Conventions
-----------
A distribution over a factor grid is flat over its points, with any batch axes in front, not negative, of sum 1. A
mixture of rank R is Σ_r λ_r Π_i p_i^(r)(x_i): weights and every p_i^(r) are distributions. Divergences are of the
distribution from the mixture: Kullback–Leibler in nats, or total variation, half the summed absolute difference.
`mixture_rank` is the least rank within ε.

For Kullback–Leibler the mixture is fitted by expectation–maximisation, which never makes it worse, from several random
starts of which the best is kept; distributions that have settled, or are mixed well enough, leave the batch. For total
variation it starts there and goes on by gradients of a smoothed distance, as no such steps are known; the best mixture
on the way is kept.

Known answers: at rank 1 the divergence is the total correlation, for two factors the mutual information; independent
factors have none; planted mixtures of k products are found with k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import refuse_not_finite
from recombine.theory.ranks import MORE
from recombine.theory.search import khatri_rao

Divergence = Literal["kl", "tv"]
RESTARTS = 6
ITERATIONS = 3000
"""Sweeps of one fit at most."""
TOLERANCE = 1e-9
"""Nats per sweep: an improvement below it ends a fit."""
BLOCK = 8
"""Sweeps from one look at the divergence to the next."""
EXACT = 1e-12
"""Divergence that is next to none."""
POLISHING = 400
"""Gradient steps towards a smaller total variation."""

Found = list[Tensor]
"""Weights, every factor's distributions, and divergences."""


@dataclass(frozen=True, eq=False)
class MixtureOfProducts:
    """A mixture for every distribution of a batch."""

    weights: Float[Tensor, "*batch rank"]
    """Of sum 1, falling."""
    factors: tuple[Float[Tensor, "*batch _ rank"], ...]
    """For each factor, its distributions."""
    divergence: Float[Tensor, "*batch"]

    @property
    def values(self) -> Float[Tensor, "*batch point"]:
        """The mixture, at every point of the grid."""
        return mixed(self.weights, self.factors)


def mixture_of_products(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    rank: int,
    *,
    divergence: Divergence = "kl",
    restarts: int = RESTARTS,
) -> MixtureOfProducts:
    """The nearest mixture of `rank` products that was found, of several starts, for each distribution over a grid.

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
    weights, order = weights.sort(dim=-1, descending=True)
    factors = [part.gather(-1, order[..., None, :].expand_as(part)) for part in factors]
    return MixtureOfProducts(
        weights.reshape(*batch, -1),
        tuple(part.reshape(*batch, *part.shape[-2:]) for part in factors),
        distance.reshape(batch),
    )


def mixture_rank(
    probabilities: Float[Tensor, "*batch point"],
    shape: tuple[int, ...],
    epsilon: float,
    *,
    divergence: Divergence = "kl",
    largest: int = 8,
    restarts: int = RESTARTS,
) -> Int[Tensor, "*batch"]:
    """The least number of products whose mixture is within ε of a distribution (Eq. 20); −1 if larger than `largest`.

    >>> mixture_rank(torch.eye(3).flatten() / 3, (3, 3), 0.01).item()
    3
    """
    flat = _distributions(probabilities)
    ranks = torch.full((len(flat),), MORE, dtype=torch.int64, device=flat.device)
    for rank in range(1, min(largest, flat.shape[-1]) + 1):
        places = torch.nonzero(ranks == MORE).flatten()
        if not len(places):
            break
        if divergence == "kl":  # a search may end where it is near enough
            distance = Fit(shape, rank, enough=epsilon).best(flat[places], restarts)[-1]
        else:
            found = mixture_of_products(flat[places], shape, rank, divergence=divergence, restarts=restarts)
            distance = found.divergence
        ranks[places[distance <= epsilon]] = rank
    return ranks.reshape(probabilities.shape[:-1])


def _distributions(probabilities: Tensor) -> Tensor:
    """Flat and in double precision, refused if they are none."""
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
    """Mixtures of `rank` products over grids."""

    shape: tuple[int, ...]
    rank: int
    enough: float
    """Divergence at which a distribution is mixed well enough."""

    def best(self, flat: Tensor, restarts: int) -> Found:
        """Of every distribution the start that ended nearest; one that is near enough starts no more."""
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
        """Random distributions about the marginal ones."""
        grid = like.unflatten(-1, self.shape)
        factors = []
        for axis, size in enumerate(self.shape):
            others = [1 + k for k in range(len(self.shape)) if k != axis]
            drawn = torch.rand(len(like), size, self.rank, generator=generator, dtype=like.dtype).to(like.device)
            near = grid.sum(dim=others)[..., None] * (0.05 + drawn.square())
            factors.append(near / near.sum(dim=-2, keepdim=True))
        return torch.full((len(like), self.rank), 1 / self.rank, dtype=like.dtype, device=like.device), factors

    def descended(self, flat: Tensor, weights: Tensor, factors: list[Tensor]) -> Found:
        """Expectation–maximisation until no sweep helps any more; distributions that have settled leave the batch."""
        result = [weights.clone(), *(own.clone() for own in factors)]
        divergence = torch.full((len(flat),), math.inf, dtype=flat.dtype, device=flat.device)
        active = torch.arange(len(flat), device=flat.device)
        for _ in range(-(-ITERATIONS // BLOCK)):
            own, weights, factors = flat[active], result[0][active], [part[active] for part in result[1:]]
            for _sweep in range(BLOCK):
                weights, factors = self._sweep(own, weights, factors)
            for whole, part in zip(result, (weights, *factors), strict=True):
                whole[active] = part
            now = kullback_leibler(own, mixed(weights, factors))
            done = ((divergence[active] - now).abs() < BLOCK * TOLERANCE) | (now <= self.enough)
            divergence[active] = now
            active = active[~done]
            if not len(active):
                break
        return [*result, divergence]

    def _sweep(self, flat: Tensor, weights: Tensor, factors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        products = khatri_rao(factors) * weights[..., None, :]
        mixture = products.sum(dim=-1).clamp(min=torch.finfo(flat.dtype).tiny)
        shares = products * (flat / mixture)[..., None]  # of the points, that each product has
        weights = shares.sum(dim=-2)
        grid = shares.unflatten(-2, self.shape)
        below = torch.where(weights > 0, weights, 1.0)[..., None, :]
        factors = []
        for axis in range(len(self.shape)):
            others = [1 + k for k in range(len(self.shape)) if k != axis]
            factors.append(grid.sum(dim=others) / below)
        return weights, factors

    def polished(self, flat: Tensor, fitted: Found) -> Found:
        """From there on by gradients of the total variation, as far as that helps."""
        near = fitted[:-1]
        best = [*near, total_variation(flat, mixed(near[0], near[1:]))]
        tiny = torch.finfo(flat.dtype).tiny
        logits = [part.clamp(min=tiny).log().clamp(min=-30).requires_grad_() for part in near]
        optimizer = torch.optim.Adam(logits, lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, POLISHING)
        for _step in range(POLISHING):
            with torch.enable_grad():
                now, own = logits[0].softmax(dim=-1), [logit.softmax(dim=-2) for logit in logits[1:]]
                mixture = mixed(now, own)
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
    """Of p from q, in nats; rounding may not make it negative."""
    tiny = torch.finfo(p.dtype).tiny
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q.clamp(min=tiny))).sum(dim=-1).clamp(min=0)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the summed absolute difference."""
    return (p - q).abs().sum(dim=-1) / 2


def mixed(weights: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """The mixture, at every point of the grid."""
    return (khatri_rao(factors) * weights[..., None, :]).sum(dim=-1)
