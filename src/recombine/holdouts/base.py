"""What every hold-out is: a grid to a mask, over all factors or some of them; and the registry of all kinds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Self

from jaxtyping import Bool
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.frozen import ADDED, Variant
from recombine.holdouts.summary import HoldoutSummary
from recombine.registry import Registry

CENTER_FRACTION = 17 / 28
"""Share of each factor's values inside the paper's centred box."""


class Holdout(Variant):
    """A rule that says which combinations of a grid are held out.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.HOLDOUTS.parse("center:6:22")
    Center(kind='center', factors=None, low=6, high=22, fraction=None)
    >>> rc.BumpTask(size=8, holdout="corner:5").held_out.sum()
    tensor(9)
    """

    @abstractmethod
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """True where a combination is held out; the grid's shape."""

    def resolved(self, grid: FactorGrid) -> Self:
        """The same hold-out with every bound that follows the grid's size written out."""
        return self

    @checked
    def summary(self, grid: FactorGrid) -> HoldoutSummary:
        """How many combinations it keeps and holds out, and which single values it removes.

        >>> from recombine import Center, Factor, FactorGrid
        >>> print(Center().summary(FactorGrid((Factor("x", 0, 27, 28), Factor("y", 0, 27, 28)))))
        495 combinations kept, 289 held out; every single value is seen
        """
        return HoldoutSummary.of(self.mask(grid), grid)


def _places(factors: Any) -> Any:
    """Texts of digits as places: no factor has such a name."""
    if not isinstance(factors, (list, tuple)):
        return factors
    return tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in factors)


SomeFactors = Annotated[tuple[str | int, ...] | None, BeforeValidator(_places)]
"""Some factors of a grid, by name or place; None: all of them."""


class Pattern(Holdout):
    """A hold-out over some of the factors: the others are free, and all of their values are held out with it.

    A subclass says what is held out of the grid of the chosen factors alone.
    """

    factors: Annotated[SomeFactors, ADDED] = None
    """Factors it is about, by name or place, as x,angle or 0,2; bounds are in their order. Default: all factors."""

    @abstractmethod
    def pattern(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        """True where a combination of the chosen factors is held out; `grid` is theirs."""

    def written_out(self, grid: FactorGrid) -> Self:
        """The same with bounds that follow the size of the grid of the chosen factors as numbers."""
        return self

    @checked
    def resolved(self, grid: FactorGrid) -> Self:
        """The same with bounds as numbers and factors by name; without factors where it is about all of them."""
        chosen = self._chosen(grid)
        return self.written_out(chosen).replace(factors=None if chosen.names == grid.names else chosen.names)

    @checked
    def mask(self, grid: FactorGrid) -> Bool[Tensor, " ..."]:
        pattern, axes = self.pattern(self._chosen(grid)), self._axes(grid)
        in_order = pattern.permute(sorted(range(len(axes)), key=axes.__getitem__))
        sides = [count if axis in axes else 1 for axis, count in enumerate(grid.shape)]
        return in_order.reshape(sides).expand(grid.shape).contiguous()

    def _axes(self, grid: FactorGrid) -> tuple[int, ...]:
        try:
            return grid.axes(self.factors)
        except InvalidValue as error:
            raise InvalidValue("holdout.factors", error.value, error.allowed) from None

    def _chosen(self, grid: FactorGrid) -> FactorGrid:
        return grid if self.factors is None else FactorGrid(tuple(grid.factors[axis] for axis in self._axes(grid)))


HOLDOUTS: Registry[Holdout] = Registry("holdout", Holdout)
AnyHoldout = Annotated[SerializeAsAny[Holdout], BeforeValidator(HOLDOUTS.parse)]


def unseen_values(mask: Bool[Tensor, " ..."], grid: FactorGrid) -> list[str]:
    """The factor values that the mask removes altogether, as `x=3`."""
    return list(HoldoutSummary.of(mask, grid).unseen)
