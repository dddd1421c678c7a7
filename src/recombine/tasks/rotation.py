"""The rotation task: a handwritten digit turned by an angle, with a gap in the angles (E.2, Fig. 9).

Conventions: bright digit on black, 0 … 1, `image[y, x]`. Angles are in degrees, **counter-clockwise as seen** (row 0 on
top), about the centre of the image, by bilinear interpolation in float64; what turns in from outside is black. That
blurs a little at every angle but the multiples of 90°, where pixels fall on pixels. Another size than the digits' own
is made from the upright digit, by area resampling, before it is turned.

The factor `angle` has evenly spaced values in [0°, 360°). With several digits the factor `digit` comes first: its value
k stands for `shown_digits[k]`, which begins with the field `digit` and goes on with the others in order. The hold-out
`center` without bounds is the paper's gap: the angles strictly between 160° and 200°, of digit 0 alone where there are
several. With one digit that removes whole angles, so `allow_unseen` is on unless it is turned off.

No digit is seen without an angle, and no angle without a digit: isolated examples show the mean over the other one.

Digits come from `digits/digits.npy`; `digits/PROVENANCE.md` says where that is from. Known answers: 0° is the upright
digit, 90° is `torch.rot90` of it, 360° is 0° again.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from math import ceil, floor
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from recombine.encodings import AnyEncoding, Polar
from recombine.errors import InvalidValue
from recombine.factors import TURN, Factor, FactorGrid
from recombine.holdouts import Center, Holdout
from recombine.tasks.base import TASKS, Task

GAP = (160, 200)
"""Edges of the paper's gap in degrees, themselves trained."""
DIGITS = 10


@cache
def upright_digits() -> Float[Tensor, "digit y x"]:
    """The ten digits as they were written, 0 … 1."""
    import numpy

    with (files("recombine.tasks") / "digits" / "digits.npy").open("rb") as file:
        return torch.from_numpy(numpy.load(file, allow_pickle=False)).double() / 255


@TASKS.register
class RotationTask(Task):
    """Rotated digits on a square image.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.RotationTask(size=8, angles=12, holdout=rc.RotationTask.gap(12))
    >>> task.grid.names, int(task.held_out.sum())
    (('angle',), 1)
    """

    kind: Literal["rotation"] = "rotation"
    encoding: AnyEncoding = Polar()
    """How factor values are coded; the paper's code of an angle is (cos θ, sin θ)."""
    allow_unseen: bool = True
    """Permit a hold-out that removes an angle altogether, as a gap does."""
    size: Annotated[int, Field(ge=2, le=512)] = 28
    """Rows and columns of the image."""
    angles: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """How many angles, evenly spaced."""
    digit: Annotated[int, Field(ge=0, lt=DIGITS)] = 4
    """The digit that is turned; the first of several."""
    digits: Annotated[int, Field(ge=1, le=DIGITS)] = 1
    """How many digits; 1 leaves the factor out."""

    position_factors: ClassVar[tuple[str, ...]] = ()
    optional_factors: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def gap(cls, angles: int, digits: int = 1, edges: tuple[float, float] = GAP) -> Center:
        """The hold-out of the grid angles strictly between the edges (degrees), of digit 0 where there are several."""
        low, high = floor(edges[0] * angles / TURN) + 1, ceil(edges[1] * angles / TURN) - 1
        if low > high:
            raise InvalidValue("angles", angles, f"so many that one lies between {edges[0]:g} and {edges[1]:g} degrees")
        return Center(low=low, high=high) if digits == 1 else Center(low=(0, low), high=(0, high))

    def factor_grid(self) -> FactorGrid:
        angle = Factor("angle", 0, TURN * (self.angles - 1) / self.angles, self.angles, "angle")
        digit = Factor("digit", 0, self.digits - 1, self.digits, "category")
        return FactorGrid((angle,) if self.digits == 1 else (digit, angle))

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def background(self) -> float:
        return 0.0

    @property
    def shown_digits(self) -> tuple[int, ...]:
        """Which digit each value of the factor `digit` stands for."""
        return (self.digit, *(other for other in range(DIGITS) if other != self.digit))[: self.digits]

    @cached_property
    def upright(self) -> Float[Tensor, "digit y x"]:
        """The shown digits at 0°, in the image's size."""
        chosen = upright_digits()[list(self.shown_digits)]
        if chosen.shape[1:] == self.image_shape:
            return chosen
        return functional.interpolate(chosen[:, None], size=self.image_shape, mode="area")[:, 0]

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        self.check_columns(values)
        if not bool(torch.isfinite(values).all()):
            raise InvalidValue("values", "NaN or infinity", "numbers: a digit is never seen without an angle")
        angle = torch.deg2rad(values[:, -1].double())
        cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
        # Where each pixel of the image is found in the upright one: turned back, with y downwards.
        back = torch.stack([cos, -sin, none, sin, cos, none], dim=-1).reshape(-1, 2, 3)
        which = values[:, 0].round().long() if self.digits > 1 else torch.zeros_like(angle, dtype=torch.int64)
        if bool(((which < 0) | (which >= self.digits)).any()):
            raise InvalidValue("values", which.unique().tolist(), f"digits by their position, 0 to {self.digits - 1}")
        upright = self.upright.to(values.device)[which][:, None]
        grid = functional.affine_grid(back, list(upright.shape), align_corners=False)
        return functional.grid_sample(upright, grid, align_corners=False)[:, 0]

    def resolved_holdout(self) -> Holdout:
        return self.gap(self.angles, self.digits) if self.holdout == Center() else super().resolved_holdout()
