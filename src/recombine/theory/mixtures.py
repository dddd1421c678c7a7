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

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, number, whole_number
from recombine.errors import InvalidValue
from recombine.theory.cp import several_factors
from recombine.theory.search import khatri_rao

Divergence = Literal["kl", "tv"]
RESTARTS = 6
ITERATIONS = 3000
TOLERANCE = 1e-9
"""Nats per sweep: an improvement below it ends a fit."""
POLISHING = 400
"""Gradient steps towards a smaller total variation."""


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
        return (khatri_rao(self.factors) * self.weights[..., None, :]).sum(dim=-1)


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
    flat = distributions(probabilities)
    fit = _Fit(shape, rank, iterations, tolerance)
    generator = torch.Generator().manual_seed(seed)
    best: tuple[Tensor, list[Tensor], Tensor, Tensor] | None = None
    for _ in range(1 if rank == 1 else restarts):
        fitted = fit.descended(flat, *fit.start(flat, generator))
        best = fitted if best is None else _better(fitted, best)
    assert best is not None
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


Found = tuple[Tensor, list[Tensor], Tensor, Tensor]
"""Weights, factors, divergences, and whether fits ended by themselves."""


@dataclass(frozen=True, eq=False)
class _Fit:
    shape: tuple[int, ...]
    rank: int
    iterations: int
    tolerance: float

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
        """Expectation–maximisation until no sweep helps any more."""
        before = torch.full((len(flat),), math.inf, dtype=flat.dtype, device=flat.device)
        settled = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
        for _ in range(self.iterations):
            products = khatri_rao(factors) * weights[..., None, :]
            mixture = products.sum(dim=-1)
            now = kullback_leibler(flat, mixture)
            settled = (before - now).abs() < self.tolerance
            if bool(settled.all()):
                break
            before = now
            shares = (
                products * torch.where(flat > 0, flat / mixture.clamp(min=torch.finfo(flat.dtype).tiny), 0.0)[..., None]
            )
            weights, factors = self._maximised(shares)
        mixture = (khatri_rao(factors) * weights[..., None, :]).sum(dim=-1)
        return weights, factors, kullback_leibler(flat, mixture), settled

    def _maximised(self, shares: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The mixture of which each product has these shares of the points."""
        weights = shares.sum(dim=-2)
        grid = shares.unflatten(-2, self.shape)
        below = torch.where(weights > 0, weights, 1.0)[..., None, :]
        factors = []
        for axis in range(len(self.shape)):
            others = [1 + k for k in range(len(self.shape)) if k != axis]
            factors.append(grid.sum(dim=others) / below)
        return weights, factors

    def polished(self, flat: Tensor, weights: Tensor, factors: list[Tensor], _: Tensor, settled: Tensor) -> Found:
        """From there on by gradients of the total variation, as far as that helps."""
        tiny = torch.finfo(flat.dtype).tiny
        logits = [part.clamp(min=tiny).log().clamp(min=-30).requires_grad_() for part in (weights, *factors)]
        optimizer = torch.optim.Adam(logits, lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, POLISHING)
        best = (
            weights,
            factors,
            total_variation(flat, (khatri_rao(factors) * weights[..., None, :]).sum(dim=-1)),
            settled,
        )
        for _step in range(POLISHING):
            with torch.enable_grad():
                now, own = logits[0].softmax(dim=-1), [logit.softmax(dim=-2) for logit in logits[1:]]
                mixture = (khatri_rao(own) * now[..., None, :]).sum(dim=-1)
                smooth = ((flat - mixture).square() + 1e-12).sqrt().sum()
            with torch.no_grad():
                fitted = (
                    now.detach(),
                    [part.detach() for part in own],
                    total_variation(flat, mixture.detach()),
                    settled,
                )
                best = _better(fitted, best)
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


def _better(fitted: Found, best: Found) -> Found:
    """Of every distribution the mixture with the smaller divergence."""
    better = fitted[2] < best[2]
    factors = [torch.where(better[:, None, None], new, old) for new, old in zip(fitted[1], best[1], strict=True)]
    weights = torch.where(better[:, None], fitted[0], best[0])
    return weights, factors, torch.where(better, fitted[2], best[2]), torch.where(better, fitted[3], best[3])


def _ordered(fitted: Found, batch: torch.Size) -> MixtureOfProducts:
    weights, order = fitted[0].sort(dim=-1, descending=True)
    factors = tuple(part.gather(-1, order[..., None, :].expand_as(part)) for part in fitted[1])
    return MixtureOfProducts(
        weights.reshape(*batch, -1), tuple(part.reshape(*batch, *part.shape[-2:]) for part in factors),
        fitted[2].reshape(batch), fitted[3].reshape(batch),
    )  # fmt: skip
