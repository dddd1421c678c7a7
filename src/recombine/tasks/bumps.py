"""Bumps with any number of factors: a Gaussian of which x, y, size, intensity and orientation may vary.

The paper's task (`bump.py`) generalised, with a kind of its own so that the paper's runs keep their keys; with the
factors x and y alone both draw the same images, bit for bit. `image[y, x]`, pixel centres at 0 … size − 1.

A quantity that is neither a factor nor fixed, or whose factor is NaN in a row, is **absent**:

- `x`, `y`: column and row of the centre. Absent: the bump is drawn out along that axis to a stripe, the largest value
  over all places on it; without both the image is uniform, whatever size and orientation are.
- `size`: what σ is multiplied by. Absent: 1.
- `intensity`: the height of the bump. Absent: 1.
- `orientation`: degrees, counter-clockwise as seen, by which the long axis is turned from the horizontal; the standard
  deviations are σ√e along and σ/√e across it, for an elongation e. Period 180°. Absent: the bump is round, with σ; its
  volume is the same.

Known answers: a bump far from the border adds up to 2πσ²·size²·intensity at every orientation; 180° is 0°, bit for bit.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from recombine.factors import TURN
from recombine.tasks.base import TASKS
from recombine.tasks.quantities import FactorText, Quantity, QuantityTask
from recombine.tasks.shapes import cos_sin


@TASKS.register
class BumpsTask(QuantityTask):
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
    """Which of x, y, size, intensity, orientation are factors, each as NAME=COUNT or NAME=LOW..HIGH..COUNT."""
    size: Annotated[int, Field(ge=2, le=512)] = 28
    """Rows and columns of the image."""
    sigma: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Width of the bump in pixels."""
    polarity: Literal["bright", "dark"] = "bright"
    """`bright`: the bump is 1 on 0. `dark`: 0 on 1, as in the published scripts."""
    elongation: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Ratio of the long to the short axis of a bump that has an orientation."""

    def quantities(self) -> tuple[Quantity, ...]:
        return (
            Quantity("x", 0, self.size - 1),
            Quantity("y", 0, self.size - 1),
            Quantity("size", 0.5, 2, least=1e-3, most=1e3),
            Quantity("intensity", 0, 1, open_end="low", least=0),
            Quantity("orientation", 0, TURN / 2, open_end="high", form="angle", period=TURN / 2),
        )

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def background(self) -> float:
        return 0.0 if self.polarity == "bright" else 1.0

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        columns = self.columns(values)
        sigma = self.sigma * present(columns["size"], 1.0)
        upright = bool(torch.isnan(columns["orientation"]).all())
        image = self._upright(columns, sigma) if upright else self._turned(columns, sigma)
        if not bool(torch.isnan(columns["intensity"]).all()):
            image = image * present(columns["intensity"], 1.0)[:, None, None]
        return image if self.polarity == "bright" else 1 - image

    def _upright(self, columns: dict[str, Tensor], sigma: Float[Tensor, " row"]) -> Float[Tensor, "row y x"]:
        """Round bumps: one profile along each axis."""
        across, down = (self._profile(columns[name], sigma) for name in ("x", "y"))
        return across[:, None, :] * down[:, :, None]

    def _profile(self, centers: Float[Tensor, " row"], sigma: Float[Tensor, " row"]) -> Float[Tensor, "row pixel"]:
        return torch.exp(-(self._offsets(centers) ** 2) / (2 * sigma**2)[:, None])

    def _turned(self, columns: dict[str, Tensor], sigma: Float[Tensor, " row"]) -> Float[Tensor, "row y x"]:
        """Bumps with a covariance of their own; y goes downwards, so the long axis is (cos, −sin)."""
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

    def _offsets(self, centers: Float[Tensor, " row"]) -> Float[Tensor, "row pixel"]:
        """Pixels of one axis as seen from the centre; 0 where that is absent."""
        pixels = torch.arange(self.size, dtype=centers.dtype, device=centers.device)
        absent = torch.isnan(centers)[:, None]
        return torch.where(absent, 0.0, pixels - present(centers, 0.0)[:, None])


def present(values: Float[Tensor, " row"], neutral: float) -> Float[Tensor, " row"]:
    """The values, with a neutral one, which has no derivative, where they are absent."""
    return torch.where(torch.isnan(values), torch.full_like(values, neutral), values)
