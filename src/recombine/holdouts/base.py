"""What every hold-out is: a grid to a mask, and the registry of all kinds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Self

import torch
from jaxtyping import Bool
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from recombine.factors import FactorGrid
from recombine.frozen import Variant
from recombine.registry import Registry

CENTER_FRACTION = 17 / 28
"""Share of each factor's values inside the paper's centred box."""


class Holdout(Variant):
    """A rule that says which combinations of a grid are held out."""

    @abstractmethod
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """True where a combination is held out; the grid's shape."""

    def resolved(self, grid: FactorGrid) -> Self:
        """The same hold-out with every bound that follows the grid's size written out."""
        return self


HOLDOUTS: Registry[Holdout] = Registry("holdout", Holdout)
AnyHoldout = Annotated[SerializeAsAny[Holdout], BeforeValidator(HOLDOUTS.parse)]


def unseen_values(mask: Bool[Tensor, " ..."], grid: FactorGrid) -> list[str]:
    """The factor values that the mask removes altogether, as `x=3`."""
    unseen = []
    for axis, factor in enumerate(grid.factors):
        seen = (~mask).movedim(axis, 0).flatten(1).any(dim=1) if mask.ndim > 1 else ~mask
        unseen += [f"{factor.name}={factor.values[i].item():g}" for i in torch.nonzero(~seen).flatten().tolist()]
    return unseen
