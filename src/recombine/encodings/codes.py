"""The codes themselves: bumps, one-hot, rate, ramp, positional, and those that know a circle."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from recombine.checks import checked
from recombine.encodings.base import ENCODINGS, Encoding
from recombine.errors import InvalidValue
from recombine.factors import Factor


def _neurons(factor: Factor, like: Tensor) -> Tensor:
    return torch.arange(factor.count, dtype=like.dtype, device=like.device)


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
    """s², in squared neuron spacings (the encoding-width study uses 1, 3, … 11)."""

    @checked
    def size(self, factor: Factor) -> int:
        return factor.count

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        distance = _neurons(factor, values) - factor.position(values)[..., None]
        return torch.exp(-(distance**2) / (2 * self.variance))


@ENCODINGS.register
class OneHot(Encoding):
    """1 at neuron k = v, 0 elsewhere; defined at the factor's own values only.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.OneHot().code(torch.tensor([2.0]), rc.Factor("x", 0, 3, 4))
    tensor([[0., 0., 1., 0.]])
    """

    kind: Literal["onehot"] = "onehot"
    differentiable: ClassVar[bool] = False

    @checked
    def size(self, factor: Factor) -> int:
        return factor.count

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        position = factor.position(values)
        if bool(((position - position.round()).abs() > 1e-6).any()):
            raise InvalidValue("encoding", self.kind, "another encoding: real-valued factors have no one-hot code")
        if bool(((position < -0.5) | (position > factor.count - 0.5)).any()):
            beyond = values[(position < -0.5) | (position > factor.count - 0.5)][0].item()
            raise InvalidValue(f"values of {factor.name}", beyond, f"{factor.low:g} to {factor.high:g}")
        return (_neurons(factor, values) == position.round()[..., None]).to(values.dtype)


@ENCODINGS.register
class Rate(Encoding):
    """The scalar itself: one neuron per factor.

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
    """`raw`: the factor's value as it is (pixels; the published scripts). `unit`: scaled to [−1, 1]."""

    @checked
    def size(self, factor: Factor) -> int:
        return 1

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if self.scale == "unit":
            half = (factor.high - factor.low) / 2 or 1.0
            values = (values - (factor.high + factor.low) / 2) / half
        return values[..., None]


@ENCODINGS.register
class Ramp(Encoding):
    """Graded thermometer: `clip(v − k + ½, 0, 1)`, the population form of a rate code.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Ramp().code(torch.tensor([1.25]), rc.Factor("x", 0, 3, 4))
    tensor([[1.0000, 0.7500, 0.0000, 0.0000]])
    """

    kind: Literal["ramp"] = "ramp"

    @checked
    def size(self, factor: Factor) -> int:
        return factor.count

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        return (factor.position(values)[..., None] - _neurons(factor, values) + 0.5).clamp(0.0, 1.0)


@ENCODINGS.register
class Positional(Encoding):
    """Sines, then cosines, of `v / base^(i/pairs)` for i = 0 … pairs − 1.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.Positional(pairs=2).code(torch.tensor([0.0]), rc.Factor("x", 0, 3, 4))
    tensor([[0., 0., 1., 1.]])
    """

    kind: Literal["positional"] = "positional"
    pairs: Annotated[int, Field(ge=1, le=4096)] = 8
    """Frequencies, each as a sine and a cosine."""
    base: Annotated[float, Field(gt=1, le=1e12)] = 10000.0
    """Ratio of the wavelength past the last to the first."""

    @checked
    def size(self, factor: Factor) -> int:
        return 2 * self.pairs

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        exponent = torch.arange(self.pairs, dtype=values.dtype, device=values.device) / self.pairs
        angle = factor.position(values)[..., None] / self.base**exponent
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


@ENCODINGS.register
class Polar(Encoding):
    """(cos θ, sin θ) of a factor that is an angle; any other factor is one-hot over its positions.

    Between two positions the one-hot code passes linearly from one neuron to the next, so that it has a derivative.
    An absent angle is (0, 0), which is no point of the circle.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> angle = rc.Factor.of("angle", [0.0, 90.0, 180.0], form="angle")
    >>> rc.Polar().code(torch.tensor([90.0]), angle).round().abs()
    tensor([[0., 1.]])
    """

    kind: Literal["polar"] = "polar"

    @checked
    def size(self, factor: Factor) -> int:
        return 2 if factor.form == "angle" else factor.count

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if factor.form == "angle":
            angle = factor.radians(values)
            return torch.stack([angle.cos(), angle.sin()], dim=-1)
        distance = _neurons(factor, values) - factor.position(values)[..., None]
        return (1 - distance.abs()).clamp(min=0.0)


@ENCODINGS.register
class Circular(Encoding):
    """A bump that goes round the circle: `exp((cos(θ − θ_k) − 1) / s²)`, with θ_k the angle of neuron k.

    Near its top it is the Gaussian of `bump`, but it is smooth all round and the same after a full period. A factor
    that is no angle has a `bump` code.

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
    """s², in squared neuron spacings."""

    @checked
    def size(self, factor: Factor) -> int:
        return factor.count

    @checked
    def code(self, values: Float[Tensor, "*shape"], factor: Factor) -> Float[Tensor, "*shape neuron"]:
        if factor.period is None:
            return Bump(variance=self.variance).code(values, factor)
        step = 2 * math.pi * factor.spacing / factor.period
        distance = factor.radians(values)[..., None] - factor.radians(factor.values.to(values))
        return torch.exp((distance.cos() - 1) / (self.variance * step**2))
