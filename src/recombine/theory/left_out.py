"""Errors of entries that were left out, by the rank of the sums of products that predict them from the others.

All folds of all problems are one batch with a mask for each. A rank starts from the sum of the rank below, so that one
start is enough. A ridge keeps functions in place at values of a factor that few entries tell about; it is proportional
to what a sum leaves of the entries it is fitted to, since noise is what makes it necessary: a bias that stays where
there is none would call for more products than there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from recombine.theory.alternating import summed
from recombine.theory.search import Search

STEPS, IMPROVEMENT = 40, 1e-3
"""When a search ends whose sum predicts what was left out: noise is fitted more closely in vain."""
FIRST_RIDGE = 0.02
"""Of the root mean square of the entries that are fitted."""
RIDGE = 0.2
"""Of the root mean square of what is left of them, from then on."""
REFINED, REFINING_STEPS = 4, 6
"""How often a ridge follows what is left, and steps each time: enough near a sum that fits, others do not matter."""
LOWER = 0.7
"""Share of a ridge below which another is worth the steps."""
AT_ONCE = 1 << 24
"""Numbers of a batch of folds and problems."""


def left_out_errors(
    problems: Tensor, shape: tuple[int, ...], ranks: Sequence[int], there: Tensor, folds: int, restarts: int, seed: int
) -> Tensor:
    """Squared, relative to the entries left out: `[fold, problem, rank]`; rank 0 predicts 0."""
    parts = torch.stack(list(_folds(there, folds, seed))).to(problems.device)
    fitted = there.to(problems.device) & ~parts
    errors = [
        _predicted(part, shape, ranks, fitted, parts, restarts, seed)
        for part in problems.split(max(1, AT_ONCE // (folds * problems.shape[-1])))
    ]
    return torch.cat(errors, dim=1)


def _folds(there: Tensor, folds: int, seed: int) -> Iterator[Tensor]:
    """Parts of the entries, drawn at random, each entry in one."""
    order = torch.nonzero(there).flatten()
    order = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(seed))]
    for part in range(folds):
        out = torch.zeros_like(there)
        out[order[part::folds]] = True
        yield out


def _predicted(
    problems: Tensor, shape: tuple[int, ...], ranks: Sequence[int], fitted: Tensor, scored: Tensor, restarts: int,
    seed: int,
) -> Tensor:  # fmt: skip
    count, folds = len(problems), len(fitted)
    masks, left = fitted.repeat_interleave(count, dim=0), scored.repeat_interleave(count, dim=0)
    values = problems.repeat(folds, 1)
    scale = _root_mean_square(values, masks)
    values = values / torch.where(scale > 0, scale, 1.0)[:, None]
    below = _root_mean_square(values, left)
    functions: list[Tensor] | None = None
    errors = []
    for rank in ranks:
        predicted = torch.zeros_like(values)
        if rank:
            search = Search(shape, rank, STEPS, IMPROVEMENT, seed)
            functions = _refined(search, values, masks, functions, restarts)
            predicted = summed(functions)
        error = _root_mean_square(values - predicted, left) / torch.where(below > 0, below, 1.0)
        errors.append(torch.where(below > 0, error, 0.0).square())
    return torch.stack(errors, dim=-1).unflatten(0, (folds, count))


def _refined(
    search: Search, values: Tensor, masks: Tensor, smaller: list[Tensor] | None, restarts: int
) -> list[Tensor]:
    """Functions of the sums that fit the entries, with a ridge that follows what they leave."""
    ridge = torch.full_like(values[:, 0], FIRST_RIDGE)
    functions, _, _ = search.best(values, restarts, masks, first=smaller, ridge=ridge)
    shorter = replace(search, iterations=REFINING_STEPS)
    for _ in range(REFINED):
        wanted = RIDGE * _root_mean_square(values - summed(functions), masks)
        places = torch.nonzero(wanted < LOWER * ridge).flatten()
        if not len(places):
            break
        ridge[places] = wanted[places]
        own = [part[places] for part in functions]
        better, _, _ = shorter.best(values[places], 1, masks[places], first=own, ridge=ridge[places])
        for whole, part in zip(functions, better, strict=True):
            whole[places] = part
    return functions


def _root_mean_square(values: Tensor, mask: Tensor) -> Tensor:
    return ((values * mask).square().sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)).sqrt()
