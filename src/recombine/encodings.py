"""Encodings, which map the value of a factor to the activity of its neurons (§3.1 of the paper).

Each factor has separate neurons, so every encoding is disentangled by construction. All factors use the same encoding,
except with `mixed`, as in `mixed:x=(bump:variance=3):shape=onehot`. All codes except `onehot` are differentiable in the
value. Population codes depend on the factor's *position* (0 … count − 1), not on its value; `rate` is the value itself.
The `polar` and `circular` codes of angles are periodic.

An **absent** factor, as in an isolated-factor example, has an all-zero code. Only population codes allow this: for
`rate`, zero is an ordinary value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator
from torch import Tensor

from recombine.errors import InvalidValue, listed, typed
from recombine.factors import Factor, FactorGrid, Form
from recombine.records import Registry, Variant

RAW = "raw"
"""What `diagnose` and `explore` call raw factor values, which are not an encoding."""


class Encoding(Variant):
    """Base class of encodings, which map the value of a factor to its code.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.ENCODINGS.parse("bump").size(rc.Factor("x", 0, 27, 28))
    28
    >>> rc.BumpTask(encoding="rate").code_sizes
    (1, 1)
    """

    population: ClassVar[bool] = True
    """Whether the code distinguishes an absent factor from a present one."""
    differentiable: ClassVar[bool] = True
    """Whether the code is defined between the factor's values and is differentiable."""

    def size(self, factor: Factor) -> int:
        """Return the number of neurons. Default: one per value."""
        return factor.count

    @abstractmethod
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        """Return the code of each value."""

    def present(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        """Return the code of each value, which is zero if the value is NaN because the factor is absent."""
        absent = torch.isnan(values)
        if not self.of(factor).population:
            if bool(absent.any()):
                raise InvalidValue("encoding", self.of(factor).kind, "a population code, since some factors are absent")
            return self.code(values, factor)
        code = self.code(torch.where(absent, torch.full_like(values, factor.low), values), factor)
        return torch.where(absent[..., None], torch.zeros_like(code), code)

    def of(self, factor: Factor) -> Encoding:
        """Return a factor's encoding: `self`, or the factor's part of a mixed encoding."""
        return self

    def resolved(self, grid: FactorGrid) -> Encoding:
        """Return the encoding with all defaults that depend on the factors filled in."""
        return self


ENCODINGS: Registry[Encoding] = Registry("encoding", Encoding)
AnyEncoding = Annotated[SerializeAsAny[Encoding], BeforeValidator(ENCODINGS.parse)]


def _distances(values: Tensor, factor: Factor) -> Tensor:
    """Return the distance of each value's position from the neurons 0 … count − 1."""
    neurons = torch.arange(factor.count, dtype=values.dtype, device=values.device)
    return factor.position(values)[..., None] - neurons


@ENCODINGS.register
class Bump(Encoding):
    """A Gaussian bump over neurons k = 0 … count − 1: `exp(−(k − v)² / 2s²)`.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Bump(variance=0.5).code(torch.tensor([1.0]), rc.Factor("x", 0, 3, 4)).round(decimals=3)
    tensor([[0.3680, 1.0000, 0.3680, 0.0180]])
    """

    kind: Literal["bump"] = "bump"
    variance: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Variance s², in squared neuron spacings (the encoding-width study uses 1, 3, … 11)."""

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return torch.exp(-(_distances(values, factor) ** 2) / (2 * self.variance))


@ENCODINGS.register
class OneHot(Encoding):
    """A one-hot code: 1 at neuron k = v, 0 elsewhere; defined only at the factor's values.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.OneHot().code(torch.tensor([2.0]), rc.Factor("x", 0, 3, 4))
    tensor([[0., 0., 1., 0.]])
    """

    kind: Literal["onehot"] = "onehot"
    differentiable: ClassVar[bool] = False

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        position = factor.position(values)
        if bool(((position - position.round()).abs() > 1e-6).any()):
            raise InvalidValue("encoding", self.kind, "another one, since real-valued factors have no one-hot code")
        beyond = values[(position < -0.5) | (position > factor.count - 0.5)]
        if len(beyond):
            raise InvalidValue(f"values of {factor.name}", beyond[0].item(), f"{factor.low:g} to {factor.high:g}")
        return (_distances(values, factor).round() == 0).to(values.dtype)


@ENCODINGS.register
class Rate(Encoding):
    """A rate code: the value itself, with one neuron per factor.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Rate(scale="unit").code(torch.tensor([0.0, 3.0]), rc.Factor("x", 0, 3, 4))
    tensor([[-1.],
            [ 1.]])
    """

    kind: Literal["rate"] = "rate"
    population: ClassVar[bool] = False
    scale: Literal["raw", "unit"] = "raw"
    """Use the raw value (raw; pixels in the published scripts), or scale it to [−1, 1] (unit)."""

    def size(self, factor: Factor) -> int:
        return 1

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if self.scale == "unit":
            half = (factor.high - factor.low) / 2 or 1.0
            values = (values - (factor.high + factor.low) / 2) / half
        return values[..., None]


@ENCODINGS.register
class Ramp(Encoding):
    """A graded thermometer code, `clip(v − k + ½, 0, 1)`: the population version of a rate code.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Ramp().code(torch.tensor([1.25]), rc.Factor("x", 0, 3, 4))
    tensor([[1.0000, 0.7500, 0.0000, 0.0000]])
    """

    kind: Literal["ramp"] = "ramp"

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return (_distances(values, factor) + 0.5).clamp(0.0, 1.0)


@ENCODINGS.register
class Positional(Encoding):
    """A positional code: sines, then cosines, of `v / base^(i/pairs)` for i = 0 … pairs − 1.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Positional(pairs=2).code(torch.tensor([0.0]), rc.Factor("x", 0, 3, 4))
    tensor([[0., 0., 1., 1.]])
    """

    kind: Literal["positional"] = "positional"
    pairs: Annotated[int, Field(ge=1, le=4096)] = 8
    """Number of frequencies, each with a sine and a cosine."""
    base: Annotated[float, Field(gt=1, le=1e12)] = 10000.0
    """Each wavelength is base^(1/pairs) times the previous one."""

    def size(self, factor: Factor) -> int:
        return 2 * self.pairs

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        exponent = torch.arange(self.pairs, dtype=values.dtype, device=values.device) / self.pairs
        angle = factor.position(values)[..., None] / self.base**exponent
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


@ENCODINGS.register
class Polar(Encoding):
    """(cos θ, sin θ) for an angle; for other factors, a one-hot code interpolated linearly between values.

    The interpolation makes the code differentiable. An absent angle is (0, 0), which is not on the circle.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> angle = rc.Factor.of("angle", [0.0, 90.0, 180.0], form="angle")
    >>> rc.Polar().code(torch.tensor([90.0]), angle).round().abs()
    tensor([[0., 1.]])
    """

    kind: Literal["polar"] = "polar"

    def size(self, factor: Factor) -> int:
        return 2 if factor.form == "angle" else factor.count

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if factor.form == "angle":
            angle = factor.radians(values)
            return torch.stack([angle.cos(), angle.sin()], dim=-1)
        return (1 - _distances(values, factor).abs()).clamp(min=0.0)


@ENCODINGS.register
class Circular(Encoding):
    """A bump on the circle: `exp((cos(θ − θ_k) − 1) / s²)`, where θ_k is the angle of neuron k.

    Near its peak, it is close to the Gaussian of `bump`, but it is periodic. All other factors have a `bump` code.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> angle = rc.Factor.of("angle", [0.0, 90.0, 180.0, 270.0], form="angle")
    >>> rc.Circular().code(torch.tensor([0.0, 360.0]), angle).round(decimals=2)
    tensor([[1.0000, 0.6700, 0.4400, 0.6700],
            [1.0000, 0.6700, 0.4400, 0.6700]])
    """

    kind: Literal["circular"] = "circular"
    variance: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Variance s², in squared neuron spacings."""

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if factor.period is None:
            return Bump(variance=self.variance).code(values, factor)
        step = 2 * math.pi * factor.spacing / factor.period
        distance = factor.radians(values)[..., None] - factor.radians(factor.values.to(values))
        return torch.exp((distance.cos() - 1) / (self.variance * step**2))


DEFAULTS: dict[Form, Encoding] = {"number": Bump(), "category": OneHot(), "angle": Circular()}
"""Default encoding for each form of a factor."""


@ENCODINGS.register
class Mixed(Encoding):
    """One encoding per factor, e.g. `mixed:x=bump:angle=polar`; the default for a factor depends on its form.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=8, encoding="mixed:x=bump:y=rate").code_sizes
    (8, 1)
    >>> str(rc.Mixed(x="bump", y="rate"))
    'mixed:x=bump:y=rate'
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["mixed"] = "mixed"
    __pydantic_extra__: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _parse_parts(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        parts = dict(fields)
        for name in [own for own in fields if own != "kind"]:
            try:
                parts[name] = ENCODINGS.parse(fields[name])
            except InvalidValue as error:
                inner = error.field.partition(".")[2]
                field = ".".join(filter(None, ("encoding", name, inner)))
                raise InvalidValue(field, error.value, error.allowed) from None
            if isinstance(parts[name], Mixed):
                raise InvalidValue(f"encoding.{name}", str(parts[name]), "an encoding that is not mixed")
        return parts

    @property
    def parts(self) -> dict[str, Encoding]:
        """The given encodings, by factor name."""
        return dict(self.__pydantic_extra__ or {})

    def __str__(self) -> str:
        return ":".join([self.kind, *(f"{name}={typed(part)}" for name, part in self.parts.items())])

    def replace(self, /, **fields: Any) -> Self:
        return type(self)(**{**self.parts, **fields})

    def of(self, factor: Factor) -> Encoding:
        return self.parts.get(factor.name) or DEFAULTS[factor.form]

    def resolved(self, grid: FactorGrid) -> Encoding:
        for name, part in self.parts.items():
            if name not in grid.names:
                raise InvalidValue(f"encoding.{name}", str(part), f"an encoding of one of {listed(grid.names)}")
        parts = {factor.name: self.of(factor) for factor in grid.factors}
        first = next(iter(parts.values()))
        if all(part == first for part in parts.values()):
            return first
        if "kind" in parts:  # the field for the encoding's name
            raise InvalidValue("factors", "kind", "another name, unless all factors have the same encoding")
        return type(self)(**parts)

    @property
    def population(self) -> bool:  # type: ignore[override]
        return all(part.population for part in self.parts.values())

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        return all(part.differentiable for part in self.parts.values())

    def size(self, factor: Factor) -> int:
        return self.of(factor).size(factor)

    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return self.of(factor).code(values, factor)
