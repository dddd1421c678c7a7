"""Mixtures of products of single-factor distributions (Eq. 14, 18–20).

A distribution over a factor grid is a flat vector over its points, with optional leading batch axes; it sums to 1. A
mixture of rank R is Σ_r λ_r Π_i p_i^(r)(x_i), where the weights and every p_i^(r) are distributions. Divergences from
the distribution to the mixture are Kullback–Leibler (in nats) or total variation (half the sum of absolute
differences). A mixture is the best of several fits by expectation–maximisation; for total variation, it is refined by
gradient descent on a smoothed distance.

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
"""A fit stops when it improves by less than this per sweep, in nats."""
BLOCK = 8
"""Sweeps between evaluations of the divergence."""
EXACT = 1e-12
"""Divergence that counts as 0."""
POLISHING = 400
"""Number of gradient steps on the total variation."""


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
    enough: float = EXACT,
) -> MixtureOfProducts:
    """Return the closest mixture of `rank` products found from several starts, for each distribution over a grid.

    The divergence is Kullback–Leibler (`kl`; a fit may stop once it is below `enough`) or total variation (`tv`).

    >>> same = torch.eye(2).flatten() / 2
    >>> [round(mixture_of_products(same, (2, 2), rank).divergence.item(), 4) for rank in (1, 2)]
    [0.6931, 0.0]
    """
    flat, batch = _distributions(probabilities), probabilities.shape[:-1]
    if divergence not in ("kl", "tv"):
        raise InvalidValue("divergence", divergence, "kl or tv")
    weights, *factors, distance = found = _fitted(flat, shape, rank, restarts, enough if divergence == "kl" else EXACT)
    if divergence == "tv":
        weights, *factors, distance = _polished(flat, found[:-1])
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
    """Return the smallest number of products whose mixture is within ε (Eq. 20); −1 if above `largest`.

    >>> mixture_rank(torch.eye(3).flatten() / 3, (3, 3), 0.01).item()
    3
    """
    flat = _distributions(probabilities)
    ranks = torch.full((len(flat),), MORE, dtype=torch.int64, device=flat.device)
    for rank in range(1, min(largest, flat.shape[-1]) + 1):
        places = torch.nonzero(ranks == MORE).flatten()
        if len(places):
            found = mixture_of_products(
                flat[places], shape, rank, divergence=divergence, restarts=restarts, enough=epsilon
            )
            ranks[places[found.divergence <= epsilon]] = rank
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


def _fitted(flat: Tensor, shape: tuple[int, ...], rank: int, restarts: int, enough: float) -> list[Tensor]:
    """Return the best of several fits by expectation–maximisation; converged fits leave the batch."""
    starts = 1 if rank == 1 else restarts
    copies = flat.repeat(starts, 1)
    result = _starts(copies, shape, rank)
    divergence = torch.full((len(copies),), math.inf, dtype=flat.dtype, device=flat.device)
    active = torch.arange(len(copies), device=flat.device)
    for _ in range(-(-ITERATIONS // BLOCK)):
        own, (weights, *factors) = copies[active], [part[active] for part in result]
        for _sweep in range(BLOCK):
            weights, factors = _sweep_once(own, shape, weights, factors)
        for whole, part in zip(result, (weights, *factors), strict=True):
            whole[active] = part
        mixture = _mixture(weights, *factors).clamp(min=torch.finfo(own.dtype).tiny)
        now = (torch.special.xlogy(own, own) - torch.special.xlogy(own, mixture)).sum(dim=-1).clamp(min=0)
        done = ((divergence[active] - now).abs() < BLOCK * TOLERANCE) | (now <= enough)
        divergence[active] = now
        active = active[~done]
        if not len(active):
            break
    best = divergence.unflatten(0, (starts, -1)).argmin(dim=0) * len(flat) + torch.arange(len(flat), device=flat.device)
    return [part[best] for part in (*result, divergence)]


def _starts(flat: Tensor, shape: tuple[int, ...], rank: int) -> list[Tensor]:
    """Return equal weights and random perturbations of the marginal distributions."""
    generator = torch.Generator().manual_seed(0)
    parts = [torch.full((len(flat), rank), 1 / rank, dtype=flat.dtype, device=flat.device)]
    for axis, size in enumerate(shape):
        drawn = torch.rand(len(flat), size, rank, generator=generator, dtype=flat.dtype).to(flat.device)
        near = _summed(flat[..., None], shape, axis) * (0.05 + drawn.square())
        parts.append(near / near.sum(dim=-2, keepdim=True))
    return parts


def _sweep_once(
    flat: Tensor, shape: tuple[int, ...], weights: Tensor, factors: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    products = khatri_rao(factors) * weights[..., None, :]
    mixture = products.sum(dim=-1).clamp(min=torch.finfo(flat.dtype).tiny)
    shares = products * (flat / mixture)[..., None]  # responsibilities
    weights = shares.sum(dim=-2)
    below = torch.where(weights > 0, weights, 1.0)[..., None, :]
    return weights, [_summed(shares, shape, axis) / below for axis in range(len(shape))]


def _summed(values: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    """Sum `[problem, point, product]` over all factors but one."""
    return values.unflatten(-2, shape).movedim(1 + axis, 1).flatten(2, -2).sum(dim=-2)


def _polished(flat: Tensor, fitted: list[Tensor]) -> list[Tensor]:
    """Refine mixtures by gradient descent on the total variation, keeping only refinements that reduce it."""
    logits = [part.clamp(min=torch.finfo(flat.dtype).tiny).log().clamp(min=-30).requires_grad_() for part in fitted]

    def current() -> list[Tensor]:
        return [logits[0].softmax(dim=-1), *(logit.softmax(dim=-2) for logit in logits[1:])]

    optimizer = torch.optim.Adam(logits, lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, POLISHING)
    for _step in range(POLISHING):
        optimizer.zero_grad()
        with torch.enable_grad():
            ((flat - _mixture(*current())).square() + 1e-12).sqrt().sum().backward()
        optimizer.step()
        schedule.step()
    polished = [part.detach() for part in current()]
    before, after = ((flat - _mixture(*parts)).abs().sum(dim=-1) / 2 for parts in (fitted, polished))
    for whole, part in zip(fitted, polished, strict=True):
        whole[after < before] = part[after < before]
    return [*fitted, torch.minimum(before, after)]


def _mixture(weights: Tensor, *factors: Tensor) -> Tensor:
    return SumOfProducts(weights, factors).values
