"""What a hold-out leaves: how many combinations are kept, and whether every single value is among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid

MOST_NAMED = 3
"""Values that a line names; of more it says how many there are."""


@dataclass(frozen=True)
class HoldoutSummary:
    """Combinations kept and held out, and the single values that are in no kept one.

    Parameters
    ----------
    kept
        How many combinations are kept.
    held_out
        How many are held out.
    unseen
        Factor values that are held out altogether, as `x=3`.
    absent
        Combinations of which there is no example, and which are neither.

    Examples
    --------
    >>> import recombine as rc
    >>> print(rc.BumpTask(size=8, holdout="center:2:5").holdout_summary)
    48 combinations kept, 16 held out; every single value is seen
    """

    kept: int
    held_out: int
    unseen: tuple[str, ...]
    """Factor values that are held out altogether, as `x=3`."""
    absent: int = 0
    """Combinations of which there is no example, and which are neither."""

    @classmethod
    @checked
    def of(cls, mask: Bool[Tensor, " ..."], grid: FactorGrid, present: Bool[Tensor, " point"] | None = None) -> Self:
        """The summary of a mask over the grid, True where held out; `present` says of which points there are examples.

        >>> from recombine.factors import Factor
        >>> grid = FactorGrid((Factor("x", 0, 2, 3), Factor("y", 0, 1, 2)))
        >>> HoldoutSummary.of(torch.tensor([[False, False], [False, True], [True, True]]), grid)
        HoldoutSummary(kept=3, held_out=3, unseen=('x=2',), absent=0)
        """
        if mask.shape not in (grid.shape, (grid.size,)):
            raise InvalidValue("mask", mask, f"a mask over the grid of shape {grid.shape}")
        available = torch.ones_like(mask) if present is None else present.reshape(mask.shape)
        held_out, kept, unseen = mask & available, (~mask & available).reshape(grid.shape), list[str]()
        for axis, factor in enumerate(grid.factors):
            seen = kept.movedim(axis, 0).flatten(1).any(dim=1) if kept.ndim > 1 else kept
            unseen += [f"{factor.name}={factor.values[i].item():g}" for i in torch.nonzero(~seen).flatten().tolist()]
        return cls(int(kept.sum()), int(held_out.sum()), tuple(unseen), grid.size - int(available.sum()))

    @property
    def every_value_seen(self) -> bool:
        """Whether every value of every factor is in some combination that is kept."""
        return not self.unseen

    def __str__(self) -> str:
        """One line, as a command prints it."""
        more = f" and {len(self.unseen) - MOST_NAMED} more" if len(self.unseen) > MOST_NAMED else ""
        unseen = (
            f"never seen: {listed(self.unseen[:MOST_NAMED])}{more}" if self.unseen else "every single value is seen"
        )
        absent = f", {self.absent} absent" if self.absent else ""
        return f"{self.kept} combinations kept, {self.held_out} held out{absent}; {unseen}"
