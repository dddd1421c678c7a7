"""The bump task: a Gaussian bump at (x, y), and stripes, its single factors shown alone (§3.1 of the paper).

`image[y, x]`; pixel centres at the integers 0 … size − 1. Each factor that is present contributes one multiplicative
term and an absent one contributes none, so a vertical stripe at x, `exp(−(i − x)² / 2σ²)` in every row, is the same
formula with y left out. A third factor, brightness, multiplies the whole.

Known answers: a blank image scores an MSE of πσ² / size² (0.0040 at size 28, σ = 1) against a bump far from the
border; a stripe has the same profile in every row.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from recombine.factors import Factor, FactorGrid
from recombine.tasks.base import TASKS, Task


@TASKS.register
class BumpTask(Task):
    """Gaussian bumps on a square image; x and y have as many values as it has columns and rows (N).

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
    size: Annotated[int, Field(ge=2, le=512)] = 28
    """Rows and columns of the image."""
    sigma: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Width of the bump in pixels."""
    polarity: Literal["bright", "dark"] = "bright"
    """`bright`: the bump is 1 on 0. `dark`: 0 on 1, as in the published scripts."""
    brightness: Annotated[int, Field(ge=1, le=512)] = 1
    """Levels of a third factor that scales the bump; 1 leaves it out."""

    def factor_grid(self) -> FactorGrid:
        factors = [Factor("x", 0, self.size - 1, self.size), Factor("y", 0, self.size - 1, self.size)]
        if self.brightness > 1:
            factors.append(Factor("brightness", 1 / self.brightness, 1, self.brightness))
        return FactorGrid(tuple(factors))

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def background(self) -> float:
        return 0.0 if self.polarity == "bright" else 1.0

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        self.check_columns(values)
        image = self._profile(values[:, 0])[:, None, :] * self._profile(values[:, 1])[:, :, None]
        if self.brightness > 1:
            image = image * values[:, 2].nan_to_num(nan=1.0)[:, None, None]
        return image if self.polarity == "bright" else 1 - image

    def _profile(self, centers: Float[Tensor, " row"]) -> Float[Tensor, "row pixel"]:
        """A Gaussian over the pixels of one axis; 1 everywhere where the factor is absent."""
        pixels = torch.arange(self.size, dtype=centers.dtype, device=centers.device)
        return torch.exp(-((pixels - centers[:, None]) ** 2) / (2 * self.sigma**2)).nan_to_num(nan=1.0)
