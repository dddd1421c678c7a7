"""How wrong outputs are, which values they show, how many bumps, and how deep inside a hold-out they lie (§3.2–3.3).

Conventions: squared errors are means over pixels (or code neurons), one number per grid point; regions are `id` (kept
combinations) and `ood` (held out). An error *over blank* is divided by the error, on the same points, of the output
that ignores the input: 1 means no better than drawing nothing. A point is a *hit* when the extreme pixel lies within
`tolerance` pixels of the truth along both axes.

The extreme pixel of a grey image is its brightest or darkest one. Colour has no polarity: a red thing on white is
darker in two channels and as bright in the third. There it is the pixel farthest from the background, distances summed
over channels (`contrast`). An image with the same bump in every channel has the same extreme pixel either way.

The extreme pixel needs a bump and says nothing of size or hue. For any renderer, `nearest_values` says which value of
each factor an output shows: it is compared, factor by factor, with the images that differ from its own target in that
factor alone. Of equally near images the lowest value counts.

Depth inside a hold-out is the distance to the nearest kept point, Chebyshev's (the largest difference along any
factor), in grid steps. What lies past the grid's border is not a kept point, so a corner that is held out is deepest in
the corner. A held-out point beside a kept one has distance 1.

A *peak* is a pixel that

- rises above `THRESHOLD` times the true bump's height, which is 1,
- is the highest within two pixels along both axes, so that peaks are at least three pixels apart, and
- is separate: every way from it to a higher pixel falls by at least `PROMINENCE` times that height first.

The last keeps the noise on a ridge from counting as a row of bumps. Among equals the first one (by row, then column)
is the higher, so a level ridge has one peak.

`several`: share of points with at least two peaks. `count`: mean number of peaks. `centred`: share of points with a
peak at the truth, that is within `TOLERANCE` pixels of it along both axes.

`aligned`: share of all points' peaks that lie within `TOLERANCE` of the true column or the true row. A network that
draws every bump right has 1, so this alone shows no artefacts; `away_aligned` is of the peaks that are not at the
truth. Each has its chance level beside it (`aligned_chance`, `away_chance`): the same share when each point's peaks are
held against the truth of another point, over all pairs of different points, which is exact and keeps where peaks lie.
A share of no peaks is NaN.

Known answers: a perfect output has error 0 and is a hit; a blank output has 1 over blank; a bump drawn one pixel off is
a hit, two off is not. Targets show their own values wherever images differ; a blank output shows the value whose image
has the least energy. The middle of a held-out square of 5 × 5 points has distance 3, one of a random mask mostly 1. For
bumps drawn right `count` and `centred` are 1, `several` is 0, `away_aligned` is NaN. For sums of kept bumps that share
x or y, `several`, `aligned` and `away_aligned` are 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import max_pool2d

from recombine.errors import InvalidValue

Polarity = Literal["bright", "dark"]
TOLERANCE = 1.0
"""Pixels that a coordinate may be off and still count."""
MARGIN = 3
"""Grid steps to the nearest kept point from which on a held-out point counts as interior."""
FEWEST = 4
"""Interior points below which a smaller margin is taken."""
THRESHOLD = 0.25
PROMINENCE = 0.1
REACH = 2
"""Pixels around a peak, along both axes, without a higher one."""
TIE = 1e-9
"""Share of the true height by which each pixel is lowered under the one before it, so that there are no equals."""
IMAGES_AT_ONCE = 2**14


def squared_error(
    outputs: Float[Tensor, " ..."], targets: Float[Tensor, " point *pixel"]
) -> Float[Tensor, "... point"]:
    """Mean squared error of the output at each point, with any member axes of the outputs before the points'.

    >>> squared_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [2.0]
    """
    if outputs.shape[outputs.ndim - targets.ndim :] != targets.shape or targets.ndim < 2:  # they would broadcast
        raise InvalidValue("outputs", outputs, f"of shape {tuple(targets.shape)}, as the targets")
    return (outputs - targets).square().flatten(-(targets.ndim - 1)).mean(dim=-1)


def contrast(images: Float[Tensor, "*point channel y x"], background: float = 0.0) -> Float[Tensor, "*point y x"]:
    """How far each pixel of a colour image is from the background: Σ |value − background| over channels.

    A grey image, bright where something is drawn, for `extreme_pixel`, `separate_peaks` and all others that look at
    grey ones.

    >>> red_on_white = torch.tensor([[[1.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.25]]])
    >>> contrast(red_on_white, background=1.0).tolist()
    [[0.0, 1.75]]
    """
    return (images - background).abs().sum(dim=-3)


def extreme_pixel(images: Float[Tensor, "*point y x"], polarity: Polarity = "bright") -> Int[Tensor, "*point 2"]:
    """`(column, row)` of the brightest (or darkest) pixel of each image, the first one among equals.

    >>> extreme_pixel(torch.tensor([[0.0, 0.0, 0.5], [0.0, 1.0, 0.0]])).tolist()
    [1, 1]
    """
    flat = images.flatten(-2)
    index = flat.argmax(dim=-1) if polarity == "bright" else flat.argmin(dim=-1)
    return torch.stack([index % images.shape[-1], index // images.shape[-1]], dim=-1)


def hits(
    located: Float[Tensor, "*member point axis"] | Int[Tensor, "*member point axis"],
    truth: Float[Tensor, "point axis"],
) -> Bool[Tensor, "*member point"]:
    """Whether every coordinate, such as `extreme_pixel` reads off outputs, is within `TOLERANCE` pixels.

    >>> hits(torch.tensor([[1.0, 4.0], [1.0, 5.0]]), torch.tensor([[2.0, 3.0], [2.0, 3.0]])).tolist()
    [True, False]
    """
    return ((located - truth).abs() <= TOLERANCE).all(dim=-1)


def nearest_values(
    outputs: Float[Tensor, "*member point pixel"], targets: Float[Tensor, "point pixel"], shape: tuple[int, ...]
) -> Int[Tensor, "*member point factor"]:
    """Position of the value that an output shows, factor by factor, from 0; points are in the grid's order.

    >>> targets = torch.eye(6)
    >>> nearest_values(targets, targets, (2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    >>> nearest_values(targets.roll(1, dims=0), targets, (2, 3))[1].tolist()  # shows what is right at the point before
    [0, 0]
    """
    energy = targets.square().sum(dim=-1)
    found = [_along(outputs, targets, energy, shape, factor) for factor in range(len(shape))]
    return torch.stack(found, dim=-1)


def _along(outputs: Tensor, targets: Tensor, energy: Tensor, shape: tuple[int, ...], factor: int) -> Tensor:
    """Of one factor: lines of the grid along it, all their outputs against all their targets."""
    lead = outputs.ndim - 2

    def lines(values: Tensor, axis: int) -> Tensor:
        return values.unflatten(axis, shape).movedim(axis + factor, axis + len(shape) - 1)

    own, right = lines(outputs, lead), lines(targets, 0)
    distance = lines(energy, 0)[..., None, :] - 2 * own @ right.mT
    nearest = distance.argmin(dim=-1)
    return nearest.movedim(lead + len(shape) - 1, lead + factor).flatten(lead)


def distance_inside(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Float[Tensor, " point"]:
    """Distance from each point of a grid to the nearest kept one: 0 at kept points, infinity if there is none.

    >>> distance_inside(torch.tensor([False, True, True, True, False, True]), (6,)).tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0]
    """
    from scipy.ndimage import distance_transform_cdt

    if bool(held_out.all()):
        return torch.full_like(held_out, torch.inf, dtype=torch.float64)
    steps = distance_transform_cdt(held_out.cpu().numpy().reshape(shape), "chessboard")
    return torch.from_numpy(steps).to(held_out.device, torch.float64).flatten()


def interior(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Bool[Tensor, " point"]:
    """Held-out points that are at least `MARGIN` grid steps away from every kept one.

    Where that leaves fewer than `FEWEST` points, the largest smaller margin that does not is taken, at last 1: all
    held-out points.

    >>> held_out = torch.tensor([False, True, True, True, True, True, True, False])
    >>> interior(held_out, (8,)).tolist()
    [False, False, True, True, True, True, False, False]
    """
    distance, margin = distance_inside(held_out, shape), MARGIN
    while margin > 1 and int((distance >= margin).sum()) < FEWEST:
        margin -= 1
    return distance >= margin


def separate_peaks(signals: Float[Tensor, "*image y x"], *, dark: bool = False) -> Bool[Tensor, "*image y x"]:
    """Where images over the background, with bumps of height 1, have peaks; an image with NaN has none.

    `dark` bumps on white make signals negative.

    >>> separate_peaks(torch.tensor([[0.0, 0.5, 0.0, 0.1, 0.4, 1.0, 0.7]])).int().tolist()
    [[0, 1, 0, 0, 0, 1, 0]]
    """
    rows, columns = signals.shape[-2:]
    images = (-signals if dark else signals).double().reshape(-1, 1, rows, columns)
    order = torch.arange(rows * columns, dtype=torch.float64, device=signals.device).reshape(rows, columns)
    parts = [_peaks(part - TIE * order) for part in images.split(IMAGES_AT_ONCE)]
    return torch.cat(parts).reshape(signals.shape)


def _peaks(images: Tensor) -> Tensor:
    """Peaks of images whose pixels all differ: `(image, 1, y, x)`.

    Water stands `PROMINENCE` below every pixel and rises from each as far as the image lets it pass (the
    morphological reconstruction); it has risen at a top that a higher one can be reached from without falling so far.
    """
    level = images - PROMINENCE
    for _ in range(images.shape[-1] * images.shape[-2]):  # no way is longer; NaN never comes to rest
        spread = torch.minimum(max_pool2d(level, 3, stride=1, padding=1), images)
        if torch.equal(spread, level):
            break
        level = spread
    separate = level <= images - PROMINENCE + TIE / 10
    highest = images == max_pool2d(images, 2 * REACH + 1, stride=1, padding=REACH)
    return separate & highest & (images > THRESHOLD)


def peak_scores(
    signals: Float[Tensor, "*member point y x"],
    positions: Float[Tensor, "point 2"],
    *,
    chosen: Bool[Tensor, " point"] | None = None,
    dark: bool = False,
) -> dict[str, Float[Tensor, "*member"]]:
    """How many peaks outputs have, and how many of these lie in the true row or column.

    Positions are column and row, in pixels, of each point's true bump. One number per member, over the chosen points or
    all: `several`, `count`, `centred`, `aligned`, `aligned_chance`, `away_aligned` and `away_chance`.
    """
    if chosen is not None:
        signals, positions = signals[..., chosen, :, :], positions[chosen]
    tops = separate_peaks(signals, dark=dark)
    column, row = (_near(positions[:, axis], tops.shape[-1 - axis]) for axis in range(2))
    centre = row[:, :, None] & column[:, None, :]
    away = ~centre
    aligned = row[:, :, None] | column[:, None, :]
    count = tops.sum(dim=(-2, -1))
    return {
        "several": (count >= 2).double().mean(dim=-1),
        "count": count.double().mean(dim=-1),
        "centred": (tops & centre).any(dim=-1).any(dim=-1).double().mean(dim=-1),
        "aligned": _own(tops, aligned) / _own(tops, torch.ones_like(aligned)),
        "aligned_chance": _others(tops, aligned) / _others(tops, torch.ones_like(aligned)),
        "away_aligned": _own(tops, aligned & away) / _own(tops, away),
        "away_chance": _others(tops, aligned & away) / _others(tops, away),
    }


def _near(values: Tensor, length: int) -> Tensor:
    """For each point, which pixels of an axis are near its value."""
    pixels = torch.arange(length, dtype=values.dtype, device=values.device)
    return (pixels - values[:, None]).abs() <= TOLERANCE


def _own(tops: Tensor, region: Tensor) -> Tensor:
    """Peaks within the region of their own point, over all points."""
    return (tops & region).sum(dim=(-3, -2, -1)).double()


def _others(tops: Tensor, region: Tensor) -> Tensor:
    """Peaks within the region of another point, over all pairs of different points."""
    pairs = tops.sum(dim=-3).double() * region.sum(dim=0).double()
    return pairs.sum(dim=(-2, -1)) - _own(tops, region)
