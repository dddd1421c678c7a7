"""Which rank left-out errors choose, and how sure that is."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

FOLDS = 5
CLEAR = 1.0
"""Standard errors by which a smaller rank must be worse than the best one to be passed over."""
NOTHING = 1e-10
"""Errors differ by rounding below this."""


def chosen(errors: Float[Tensor, "fold problem rank"], share: float = 0.0) -> Int[Tensor, " problem"]:
    """Place of the smallest rank that is not worse than the best, clearly fold by fold and by a share of its error."""
    least, best = errors.mean(dim=0).min(dim=-1)
    difference = errors - errors.gather(-1, best[None, :, None].expand(len(errors), -1, 1))
    spread = difference.std(dim=0) / len(errors) ** 0.5
    good = difference.mean(dim=0) <= CLEAR * spread + share * least[:, None].abs() + NOTHING
    return good.to(torch.int64).argmax(dim=-1)


def chosen_range(errors: Float[Tensor, "fold problem rank"], share: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """The choice, and the smallest and the largest that leaving out one fold leads to."""
    first = chosen(errors, share)
    without = torch.stack([chosen(torch.cat([errors[:k], errors[k + 1 :]]), share) for k in range(len(errors))])
    return first, torch.minimum(first, without.amin(dim=0)), torch.maximum(first, without.amax(dim=0))
