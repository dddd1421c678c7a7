"""The rotation task: handwritten digits rotated by an angle, with a gap in the angles.

Images `image[y, x]` show bright digits (up to 1) on black (0). Digits are rotated **counter-clockwise as displayed**
(row 0 on top), by an angle in degrees about the image centre, with bilinear interpolation in float64, which blurs them
except at multiples of 90°. For sizes other than 28, the upright digit is resampled by area before it is rotated.

The factor `angle` has evenly spaced values in [0°, 360°). With several digits, the factor `digit` comes first: value k
is `shown_digits[k]`. Without bounds, the hold-out `center` is a gap: the angles strictly between 160° and 200°, for the
first digit only. With a single digit, this removes them from training entirely, so `allow_unseen` is on by default.

Neither factor can be absent, so isolated examples are averages over the other one. See `digits/PROVENANCE.md` for the
source of the digits. Known answers: 0° is the upright digit, 90° is its `torch.rot90`, and 360° equals 0°.
"""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from math import ceil, floor
from typing import Annotated, ClassVar, Literal

import numpy as np
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
"""Bounds of the default gap in degrees; the bounds themselves are trained on."""
DIGITS = 10


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
    """Encoding of the factor values; by default, an angle is encoded as (cos θ, sin θ)."""
    allow_unseen: bool = True
    """Allow hold-outs that remove some angles from training entirely, such as a gap."""
    size: Annotated[int, Field(ge=2, le=512)] = 28
    """Height and width of the image in pixels."""
    angles: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Number of evenly spaced angles."""
    digit: Annotated[int, Field(ge=0, lt=DIGITS)] = 4
    """The digit to draw, or the first one if there are several."""
    digits: Annotated[int, Field(ge=1, le=DIGITS)] = 1
    """Number of different digits, which form a second factor; 1 omits this factor."""

    position_factors: ClassVar[tuple[str, ...]] = ()
    optional_factors: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def gap(cls, angles: int, digits: int = 1, edges: tuple[float, float] = GAP) -> Center:
        """Return a hold-out of the grid angles strictly between two `edges` (in degrees), for the first digit only."""
        low, high = floor(edges[0] * angles / TURN) + 1, ceil(edges[1] * angles / TURN) - 1
        if low > high:
            allowed = f"large enough for one angle between {edges[0]:g} and {edges[1]:g} degrees"
            raise InvalidValue("angles", angles, allowed)
        return Center(low=low, high=high) if digits == 1 else Center(low=(0, low), high=(0, high))

    def factor_grid(self) -> FactorGrid:
        angle = Factor("angle", 0, TURN * (self.angles - 1) / self.angles, self.angles, "angle")
        digit = Factor("digit", 0, self.digits - 1, self.digits, "category")
        return FactorGrid((angle,) if self.digits == 1 else (digit, angle))

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def shown_digits(self) -> tuple[int, ...]:
        """Digit for each value of the factor `digit`."""
        return (self.digit, *(other for other in range(DIGITS) if other != self.digit))[: self.digits]

    @cached_property
    def upright(self) -> Float[Tensor, "digit y x"]:
        """Upright digits with pixel values from 0 to 1, resized to the image."""
        with (files("recombine.tasks") / "digits" / "digits.npy").open("rb") as file:
            chosen = torch.from_numpy(np.load(file)[list(self.shown_digits)]).double() / 255
        if chosen.shape[1:] == self.image_shape:
            return chosen
        return functional.interpolate(chosen[:, None], size=self.image_shape, mode="area")[:, 0]

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        self.check_columns(values)
        if not bool(torch.isfinite(values).all()):
            raise InvalidValue("values", "NaN or infinity", "finite numbers")
        angle = torch.deg2rad(values[:, -1].double())
        cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
        # Map each pixel to its location in the upright image by the inverse rotation, with y pointing down.
        back = torch.stack([cos, -sin, none, sin, cos, none], dim=-1).reshape(-1, 2, 3)
        which = values[:, 0].round().long() if self.digits > 1 else torch.zeros_like(angle, dtype=torch.int64)
        if bool(((which < 0) | (which >= self.digits)).any()):
            raise InvalidValue("values", which.unique().tolist(), f"digit numbers from 0 to {self.digits - 1}")
        upright = self.upright.to(values.device)[which][:, None]
        grid = functional.affine_grid(back, list(upright.shape), align_corners=False)
        return functional.grid_sample(upright, grid, align_corners=False)[:, 0]

    def resolved_holdout(self) -> Holdout:
        return self.gap(self.angles, self.digits) if self.holdout == Center() else super().resolved_holdout()
