"""What every encoding is: the value of one factor to a code; and the registry of all kinds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.frozen import Variant
from recombine.registry import Registry


class Encoding(Variant):
    """Value of a factor to its code.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.ENCODINGS.parse("bump").size(rc.Factor("x", 0, 27, 28))
    28
    >>> rc.BumpTask(encoding="rate").code_sizes
    (1, 1)
    """

    population: ClassVar[bool] = True
    """Whether an absent factor can be told from a present one."""
    differentiable: ClassVar[bool] = True
    """Whether the code varies smoothly with the value, and real-valued factors can be coded."""

    @abstractmethod
    def size(self, factor: Factor) -> int:
        """How many neurons code the factor."""

    @abstractmethod
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        """The code of each value."""

    @checked
    def present(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        """The code of each value, with zeros where the value is NaN: the factor is absent there."""
        if not self.population:
            if bool(torch.isnan(values).any()):
                raise InvalidValue("encoding", self.kind, "a population code, since the data leave factors absent")
            return self.code(values, factor)
        absent = torch.isnan(values)
        code = self.code(torch.where(absent, torch.full_like(values, factor.low), values), factor)
        return torch.where(absent[..., None], torch.zeros_like(code), code)

    def of(self, factor: Factor) -> Encoding:
        """The encoding of this factor: itself, unless encodings are mixed."""
        return self

    def resolved(self, grid: FactorGrid) -> Encoding:
        """The same encoding with what follows the factors' forms written out."""
        return self


ENCODINGS: Registry[Encoding] = Registry("encoding", Encoding)
AnyEncoding = Annotated[SerializeAsAny[Encoding], BeforeValidator(ENCODINGS.parse)]
