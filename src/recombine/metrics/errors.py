"""How wrong outputs are (§3.2).

Conventions: squared errors are means over pixels (or code neurons), one number per grid point; regions are `id` (kept
combinations) and `ood` (held out). An error *over blank* is divided by the error, on the same points, of the output
that ignores the input: 1 means no better than drawing nothing. A point is a *hit* when the extreme pixel lies within
`tolerance` pixels of the truth along both axes.

The extreme pixel of a grey image is its brightest or darkest one. Colour has no polarity: a red thing on white is
darker in two channels and as bright in the third. There it is the pixel farthest from the background, distances summed
over channels (`contrast`). An image with the same bump in every channel has the same extreme pixel either way.

Known answers: a perfect output has error 0 and is a hit; a blank output has 1 over blank; a bump drawn one pixel off
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


def _validate_outputs(outputs: Tensor, targets: Tensor) -> None:
    if outputs.shape[outputs.ndim - targets.ndim :] != targets.shape or targets.ndim < 2:
        raise InvalidValue("outputs", outputs, f"outputs of shape {tuple(targets.shape)}, as the targets")


def _validate_images(images: Tensor) -> None:
    if not images.shape[-1] * images.shape[-2]:
        raise InvalidValue("images", images, "images with at least one pixel")


@checked
def squared_error(
    outputs: Float[Tensor, " ..."], targets: Float[Tensor, " point *pixel"]
) -> Float[Tensor, "... point"]:
    """Mean squared error of the output at each point.

    Parameters
    ----------
    outputs
        As the targets, with any member axes before the points'.
    targets
        Right outputs, one row per point.

    Returns
    -------
    Tensor
        One number per member and point.

    Examples
    --------
    >>> squared_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [2.0]
    """
    _validate_outputs(outputs, targets)
    return (outputs - targets).square().flatten(-(targets.ndim - 1)).mean(dim=-1)


@checked
def contrast(images: Float[Tensor, "*point channel y x"], background: float = 0.0) -> Float[Tensor, "*point y x"]:
    """How far each pixel of a colour image is from the background: Σ |value − background| over channels.

    Parameters
    ----------
    images
        Colour images.
    background
        Value of an empty image, in every channel.

    Returns
    -------
    Tensor
        A grey image per image, bright where something is drawn: for `extreme_pixel`, `separate_peaks` and all others
        that look at grey ones.

    Examples
    --------
    >>> red_on_white = torch.tensor([[[1.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.25]]])
    >>> contrast(red_on_white, background=1.0).tolist()
    [[0.0, 1.75]]
    """
    return (images - background).abs().sum(dim=-3)


@checked
def extreme_pixel(images: Float[Tensor, "*point y x"], polarity: Polarity = "bright") -> Int[Tensor, "*point 2"]:
    """Column and row of the brightest (or darkest) pixel.

    Parameters
    ----------
    images
        Images of at least one pixel.
    polarity
        Which extreme is looked for: bright bumps or dark ones.

    Returns
    -------
    Tensor
        `(column, row)` per image; the first one among equals.

    Examples
    --------
    >>> extreme_pixel(torch.tensor([[0.0, 0.0, 0.5], [0.0, 1.0, 0.0]])).tolist()
    [1, 1]
    """
    _validate_images(images)
    flat = images.flatten(-2)
    index = flat.argmax(dim=-1) if polarity == "bright" else flat.argmin(dim=-1)
    return torch.stack([index % images.shape[-1], index // images.shape[-1]], dim=-1)


@checked
def hits(
    located: Float[Tensor, "*member point axis"] | Int[Tensor, "*member point axis"],
    truth: Float[Tensor, "point axis"],
    tolerance: float = TOLERANCE,
) -> Bool[Tensor, "*member point"]:
    """Whether every coordinate is within the tolerance.

    Parameters
    ----------
    located
        Coordinates read off the outputs, such as `extreme_pixel` gives.
    truth
        Right coordinates.
    tolerance
        Pixels that a coordinate may be off.

    Returns
    -------
    Tensor
        One truth value per member and point.

    Examples
    --------
    >>> hits(torch.tensor([[1.0, 4.0], [1.0, 5.0]]), torch.tensor([[2.0, 3.0], [2.0, 3.0]])).tolist()
    [True, False]
    """
    return ((located - truth).abs() <= tolerance).all(dim=-1)


@checked
def region_mean(values: Float[Tensor, "*member point"], region: Bool[Tensor, " point"]) -> Float[Tensor, "*member"]:
    """Mean over the points of a region.

    Parameters
    ----------
    values
        One number per member and point.
    region
        True for points of the region.

    Returns
    -------
    Tensor
        One number per member; NaN where the region is empty.

    Examples
    --------
    >>> region_mean(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([True, True, False])).item()
    2.0
    """
    return values[..., region].mean(dim=-1)
