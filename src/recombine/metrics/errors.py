"""How wrong the answers are (SPEC §2).

Conventions: squared errors are means over pixels (or code neurons), one number a grid point; regions are `id` (kept
combinations) and `ood` (held out). An error *over blank* is divided by the error, on the same points, of the answer
that ignores the input: 1 means no better than drawing nothing. A point is a *hit* when the extreme pixel lies within
`tolerance` pixels of the truth along both axes.

Known answers: a perfect answer has error 0 and is a hit; a blank answer has 1 over blank; a bump drawn one pixel off
is a hit, two off is not.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.checks import checked
from recombine.errors import InvalidValue

Polarity = Literal["bright", "dark"]
TOLERANCE = 1.0
"""Pixels that a coordinate may be off and still count."""


@checked
def squared_error(
    answers: Float[Tensor, " ..."], targets: Float[Tensor, " point *pixel"]
) -> Float[Tensor, "... point"]:
    """Mean squared error of each point's answer; answers may have member axes before the point's."""
    if answers.shape[answers.ndim - targets.ndim :] != targets.shape or targets.ndim < 2:
        raise InvalidValue("answers", answers, f"answers of shape {tuple(targets.shape)}, as the targets")
    return (answers - targets).square().flatten(-(targets.ndim - 1)).mean(dim=-1)


@checked
def extreme_pixel(images: Float[Tensor, "*point y x"], polarity: Polarity = "bright") -> Int[Tensor, "*point 2"]:
    """Column and row of the brightest (or darkest) pixel; the first one among equals."""
    if not images.shape[-1] * images.shape[-2]:
        raise InvalidValue("images", images, "images with at least one pixel")
    flat = images.flatten(-2)
    index = flat.argmax(dim=-1) if polarity == "bright" else flat.argmin(dim=-1)
    return torch.stack([index % images.shape[-1], index // images.shape[-1]], dim=-1)


@checked
def hits(
    found: Float[Tensor, "*member point axis"] | Int[Tensor, "*member point axis"],
    truth: Float[Tensor, "point axis"],
    tolerance: float = TOLERANCE,
) -> Bool[Tensor, "*member point"]:
    """Whether every coordinate is within the tolerance."""
    return ((found - truth).abs() <= tolerance).all(dim=-1)


@checked
def region_mean(values: Float[Tensor, "*member point"], region: Bool[Tensor, " point"]) -> Float[Tensor, "*member"]:
    """Mean over the points of a region; NaN where there are none."""
    return values[..., region].mean(dim=-1)
