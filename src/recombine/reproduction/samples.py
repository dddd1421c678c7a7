"""One number per network, of networks that learnt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recombine.errors import InvalidValue
from recombine.reproduction.intervals import Estimate, TrimmedMean

FEWEST_LEARNT = 0.75
"""Share of the trained networks that must have learnt."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Values over networks, and which of the networks learnt; only those count."""

    values: np.ndarray
    """One per network; NaN where it has none."""
    learnt: np.ndarray
    """Whether each network learnt what it was trained on."""
    trained: np.ndarray
    """Whether each network was trained; arms may have fewer networks than others."""
    estimated: Callable[[np.ndarray], Estimate] = TrimmedMean.of
    """The estimate from the values that count."""
    share_learnt: float | None = None
    """Share of networks that learnt, of compared arms the smallest; that of this sample if left out."""

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.learnt) == len(self.trained):
            raise InvalidValue("sample", len(self.values), "as many values as networks")

    @cached_property
    def estimate(self) -> Estimate:
        """Over the networks that learnt and have a value."""
        return self.estimated(self.values[self._counted])

    @property
    def networks_counted(self) -> int:
        """How many learnt and have a value."""
        return int(self._counted.sum())

    @property
    def networks_learnt(self) -> int:
        """How many learnt."""
        return int((self.learnt & self.trained).sum())

    @property
    def networks_trained(self) -> int:
        """How many were trained."""
        return int(self.trained.sum())

    @property
    def enough_learnt(self) -> bool:
        """Whether enough networks learnt, arm by arm, and enough of those have a value."""
        learnt, trained = self.networks_learnt, self.networks_trained
        share = learnt / max(1, trained) if self.share_learnt is None else self.share_learnt
        return share >= FEWEST_LEARNT and self.networks_counted >= FEWEST_LEARNT * learnt

    @property
    def _counted(self) -> np.ndarray:
        return np.asarray(self.learnt & self.trained & np.isfinite(self.values))
