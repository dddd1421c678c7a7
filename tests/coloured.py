"""A task for tests alone: bumps with one to five factors, grey or in three colours.

An image has more columns than rows, so that exchanged axes show. The colour of a bump is a mixture of red, green and
blue with weights that sum to 1; without the factor `hue` it is red. Without x (or y) the bump is a stripe.
"""

from typing import Literal

import torch
from torch import Tensor

from recombine.factors import Factor, FactorGrid
from recombine.tasks import Task

ROWS, COLUMNS = 6, 8
ALL = ("x", "y", "hue", "scale", "intensity")
RANGES = {"x": (0, COLUMNS - 1), "y": (0, ROWS - 1), "hue": (0, 2), "scale": (0.8, 1.6), "intensity": (0.5, 1)}


class ColouredBumps(Task):
    """Bumps on black or on white; not registered, so that it is in no contract of ours."""

    kind: Literal["coloured"] = "coloured"
    factors: tuple[str, ...] = ("x", "y", "hue")
    levels: int = 3
    """Values of every factor but x and y, which have one for each pixel unless `thin`."""
    thin: bool = False
    """Whether x and y have as few values as the others."""
    grey: bool = False
    polarity: Literal["bright", "dark"] = "bright"

    def factor_grid(self) -> FactorGrid:
        own = {"x": COLUMNS, "y": ROWS} if not self.thin else {}
        return FactorGrid(tuple(Factor(name, *RANGES[name], own.get(name, self.levels)) for name in self.factors))

    @property
    def position_factors(self) -> tuple[str, ...]:
        return ("x", "y") if {"x", "y"} <= set(self.factors) else ()

    @property
    def image_shape(self) -> tuple[int, ...]:
        return (ROWS, COLUMNS) if self.grey else (3, ROWS, COLUMNS)

    @property
    def background(self) -> float:
        return 0.0 if self.polarity == "bright" else 1.0

    def render(self, values: Tensor) -> Tensor:
        self.check_columns(values)
        width = self._of(values, "scale", 1.0)
        image = (
            self._profile(values, "y", ROWS, width)[:, :, None] * self._profile(values, "x", COLUMNS, width)[:, None]
        )
        image = image * self._of(values, "intensity", 1.0)[:, None, None]
        if not self.grey:
            anchors = torch.arange(3, dtype=values.dtype, device=values.device)
            weights = (1 - (self._of(values, "hue", 0.0)[:, None] - anchors).abs()).clamp(min=0)
            image = weights[:, :, None, None] * image[:, None]
        return image if self.polarity == "bright" else 1 - image

    def _of(self, values: Tensor, name: str, absent: float) -> Tensor:
        if name not in self.factors:
            return torch.full_like(values[:, 0], absent)
        return values[:, self.factors.index(name)].nan_to_num(nan=absent)

    def _profile(self, values: Tensor, name: str, length: int, width: Tensor) -> Tensor:
        if name not in self.factors:
            return torch.ones(len(values), length, dtype=values.dtype, device=values.device)
        pixels = torch.arange(length, dtype=values.dtype, device=values.device)
        distance = pixels - values[:, self.factors.index(name), None]
        return torch.exp(-(distance**2) / (2 * width[:, None] ** 2)).nan_to_num(nan=1.0)
