"""Output errors, the factor values and bumps visible in outputs, and depth inside a hold-out (§3.2–3.3).

Squared errors are averaged over pixels (or code neurons), giving one number per grid point. A point is a *hit* if the
extreme pixel is within `TOLERANCE` pixels of the ground truth along both axes. This is the brightest or darkest pixel
of a grey image; colour has no polarity, so in a colour image it is the pixel farthest from the background (`contrast`).
Hits are meaningful only for bumps. For any renderer, `nearest_values` reads each factor's value off an output: the
value of the nearest image among those that differ from the target only in that factor (the lowest if tied).
`nearest_points` compares an output with all images instead, so that errors in several factors at once show as well.

Depth inside a hold-out is the Chebyshev distance to the nearest kept point, in grid steps. There are no kept points
beyond the grid's border, so a held-out corner is deepest at the grid's corner.

The *interior* of a hold-out are the points with at least `MARGIN` held-out points between them and any kept one.

A *peak* is a pixel that

- exceeds a threshold times a reference height: that of the true bump, which is 1, or the output's own maximum. Failing
  networks often draw faint images, whose peaks only the latter finds; an output whose maximum is below `FAINTEST` draws
  nothing and has no peaks by it,
- is the highest within two pixels along both axes, so that peaks are at least three pixels apart, and
- is separate: every path from it to a higher pixel first falls by at least `PROMINENCE` times that height, so that
  noise on a ridge does not count as a row of bumps. Among equal pixels, the first (by row, then column) is higher.

Known answers: a bump that is one pixel off is a hit; one that is two pixels off is not. Targets show their own values;
a blank output shows the value whose image has least energy. The middle of a held-out square of 5 × 5 points has depth
3. Correct bumps have `count` and `centred` 1, `several` 0 and `away_aligned` NaN. Sums of kept bumps that share x or y
have `several`, `aligned` and `away_aligned` 1. Two bumps of height 0.15 are two peaks relative to the own maximum and
none relative to the true height.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import max_pool2d

from recombine.errors import InvalidValue

Polarity = Literal["bright", "dark"]
TOLERANCE = 1.0
"""Allowed error of a coordinate, in pixels."""
MARGIN = 3
"""Minimum number of held-out points between an interior point and the kept ones: it is 4 steps away from them."""
FEWEST = 4
"""Minimum number of interior points; with fewer, a smaller margin is used."""
THRESHOLD = 0.25
"""Default threshold, relative to the true bump's height."""
PROMINENCE = 0.1
FAINTEST = 0.05
"""Smallest maximum, relative to the true bump's height, of an output in which peaks are sought by its own maximum."""
REACH = 2
"""A peak is the highest pixel within this distance along both axes."""
TIE = 1e-9
"""Each pixel is lowered by this much relative to the previous one, to break ties."""
PEAK_SCORES = ("several", "count", "centred", "aligned", "aligned_chance", "away_aligned", "away_chance")
"""What `peak_scores` returns."""
IMAGES_AT_ONCE = 2**14
ROWS_AT_ONCE = 2**9
SAME = 0.02
"""Two targets look the same if their squared difference is at most this fraction of the targets' variance."""


def squared_error(
    outputs: Float[Tensor, " ..."], targets: Float[Tensor, " point *pixel"]
) -> Float[Tensor, "... point"]:
    """Return the mean squared error of the output at each point; outputs may have leading member axes.

    >>> squared_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [2.0]
    """
    if outputs.shape[outputs.ndim - targets.ndim :] != targets.shape or targets.ndim < 2:  # they would broadcast
        raise InvalidValue("outputs", outputs, f"of shape {tuple(targets.shape)}, that of the targets")
    return (outputs - targets).square().flatten(-(targets.ndim - 1)).mean(dim=-1)


def contrast(images: Float[Tensor, "*point channel y x"], background: float = 0.0) -> Float[Tensor, "*point y x"]:
    """Return the distance of each pixel of a colour image from the background, Σ |value − background| over channels.

    The result is a grey image for `extreme_pixel`, `separate_peaks` and other functions of grey images.

    >>> red_on_white = torch.tensor([[[1.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.25]]])
    >>> contrast(red_on_white, background=1.0).tolist()
    [[0.0, 1.75]]
    """
    return (images - background).abs().sum(dim=-3)


def extreme_pixel(images: Float[Tensor, "*point y x"], polarity: Polarity = "bright") -> Int[Tensor, "*point 2"]:
    """Return `(column, row)` of the brightest (or darkest) pixel of each image, or of the first such pixel in a tie.

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
    """Return whether coordinates (such as those from `extreme_pixel`) are within `TOLERANCE` pixels of the true ones.

    >>> hits(torch.tensor([[1.0, 4.0], [1.0, 5.0]]), torch.tensor([[2.0, 3.0], [2.0, 3.0]])).tolist()
    [True, False]
    """
    return ((located - truth).abs() <= TOLERANCE).all(dim=-1)


def nearest_values(
    outputs: Float[Tensor, "*member point pixel"], targets: Float[Tensor, "point pixel"], shape: tuple[int, ...]
) -> Int[Tensor, "*member point factor"]:
    """Return the index of the value that each output shows for each factor; points are in grid order.

    >>> targets = torch.eye(6)
    >>> nearest_values(targets, targets, (2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    >>> nearest_values(targets.roll(1, dims=0), targets, (2, 3))[1].tolist()  # shows the target of the previous point
    [0, 0]
    """
    energy, lead = targets.square().sum(dim=-1), outputs.ndim - 2

    def lines(values: Tensor, first: int, factor: int) -> Tensor:
        """Reshape values to the grid, with the factor's axis last among the grid axes."""
        return values.unflatten(first, shape).movedim(first + factor, first + len(shape) - 1)

    nearest = []
    for factor in range(len(shape)):
        # ‖output − target‖² without the output's own norm, which is the same for all targets
        products = lines(outputs, lead, factor) @ lines(targets, 0, factor).mT
        distance = lines(energy, 0, factor)[..., None, :] - 2 * products
        nearest.append(distance.argmin(dim=-1).movedim(lead + len(shape) - 1, lead + factor).flatten(lead))
    return torch.stack(nearest, dim=-1)


def nearest_points(
    outputs: Float[Tensor, "point pixel"],
    targets: Float[Tensor, "other pixel"],
    own: Int[Tensor, " point"] | None = None,
) -> Int[Tensor, " point"]:
    """Return the index of the target nearest to each output, or its own index if the nearest target looks the same.

    Targets look the same if they differ by little (`SAME`) compared with how much all targets vary. `own` are the
    indices of the outputs' own targets (default: output i belongs to target i).

    >>> targets = torch.eye(4)
    >>> nearest_points(0.1 * targets.roll(1, dims=0), targets).tolist()
    [3, 0, 1, 2]
    """
    return ComparedTargets(targets).nearest(
        outputs, torch.arange(len(outputs), device=outputs.device) if own is None else own
    )


class ComparedTargets:
    """Targets with which `nearest_points` compares outputs, prepared once for many batches of outputs."""

    def __init__(self, targets: Float[Tensor, "other pixel"]) -> None:
        self.center = targets.float().mean(dim=0)
        self.truth = targets.float() - self.center  # products of large numbers would round away small distances
        self.energy = torch.cat([part.square().sum(dim=-1) for part in self.truth.split(ROWS_AT_ONCE)])

    def nearest(self, outputs: Float[Tensor, "point pixel"], own: Int[Tensor, " point"]) -> Int[Tensor, " point"]:
        """Return the index of the target nearest to each output, or its `own` if the nearest one looks the same."""
        found = []
        for part, mine in zip(outputs.split(ROWS_AT_ONCE), own.split(ROWS_AT_ONCE), strict=True):
            # ‖output − target‖² without the output's own norm, which is the same for all targets
            nearest = (self.energy - 2 * (part.float() - self.center) @ self.truth.T).argmin(dim=-1)
            same = (self.truth[nearest] - self.truth[mine]).square().sum(dim=-1) <= SAME * self.energy.mean()
            found.append(torch.where(same, mine, nearest))
        return torch.cat(found) if found else own


def distance_inside(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Float[Tensor, " point"]:
    """Return the distance from each grid point to the nearest kept one: 0 at kept points, infinite if none is kept.

    >>> distance_inside(torch.tensor([False, True, True, True, False, True]), (6,)).tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0]
    """
    from scipy.ndimage import distance_transform_cdt

    if bool(held_out.all()):
        return torch.full_like(held_out, torch.inf, dtype=torch.float64)
    steps = distance_transform_cdt(held_out.cpu().numpy().reshape(shape), "chessboard")
    return torch.from_numpy(steps).to(held_out.device, torch.float64).flatten()


def interior(held_out: Bool[Tensor, " point"], shape: tuple[int, ...]) -> Bool[Tensor, " point"]:
    """Return a mask of the held-out points with at least `MARGIN` held-out points between them and every kept one.

    With fewer than `FEWEST` such points, the margin is reduced step by step, down to 0 (all held-out points).

    >>> held_out = torch.tensor([False, True, True, True, True, True, True, False])
    >>> interior(held_out, (8,)).tolist()
    [False, False, True, True, True, True, False, False]
    >>> interior((torch.arange(12) % 11 > 0), (12,)).nonzero().flatten().tolist()
    [4, 5, 6, 7]
    """
    distance, margin = distance_inside(held_out, shape), MARGIN
    while margin and int((distance > margin).sum()) < FEWEST:
        margin -= 1
    return distance > margin


def separate_peaks(
    signals: Float[Tensor, "*image y x"], *, dark: bool = False, threshold: float = THRESHOLD, own: bool = False
) -> Bool[Tensor, "*image y x"]:
    """Return a mask of the peaks in signals (images minus background, bumps of height 1); none in images with NaN.

    The signals of `dark` bumps on white are negative. With `own`, heights are relative to each image's own maximum.

    >>> signal = torch.tensor([[0.0, 0.5, 0.0, 0.1, 0.4, 1.0, 0.7]])
    >>> separate_peaks(signal).int().tolist()
    [[0, 1, 0, 0, 0, 1, 0]]
    >>> separate_peaks(signal / 8).any().item(), separate_peaks(signal / 8, own=True).sum().item()
    (False, 2)
    """
    return peak_heights(signals, dark=dark, own=own) > threshold


def peak_heights(
    signals: Float[Tensor, "*image y x"], *, dark: bool = False, own: bool = False
) -> Float[Tensor, "*image y x"]:
    """Return the height of every peak of any height (`separate_peaks`), and -inf at all other pixels."""
    rows, columns = signals.shape[-2:]
    images = (-signals if dark else signals).double().reshape(-1, 1, rows, columns)
    if own:
        top = images.amax(dim=(-2, -1), keepdim=True)
        images = torch.where(top >= FAINTEST, images / top, -torch.inf)
    order = torch.arange(rows * columns, dtype=torch.float64, device=signals.device).reshape(rows, columns)
    parts = [_peaks(part - TIE * order) for part in images.split(IMAGES_AT_ONCE)]
    return torch.cat(parts).reshape(signals.shape)


def _peaks(images: Tensor) -> Tensor:
    """Return the heights of the peaks of `(image, 1, y, x)` images whose pixels all differ, and -inf elsewhere.

    This uses morphological reconstruction of the image from a copy lowered by `PROMINENCE`. The result exceeds that
    copy wherever a higher pixel can be reached without falling by `PROMINENCE`.
    """
    level = images - PROMINENCE
    for _ in range(images.shape[-1] * images.shape[-2]):  # at most the longest possible path, since NaN never converges
        spread = torch.minimum(max_pool2d(level, 3, stride=1, padding=1), images)
        if torch.equal(spread, level):
            break
        level = spread
    separate = level <= images - PROMINENCE + TIE / 10
    highest = images == max_pool2d(images, 2 * REACH + 1, stride=1, padding=REACH)
    return torch.where(separate & highest, images, -torch.inf)


def peak_scores(
    signals: Float[Tensor, "*member point y x"],
    positions: Float[Tensor, "point 2"],
    *,
    chosen: Bool[Tensor, " point"] | None = None,
    dark: bool = False,
    own: bool = False,
    thresholds: Sequence[float] | None = None,
) -> dict[str, Float[Tensor, "*member_and_threshold"]]:
    """Return the number of peaks in the outputs, and the fraction of them in the true row or column, per member.

    Positions are the column and row of each point's true bump, in pixels. Over the chosen points (default: all),
    `several` is the fraction with at least two peaks, `count` the mean number of peaks, and `centred` the fraction with
    a peak within `TOLERANCE` pixels of the true position. `aligned` is the fraction of all peaks within `TOLERANCE` of
    the true column or row; since correct bumps also score 1, `away_aligned` excludes peaks at the true position. Their
    chance levels (`aligned_chance`, `away_chance`) compare each point's peaks with the true position of another point,
    over all pairs of different points. Without peaks, these fractions are NaN. With `thresholds` (default: `THRESHOLD`
    alone), scores have one more axis, an entry per threshold; with `own`, they refer to each output's own maximum.
    """
    if chosen is not None:
        signals, positions = signals[..., chosen, :, :], positions[chosen]
    heights = peak_heights(signals, dark=dark, own=own)
    if thresholds is None:
        tops = heights > THRESHOLD
    else:
        bounds = torch.tensor(list(thresholds), dtype=torch.float64, device=heights.device)
        tops = heights[..., None, :, :, :] > bounds[:, None, None, None]
    pixels = [torch.arange(length).to(positions) for length in (tops.shape[-1], tops.shape[-2])]
    column, row = ((place - positions[:, k, None]).abs() <= TOLERANCE for k, place in enumerate(pixels))
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


def _own(tops: Tensor, region: Tensor) -> Tensor:
    """Count the peaks within the region of their own point."""
    return (tops & region).sum(dim=(-3, -2, -1)).double()


def _others(tops: Tensor, region: Tensor) -> Tensor:
    """Count the peaks within the region of another point, over all pairs of different points."""
    pairs = tops.sum(dim=-3).double() * region.sum(dim=0).double()
    return pairs.sum(dim=(-2, -1)) - _own(tops, region)
