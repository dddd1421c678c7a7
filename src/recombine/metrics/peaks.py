"""How many separate bumps an image shows, and whether they line up with the true one (§3.2–3.3).

Conventions
-----------
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

Known answers: for bumps drawn right `count` and `centred` are 1, `several` is 0, `away_aligned` is NaN. For sums of
kept bumps that share x or y, `several`, `aligned` and `away_aligned` are 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import max_pool2d

from recombine.metrics.errors import TOLERANCE

THRESHOLD = 0.25
PROMINENCE = 0.1
REACH = 2
"""Pixels around a peak, along both axes, without a higher one."""
TIE = 1e-9
"""Share of the true height by which each pixel is lowered under the one before it, so that there are no equals."""
IMAGES_AT_ONCE = 2**14


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
