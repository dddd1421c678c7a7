"""One number per network, of networks that learnt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recombine.errors import InvalidValue
from recombine.reproduction.intervals import Estimate, TrimmedMean


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

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.learnt) == len(self.trained):
            raise InvalidValue("sample", len(self.values), "as many values as networks")

    @cached_property
    def estimate(self) -> Estimate:
        """Over the networks that learnt and have a value."""
        return self.estimated(self.values[self.learnt & self.trained & np.isfinite(self.values)])

    @property
    def networks_learnt(self) -> int:
        """How many learnt."""
        return int((self.learnt & self.trained).sum())

    @property
    def networks_trained(self) -> int:
        """How many were trained."""
        return int(self.trained.sum())
