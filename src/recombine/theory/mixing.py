"""Steps towards the nearest mixture of products, for many distributions at once.

Expectation–maximisation never makes a mixture worse. Distributions that have settled, or are mixed well enough, leave
the batch; of several starts the best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recombine.theory.alternating import khatri_rao

BLOCK = 8
"""Sweeps from one look at the divergence to the next."""
EXACT = 1e-12
"""Divergence that is next to none."""
POLISHING = 400
"""Gradient steps towards a smaller total variation."""

Found = tuple[Tensor, list[Tensor], Tensor, Tensor]
"""Weights, factors, divergences, and whether fits ended by themselves."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Mixtures of `rank` products over grids."""

    shape: tuple[int, ...]
    rank: int
    iterations: int
    tolerance: float
    enough: float
    """Divergence at which a distribution is mixed well enough."""

    def best(self, flat: Tensor, restarts: int, generator: torch.Generator) -> Found:
        """Of every distribution the start that ended nearest; one that is near enough starts no more."""
        best = self.descended(flat, *self.start(flat, generator))
        for _ in range(0 if self.rank == 1 else restarts - 1):
            places = torch.nonzero(best[2] > self.enough).flatten()
            if not len(places):
                break
            began = self.start(flat[places], generator)
            fitted = self.descended(flat[places], *began)
            before = (best[0][places], [part[places] for part in best[1]], best[2][places], best[3][places])
            for whole, part in zip(_parts(best), _parts(_better(fitted, before)), strict=True):
                whole[places] = part
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
        settled = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
        active = torch.arange(len(flat), device=flat.device)
        for _ in range(-(-self.iterations // BLOCK)):
            own, weights, factors = flat[active], result[0][active], [part[active] for part in result[1:]]
            for _sweep in range(BLOCK):
                weights, factors = self._sweep(own, weights, factors)
            for whole, part in zip(result, (weights, *factors), strict=True):
                whole[active] = part
            now = kullback_leibler(own, mixed(weights, factors))
            done = ((divergence[active] - now).abs() < BLOCK * self.tolerance) | (now <= self.enough)
            divergence[active], settled[active] = now, done
            active = active[~done]
            if not len(active):
                break
        return result[0], result[1:], divergence, settled

    def _sweep(self, flat: Tensor, weights: Tensor, factors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        products = khatri_rao(factors) * weights[..., None, :]
        mixture = products.sum(dim=-1).clamp(min=torch.finfo(flat.dtype).tiny)
        return self._maximised(products * (flat / mixture)[..., None])

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
            total_variation(flat, mixed(weights, factors)),
            settled,
        )
        for _step in range(POLISHING):
            with torch.enable_grad():
                now, own = logits[0].softmax(dim=-1), [logit.softmax(dim=-2) for logit in logits[1:]]
                mixture = mixed(now, own)
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


def mixed(weights: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """The mixture, at every point of the grid."""
    return (khatri_rao(factors) * weights[..., None, :]).sum(dim=-1)


def _parts(fitted: Found) -> list[Tensor]:
    return [fitted[0], *fitted[1], fitted[2], fitted[3]]


def _better(fitted: Found, best: Found) -> Found:
    """Of every distribution the mixture with the smaller divergence."""
    better = fitted[2] < best[2]
    factors = [torch.where(better[:, None, None], new, old) for new, old in zip(fitted[1], best[1], strict=True)]
    weights = torch.where(better[:, None], fitted[0], best[0])
    return weights, factors, torch.where(better, fitted[2], best[2]), torch.where(better, fitted[3], best[3])
