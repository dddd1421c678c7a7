"""Gaussian bumps: `bump` with the factors x and y, and `bumps` with any of five factors.

Images are `image[y, x]`, with pixel centres at the integers 0 … size − 1.

**bump**: each factor that is present contributes one multiplicative term, so a vertical stripe at x,
`exp(−(i − x)² / 2σ²)` in every row, is a bump with y absent. Known answer: a blank image scores an MSE of πσ² / size²
(0.0040 at size 28, σ = 1) against a bump far from the border.

**bumps**: with the factors x and y, it draws the same images bit for bit; it is a separate kind so that the keys of
stored `bump` runs do not change. A quantity that is neither a factor nor fixed, or is NaN in a row, is **absent**:

- `x`, `y`: column and row of the centre. If one is absent, the bump becomes a stripe, its maximum along that axis.
- `size`: a factor that multiplies σ; 1 if absent.
- `intensity`: height of the bump; 1 if absent.
- `orientation`: angle of the long axis from the horizontal in degrees, counter-clockwise as displayed, with period
  180°. For elongation e, the standard deviations are σ√e along and σ/√e across it. If absent, the bump is round.

Known answers: a bump far from the border sums to 2πσ²·size²·intensity at every orientation; 180° equals 0° bit for bit.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from recombine.factors import TURN, Factor, FactorGrid
from recombine.tasks.base import TASKS, Task
from recombine.tasks.quantities import FactorText, Quantity, QuantityTask
from recombine.tasks.shapes import cos_sin


class GaussianTask(Task):
    """Bumps on a square image."""

    size: Annotated[int, Field(ge=2, le=512)] = 28
    """Height and width of the image in pixels."""
    sigma: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Width (standard deviation) of the bump in pixels."""
    polarity: Literal["bright", "dark"] = "bright"
    """Draw bumps of 1 on a background of 0 (bright), or of 0 on 1 (dark)."""

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def background(self) -> float:
        return 0.0 if self.polarity == "bright" else 1.0

    def _upright(self, x: Tensor, y: Tensor, width: Tensor | float) -> Float[Tensor, "row y x"]:
        """Return round bumps, each the product of one profile per axis; `width` is 2σ²."""
        across, down = (torch.exp(-(self._offsets(centers) ** 2) / width) for centers in (x, y))
        return across[:, None, :] * down[:, :, None]

    def _offsets(self, centers: Float[Tensor, " row"]) -> Float[Tensor, "row pixel"]:
        """Return each pixel's offset from the centre along one axis, or 0 if the factor is absent."""
        pixels = torch.arange(self.size, dtype=centers.dtype, device=centers.device)
        absent = torch.isnan(centers)[:, None]
        return torch.where(absent, 0.0, pixels - present(centers, 0.0)[:, None])


@TASKS.register
class BumpTask(GaussianTask):
    """Gaussian bumps on a square image of N × N pixels; x and y have N values each.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=8, encoding="rate", holdout="center:2:5")
    >>> task.grid.names, int(task.held_out.sum())
    (('x', 'y'), 16)
    >>> task.render(task.grid.points).shape
    torch.Size([64, 8, 8])
    """

    kind: Literal["bump"] = "bump"
    brightness: Annotated[int, Field(ge=1, le=512)] = 1
    """Number of values of a third factor, which scales the bump; 1 omits this factor."""

    def factor_grid(self) -> FactorGrid:
        factors = [Factor("x", 0, self.size - 1, self.size), Factor("y", 0, self.size - 1, self.size)]
        if self.brightness > 1:
            factors.append(Factor("brightness", 1 / self.brightness, 1, self.brightness))
        return FactorGrid(tuple(factors))

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        self.check_columns(values)
        image = self._upright(values[:, 0], values[:, 1], 2 * self.sigma**2)
        if self.brightness > 1:
            image = image * values[:, 2].nan_to_num(nan=1.0)[:, None, None]
        return image if self.polarity == "bright" else 1 - image


@TASKS.register
class BumpsTask(GaussianTask, QuantityTask):
    """Gaussian bumps on a square image with any of five factors.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpsTask(size=8, factors=("x=4", "y=4", "intensity=2"))
    >>> task.grid.names, task.grid.shape
    (('x', 'y', 'intensity'), (4, 4, 2))
    >>> task.render(task.grid.points[:2]).shape
    torch.Size([2, 8, 8])
    """

    kind: Literal["bumps"] = "bumps"
    factors: tuple[FactorText, ...] = ("x=14", "y=14", "size=4")
    """Factors, chosen from x, y, size, intensity, orientation, each as NAME=COUNT or NAME=LOW..HIGH..COUNT."""
    elongation: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Ratio of the long to the short axis of an oriented bump."""

    @property
    def position_factors(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("x", "y") if {"x", "y"} <= {*self.grid.names} else ()

    def quantities(self) -> tuple[Quantity, ...]:
        return (
            Quantity("x", 0, self.size - 1),
            Quantity("y", 0, self.size - 1),
            Quantity("size", 0.5, 2, least=1e-3, most=1e3),
            Quantity("intensity", 0, 1, open_end="low", least=0),
            Quantity("orientation", 0, TURN / 2, open_end="high", form="angle", period=TURN / 2),
        )

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        columns = self.columns(values)
        sigma = self.sigma * present(columns["size"], 1.0)
        if bool(torch.isnan(columns["orientation"]).all()):
            image = self._upright(columns["x"], columns["y"], (2 * sigma**2)[:, None])
        else:
            image = self._turned(columns, sigma)
        if not bool(torch.isnan(columns["intensity"]).all()):
            image = image * present(columns["intensity"], 1.0)[:, None, None]
        return image if self.polarity == "bright" else 1 - image

    def _turned(self, columns: dict[str, Tensor], sigma: Float[Tensor, " row"]) -> Float[Tensor, "row y x"]:
        """Return elongated bumps; y points down, so the long axis is (cos, −sin)."""
        orientation = columns["orientation"]
        long = torch.where(torch.isnan(orientation), 1.0, self.elongation).to(sigma)
        cosine, sine = cos_sin(present(orientation, 0.0))
        xx, yy = long * cosine**2 + sine**2 / long, long * sine**2 + cosine**2 / long  # determinant 1
        xy = (1 / long - long) * cosine * sine
        stripe_x, stripe_y = torch.isnan(columns["y"]), torch.isnan(columns["x"])
        sharp_x = torch.where(stripe_x, 1 / xx, yy) / (2 * sigma**2)
        sharp_y = torch.where(stripe_y, 1 / yy, xx) / (2 * sigma**2)
        right, down = self._offsets(columns["x"]), self._offsets(columns["y"])
        along = (sharp_x[:, None] * right**2)[:, None, :] + (sharp_y[:, None] * down**2)[:, :, None]
        mixed = ((xy / sigma**2)[:, None] * right)[:, None, :] * down[:, :, None]
        return torch.exp(mixed - along)


def present(values: Float[Tensor, " row"], neutral: float) -> Float[Tensor, " row"]:
    """Replace absent values with a neutral constant, whose derivative is 0."""
    return torch.where(torch.isnan(values), torch.full_like(values, neutral), values)
