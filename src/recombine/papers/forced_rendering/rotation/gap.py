"""The gap in the angles, and the images that would fill it.

The **blend** at an angle in the gap mixes the true images at the gap's two edges, the last trained angles on either
side, with weights linear in the angle. What outputs are made of is told by regressing them on such images
(`regression`).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.tasks.rotation import RotationTask


def gap_angles(task: RotationTask) -> Float[Tensor, " angle"]:
    """The held-out angles of the first digit."""
    return task.grid.factors[-1].values[by_digit(task, task.held_out)[0]]


def gap_edges(task: RotationTask) -> tuple[float, float]:
    """The last trained angles on either side of the gap."""
    inside, step = gap_angles(task), task.grid.factors[-1].spacing
    return inside.min().item() - step, inside.max().item() + step


def edge_images(task: RotationTask) -> Float[Tensor, "edge y x"]:
    """The first digit's true images at the gap's two edges."""
    return task.render(first_digit(task, torch.tensor(gap_edges(task), dtype=torch.float64)))


def linear_blend(task: RotationTask, angles: Float[Tensor, " angle"]) -> Float[Tensor, "angle y x"]:
    """The first digit's true images at the gap's edges, mixed with weights linear in the angle."""
    (low, high), (before, after) = gap_edges(task), edge_images(task)
    weight = ((angles - low) / (high - low))[:, None, None]
    return (1 - weight) * before + weight * after


def first_digit(task: RotationTask, angles: Tensor) -> Tensor:
    """Rows of factor values: the first digit at these angles."""
    return angles[:, None] if task.digits == 1 else torch.stack([torch.zeros_like(angles), angles], dim=1)


def by_digit(task: RotationTask, values: Tensor) -> Tensor:
    """Values over grid points as one row per digit."""
    return values.reshape(task.digits, task.angles)
