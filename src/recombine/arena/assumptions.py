"""What remedies assume about images, measured on kept combinations alone, without a network.

additivity    an image is a sum of one image per block of factors
low rank      each pixel is a sum of at most four products, of one number per block
translation   changing a factor moves what it changes
coverage      what is shown lies at pixels that other images light

All are measured on an inner hold-out of a task, and 1 is perfect. The first two are R², with values of one block in the
rows of a matrix and those of all other factors in its columns. A sum, and a sum of products, is known at row a and
column b from the rest of a row, of a column, and the rows A and columns B where these cross, all of them kept:

    f(a, b) = mean f(a, B) + mean f(A, b) − mean f(A, B)          f(a, b) = the sum + f'(a, B) f'(A, B)⁺ f'(A, b)

f' is f without the sum. The sum counts as two products, as in analyses of variance with multiplicative interactions
(Gollob 1968). Held-out images without such rows and columns do not count. The smallest R² over blocks counts, since an
image is a sum over blocks only if it is one for each. What no kept images can test is NaN.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from recombine.arena.protocol import Rule
from recombine.arena.scores import Scorer
from recombine.errors import InvalidValue
from recombine.holdouts import Corner, Holdout, axes_of
from recombine.remedies.base import Assumption
from recombine.tasks import Task

ASSUMPTIONS: tuple[Assumption, ...] = get_args(Assumption)
HELD_OUT, SIDE, PIXELS, NEIGHBOURS = 64, 8, 512, 4
"""Held-out images, rows and columns, pixels, and neighbours of each factor that are looked at, at most."""
RENDERED, BATCH = 10_000, 256
"""Images in which lit pixels are looked for, at most, and images that are drawn at once."""
NEGLIGIBLE = 0.01
"""Root mean square of a product, as a share of the range of images, below which it is left out: products are divided by
these, and images of eight bits, or the tails of a bump, are rounded."""
INNER, COMPLETED = 0.1, 0.5
"""Share of the kept combinations in an inner hold-out, and of its combinations that complete rectangles, at least."""


def inner_holdout(task: Task) -> Holdout:
    """Return a hold-out inside the kept combinations: the corner of two factors that is nearest to a tenth of them.

    The factors are those with the most values, if possible of different blocks, and among those of the task's own
    hold-out. Every value stays in training, and if possible with the same values of all other factors: most
    combinations that are held out complete a rectangle of which the other three stay.

    Examples
    --------
    >>> import recombine as rc
    >>> from recombine.arena import inner_holdout
    >>> str(inner_holdout(rc.BumpTask(size=12, holdout="center:4:8")))
    'corner:factors=x,y:start=8,8'
    """
    kept, held, grid = task.usable.reshape(task.grid.shape), task.held_out.reshape(task.grid.shape), task.grid
    owner = [number for number, block in enumerate(axes_of(task.blocks, grid)) for _ in block]
    gone = held | ~task.present.view_as(held)
    own = {axis for axis in range(held.ndim) if bool((held.any(axis) & ~gone.all(axis)).any())}
    pairs = sorted(combinations(range(held.ndim), 2), key=lambda pair: -grid.shape[pair[0]] * grid.shape[pair[1]])
    pairs.sort(key=lambda pair: not (own.issuperset(pair) and owner[pair[0]] != owner[pair[1]]))
    others = list[tuple[float, Corner]]()
    for pair in pairs:
        corners = list[tuple[float, Corner]]()
        for side, share in product(("low", "high"), (0.2, 0.3, 0.4, 0.5)):
            inside = [max(1, round(share * grid.shape[axis])) for axis in pair]
            start = [n - 1 if side == "low" else grid.shape[axis] - n for n, axis in zip(inside, pair, strict=True)]
            corner = Corner(start=tuple(start), side=side, factors=tuple(grid.names[axis] for axis in pair))
            inner = kept & corner.mask(grid)
            if inner.sum() > 1 and _values(kept & ~inner) == _values(kept):
                composes = _completed(kept & ~inner, pair)[inner].double().mean() >= COMPLETED
                (corners if composes else others).append((abs(float(inner.sum() / kept.sum()) - INNER), corner))
        if corners:
            return min(corners, key=lambda one: one[0])[1]
    if others:
        return min(others, key=lambda one: one[0])[1]
    allowed = (
        "given, as random:fraction=0.1: no corner of two factors can be held out and leave every value in training"
    )
    raise InvalidValue("inner", None, allowed)


def _completed(kept: Tensor, pair: tuple[int, int]) -> Tensor:
    """Return where values of two factors complete a rectangle of kept combinations, the other factors being equal."""
    table = kept.movedim(pair, (-2, -1)).float()
    return (table @ table.mT @ table > 0).movedim((-2, -1), pair)


def _values(mask: Tensor) -> list[list[bool]]:
    """Return which values of each factor occur."""
    return [mask.movedim(axis, 0).flatten(1).any(dim=1).tolist() for axis in range(mask.ndim)]


def measured(task: Task, rank: int = Rule().rank) -> dict[str, float]:
    """Return how well each assumption holds on a task's held-out combinations, from 0 or less to 1.

    Pass a task whose held-out combinations are an inner hold-out, since their images are looked at.

    Examples
    --------
    >>> import recombine as rc
    >>> from recombine.arena import measured
    >>> own = measured(rc.BumpTask(size=12, holdout="corner:9", training="each"))
    >>> own["additivity"] < 0.1, own["translation"] > 0.99
    (True, True)
    """
    shown = _some(np.flatnonzero(task.held_out.numpy()), HELD_OUT)
    if task.direction != "decode" or not len(shown):
        raise InvalidValue("task", f"{task.direction}, {task.holdout}", "one that decodes, with a hold-out")
    blocks = axes_of(task.blocks, task.grid)
    splits = blocks if len(blocks) > 2 else blocks[: len(blocks) - 1]  # of two, each is all that the other is not
    scores = np.array([_predictable(task, shown, list(block), rank) for block in splits]).reshape(-1, 2)
    sums, products = np.fmin.reduce(scores, axis=0, initial=np.nan)
    values = (float(sums), float(products), _moved(task, shown), Scorer(task, points=RENDERED).lit())
    return dict(zip(ASSUMPTIONS, values, strict=True))


def _some(values: np.ndarray, most: int) -> np.ndarray:
    """Return evenly spaced values."""
    return values[np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)]


def _images(task: Task, points: np.ndarray) -> Tensor:
    """Return images relative to the background, in double precision, since products of small numbers are compared."""
    return task.images(task.grid.rows(torch.from_numpy(points))).double() - float(task.background)


def _predictable(task: Task, shown: np.ndarray, block: list[int], rank: int) -> tuple[float, float]:
    """Return R² of the best sum, and of the best sum of products, of a function of a block and one of the others."""
    others = [axis for axis in range(len(task.grid.shape)) if axis not in block]
    index = np.arange(task.grid.size).reshape(task.grid.shape).transpose(*block, *others)
    index = index.reshape(math.prod(task.grid.shape[axis] for axis in block), -1)
    kept = task.usable.numpy()[index]
    crossings = [own for place in np.argwhere(np.isin(index, shown)) if (own := _crossing(kept, *place)) is not None]
    points = [index[np.ix_(*own)] for own in crossings]  # in each, the first is held out and the others are kept
    if len(points) < 2:
        return np.nan, np.nan
    targets = _images(task, np.array([own[0, 0] for own in points])).flatten(1)
    varying = np.flatnonzero((targets.amax(0) > targets.amin(0)).numpy())
    if not len(varying):
        return np.nan, np.nan
    pixels, needed = _some(varying, PIXELS), np.unique(np.concatenate([own.ravel() for own in points]))
    parts = np.array_split(needed, -(-len(needed) // BATCH))
    images = torch.cat([_images(task, part).flatten(1)[:, pixels] for part in parts])
    truth, low, high = targets[:, pixels], images.amin(), images.amax()
    sums, products = torch.empty_like(truth), torch.empty_like(truth)
    for number, own in enumerate(points):
        values = images[torch.from_numpy(np.searchsorted(needed, own))].permute(2, 0, 1)
        rows, columns = values[:, :, 1:].mean(2, keepdim=True), values[:, 1:].mean(1, keepdim=True)
        whole = rows + columns - values[:, 1:, 1:].mean((1, 2), keepdim=True)
        rest = values - whole
        left, sizes, right = torch.linalg.svd(rest[:, 1:, 1:], full_matrices=False)
        least = NEGLIGIBLE * (high - low) * math.sqrt(left.shape[1] * right.shape[2])
        inverse = torch.where(sizes > least, 1 / sizes, 0.0)
        inverse[:, rank - 2 :] = 0  # the sum counts as two
        more = rest[:, :1, 1:] @ right.mT * inverse[:, None] @ (left.mT @ rest[:, 1:, :1])
        sums[number] = whole[:, 0, 0]
        products[number] = (whole[:, 0, 0] + more.flatten()).clamp(low, high)  # ratios of rounding have no bounds
    spread = (truth - truth.mean(0)).square().sum()
    return tuple(float(1 - (own - truth).square().sum() / spread) for own in (sums, products))  # type: ignore[return-value]


def _crossing(kept: np.ndarray, row: int, column: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a place's row and column, and others that cross these and each other only in what is kept."""
    rows, columns = (_some(np.flatnonzero(own), 4 * SIDE) for own in (kept[:, column], kept[row]))
    while len(rows) and len(columns) and not (own := kept[np.ix_(rows, columns)]).all():
        by_row, by_column = own.mean(axis=1), own.mean(axis=0)  # the one with the fewest kept combinations goes
        if by_row.min() <= by_column.min():
            rows = np.delete(rows, by_row.argmin())
        else:
            columns = np.delete(columns, by_column.argmin())
    if not (len(rows) and len(columns)):
        return None
    return np.append(row, _some(rows, SIDE)), np.append(column, _some(columns, SIDE))


def _moved(task: Task, shown: np.ndarray) -> float:
    """Return the share of the squared difference from kept neighbours that a shift explains.

    Neighbours differ in one factor. Either the whole image is shifted, or what is the same for all values of the factor
    stays where it is: of each pixel, the value that is nearest to the background. Of neighbours and shifts, the best
    counts, with the target in view; so it does of what is shown without motion: a neighbour, what is the same, nothing.
    """
    index, still, shifted = np.arange(task.grid.size).reshape(task.grid.shape), 0.0, 0.0
    for position in zip(*np.unravel_index(shown, task.grid.shape), strict=True):
        errors = list[tuple[float, float]]()
        for axis, place in enumerate(position):
            line = index[(*position[:axis], slice(None), *position[axis + 1 :])]
            order = np.argsort(abs(np.arange(len(line)) - place), kind="stable")
            kept = line[order][task.usable.numpy()[line[order]]]
            if len(kept):
                near = kept[:NEIGHBOURS]
                images = _images(task, np.array([index[position], *near, *_some(kept[NEIGHBOURS:], 2 * NEIGHBOURS)]))
                same = images[1:].gather(0, images[1:].abs().argmin(0, keepdim=True))
                whole, rest = (shift_errors(own[0], own[1 : 1 + len(near)]) for own in (images, images - same))
                fixed = torch.stack([whole[:, 0, 0].min(), *(own[0].square().sum() for own in (images, images - same))])
                errors.append((float(fixed.min()), float(torch.minimum(whole, rest).min())))
        if errors:
            nearest, best = (min(own) for own in zip(*errors, strict=True))
            still, shifted = still + nearest, shifted + best
    return 1 - shifted / still if still > 0 else np.nan


def shift_errors(target: Tensor, images: Tensor) -> Tensor:
    """Return the squared difference of each image, at every shift, from a target: `(image, y, x)`.

    Shifts are counted from 0, then from the most negative one to −1, as in a Fourier transform. What is moved in is
    background, and what is moved out is lost.
    """
    size = tuple(2 * side for side in target.shape[-2:])

    def correlation(first: Tensor, second: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(first, s=size) * torch.fft.rfft2(second, s=size).conj()
        own = torch.fft.irfft2(spectrum, s=size)
        return own.sum(dim=1) if own.ndim == 4 else own  # over channels

    left = correlation(torch.ones_like(target), images.square())
    return (target.square().sum() + left - 2 * correlation(target, images)).clamp(min=0)
