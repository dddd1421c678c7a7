"""What a remedy is: a named change that may make a decoder compose.

A remedy changes a spec: its decoder, its data, its recipe, or its loss. Every one states where it comes from and which
privileges it has over the plain network, so that a table can show them beside its scores. A loss term is a plain
function of `(decode, codes, blocks, generator)`; `Penalty` gives it a name and a weight.

>>> @REMEDIES.register
... class Flat(Penalty):
...     "Penalise the mean square of the outputs."
...     kind: Literal["flat"] = "flat"
...     def loss(self, decode, codes, blocks, generator):
...         return decode(codes).square().mean()
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from recombine.decoders import DecoderSpec, Interface
from recombine.errors import InvalidValue
from recombine.records import Registry, Variant
from recombine.remedies.noise import Generator

Decode = Callable[[Tensor], Tensor]
"""A batch of codes to a batch of outputs, as a module does."""
Privilege = Literal["factor blocks", "held-out codes", "extra images", "pixel coordinates", "an encoder"]
"""What a remedy knows that the plain network does not: which inputs belong to one factor; codes of held-out
combinations, without their images; images beyond the kept combinations; where a pixel is; a map from image to code."""
Assumption = Literal["additivity", "low rank", "translation", "coverage"]
"""What a remedy assumes: images are sums of one per block of factors; pixels are sums of a few products of one number
per block; factors move what is shown; held-out images lie at pixels that kept ones light."""


class Spec(Protocol):
    """What a remedy changes: a `RunSpec`, which lies above remedies."""

    @property
    def task(self) -> Any: ...
    @property
    def decoder(self) -> Any: ...
    @property
    def recipe(self) -> Any: ...
    @property
    def penalties(self) -> tuple[Any, ...]: ...
    def replace(self, /, **fields: Any) -> Self: ...


S = TypeVar("S", bound=Spec)


class Remedy(Variant):
    """A change to a spec that may make the network compose.

    Examples
    --------
    >>> import recombine as rc
    >>> remedy = rc.REMEDIES.parse("additive")
    >>> remedy.source, remedy.knows
    ('Lachapelle et al. 2023', ('factor blocks',))
    >>> remedy.apply(rc.RunSpec(decoder="mlp")).decoder.kind
    'additive'
    """

    source: ClassVar[str] = ""
    """Where it was published."""
    knows: ClassVar[tuple[Privilege, ...]] = ()
    """Its privileges."""
    assumes: ClassVar[tuple[Assumption, ...]] = ()
    """What it assumes about images, which `prescribe` measures."""

    @abstractmethod
    def apply(self, spec: S) -> S:
        """Return the spec with this remedy."""

    @property
    def privileges(self) -> tuple[Privilege, ...]:
        """Its privileges with the present settings."""
        return self.knows


Weight = Annotated[float, Field(ge=0)]
"""Of a penalty. Defaults come from benchmarks/strengths.py: the strongest with which kept images are still learnt."""


class Penalty(Remedy):
    """A term of the loss.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> penalty = rc.REMEDIES.parse("mixup")
    >>> float(penalty.loss(torch.nn.Identity(), torch.rand(4, 6), (3, 3), None)) < 1e-6  # a linear map
    True
    """

    weight: Weight = 1.0
    """Weight of the term in the loss."""

    differentiates: ClassVar[bool] = True
    """Whether `loss` takes derivatives with respect to codes: without, it may run on kernels that have none."""

    @abstractmethod
    def loss(self, decode: Decode, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        """Return the term for a batch of codes, as a scalar, without its weight."""

    def check(self, decoder: DecoderSpec) -> None:
        """Raise InvalidValue if the decoder lacks what the term needs."""

    def auxiliary(self, interface: Interface) -> nn.Module | None:
        """Return a module that trains beside the decoder, reached in `loss` as `decode.auxiliary`."""
        return None

    def apply(self, spec: S) -> S:
        return spec.replace(penalties=(*spec.penalties, self))


class _Remedies(Registry[Remedy]):
    """The registry of remedies; an error shows the whole text, since a comparison has many."""

    def parse(self, value: Any) -> Remedy:
        try:
            return super().parse(value)
        except InvalidValue as error:
            raise InvalidValue(error.field, value if isinstance(value, str) else error.value, error.allowed) from None


REMEDIES: Registry[Remedy] = _Remedies("remedy", Remedy)
AnyPenalty = Annotated[SerializeAsAny[Penalty], BeforeValidator(REMEDIES.parse)]
