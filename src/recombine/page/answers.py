"""What a page needs to judge a decoder: its training set, its error at every grid point, and where its bumps belong.

The training set of a run is that of its seed, and may include images that belong to no grid point, such as stripes.
Of other modules all that is known is the hold-out, so that all kept combinations are assumed to be in the training set.

An error is the squared error relative to that of a blank image. An output is *in place* if its extreme pixel is within
a pixel of the true position (`recombine.metrics.hits`). Runs have positions if their tasks do. Targets of other modules
have positions if each image is a single bump with one extreme pixel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.diagnosis.calling import Call
from recombine.diagnosis.outcome import parting_stage
from recombine.metrics import contrast, extreme_pixel, hits, separate_peaks
from recombine.metrics.steps import step_change
from recombine.page.subject import ROWS_AT_ONCE, PageDecoder

if TYPE_CHECKING:
    from recombine.page.model import Blobs

CHECKED = 64  # number of targets that are checked for being single bumps
SMALLEST_IMAGE = 4  # pixels along each axis; smaller images have no bumps
LARGEST_STAGE = 2**26  # numbers
LARGEST_ERROR = 0.5  # of a network that composes, as in the page's script
MISSING = -1.0  # error at combinations without a target


class Bumps(NamedTuple):
    """Where the bumps of all grid points belong."""

    true: Tensor
    """Columns and rows, `(point, 2)`."""
    dark: bool
    """Whether bumps are darker than the background."""


def squared_errors(subject: PageDecoder, outputs: Tensor, rows: Tensor, points: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return squared errors of outputs and of blank images; `rows` are the targets, of `points` (default: all)."""
    own = outputs.flatten(1).double() if points is None else outputs.flatten(1)[points].double()
    return (own - rows).square().sum(dim=1), (rows.double() - subject.background).square().sum(dim=1)


def fails(subject: PageDecoder, outputs: Tensor, rows: Tensor, points: Tensor | None) -> bool:
    """Return whether the squared error over the hold-out is at least `LARGEST_ERROR` times that of blank images."""
    held_out = subject.held_out if points is None else subject.held_out[points]
    wrong, blank = (own[held_out].sum() for own in squared_errors(subject, outputs, rows, points))
    return bool(held_out.any() & (wrong >= LARGEST_ERROR * blank))


def breaking_stage(subject: PageDecoder) -> str | None:
    """Return the first stage at which held-out points part from kept ones, as `diagnose` does.

    None if there is no such stage, or if it is not known: for modules without named stages, and where the first stages
    that do not part are followed by one of more than `LARGEST_STAGE` numbers on the grid.
    """
    module = subject.module
    if not isinstance(module, StagedDecoder) or subject.call != Call():
        return None
    rows = subject.inputs(subject.grid.points)

    def changes() -> Iterator[float]:
        is_small = True
        for parts in zip(*(module.walk(part) for part in rows.split(ROWS_AT_ONCE)), strict=True):
            is_small = is_small and len(rows) * parts[0][1][0].numel() <= LARGEST_STAGE
            if not is_small:
                yield math.nan
                continue
            features = torch.cat([activation.flatten(1) for _, activation in parts])
            yield float(step_change(features, subject.grid.shape, subject.held_out))

    with torch.no_grad():
        found = parting_stage(module.stage_names, changes())
    return None if found is None else found[0]


def bits(mask: Tensor, blobs: Blobs) -> dict[str, int]:
    """Add one bit per grid point, lowest bit first."""
    return blobs.add(np.packbits(mask.numpy(), bitorder="little").tobytes())


def training_set(subject: PageDecoder, blobs: Blobs, largest: int) -> dict[str, Any] | None:
    """Add the training set: a mask of grid points, and images with positions (None: absent) that are not on the grid.

    Returns None if there are more than `largest` bytes of images.
    """
    if subject.spec is None:
        return {"seen": bits(~subject.unseen, blobs), "images": None, "positions": []}
    task, grid = subject.spec.task, subject.grid
    rows = task.training_values(subject.spec.seed)
    rows = torch.unique(rows.nan_to_num(nan=torch.inf), dim=0)  # NaN would equal nothing
    rows = torch.where(rows.isinf(), torch.nan, rows)
    values = rows[:, : len(grid.factors)]
    complete = ~values.isnan().any(dim=1)
    points = grid.nearest(values[complete])
    on_grid = complete.clone()
    # an additional column numbers the images of a combination, of which the target is the mean
    on_grid[complete] = (grid.rows(points) == values[complete]).all(dim=1) & (rows.shape[1] == values.shape[1])
    seen = torch.zeros(grid.size, dtype=torch.bool)
    seen[points[on_grid[complete]]] = True
    others = rows[~on_grid]
    if 2 * len(others) * task.blank.numel() > largest:
        return None
    images = blobs.images(task.images(others).flatten(1).float()) if len(others) else None
    return {"seen": bits(seen, blobs), "images": images, "positions": _positions(values[~on_grid], subject)}


def _positions(values: Tensor, subject: PageDecoder) -> list[list[float | None]]:
    """Return values in grid steps, or None where a factor is absent."""
    columns = [
        np.interp(values[:, k].numpy(), factor.values.numpy(), np.arange(factor.count))
        for k, factor in enumerate(subject.grid.factors)
    ]
    return [[None if np.isnan(one) else float(one) for one in row] for row in np.stack(columns, axis=1)]


def relative_errors(subject: PageDecoder, outputs: Tensor, rows: Tensor, points: Tensor | None) -> Tensor:
    """Return the error at every grid point; `rows` are the targets, of `points` (default: all)."""
    wrong, blank = squared_errors(subject, outputs, rows, points)
    relative = torch.where(blank > 0, wrong / blank, wrong)
    if points is None:
        return relative
    return torch.full((subject.grid.size,), MISSING, dtype=relative.dtype).index_copy(0, points, relative)


def positions(subject: PageDecoder, rows: Tensor, points: Tensor | None, image: tuple[int, int, int]) -> Bumps | None:
    """Return where the bumps of the targets `rows` belong, or None if images are not bumps."""
    grid, dark = subject.grid, subject.background != 0
    if subject.spec is not None:
        names = subject.spec.task.position_factors
        return Bumps(grid.points[:, [grid.names.index(name) for name in names]], dark) if names else None
    images = rows.reshape(-1, *image[1:])
    dark = bool(subject.background - rows.min() > rows.max() - subject.background)
    if image[0] != 1 or min(image[1:]) < SMALLEST_IMAGE or points is not None or not _are_bumps(
        (images - subject.background) * (-1 if dark else 1)
    ):  # fmt: skip
        return None
    return Bumps(extreme_pixel(images, "dark" if dark else "bright").double(), dark)


def judged(
    subject: PageDecoder, outputs: Tensor, rows: Tensor, points: Tensor | None, bumps: Bumps | None,
    image: tuple[int, int, int],
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the error at every grid point, whether outputs are in place, and the number of the breaking stage.

    `outputs` are at all grid points, `rows` are the targets, of `points` (default: all). Absent: there is none.
    """
    found = {"errors": relative_errors(subject, outputs, rows, points).numpy().astype("<f4")}
    if bumps is not None:
        shown = outputs.reshape(-1, *image)
        grey = shown[:, 0] if image[0] == 1 else contrast(shown, subject.background)
        extreme = extreme_pixel(grey, "dark" if bumps.dark and image[0] == 1 else "bright")
        found["placed"] = hits(extreme, bumps.true).numpy()
    if fails(subject, outputs, rows, points) and (stage := breaking_stage(subject)) is not None:
        assert isinstance(subject.module, StagedDecoder)
        found["breaks_at"] = np.array(subject.module.stage_names.index(stage))
    return found


def _are_bumps(signals: Tensor) -> bool:
    """Return whether each of some images has one peak and one brightest pixel."""
    sample = signals[torch.linspace(0, len(signals) - 1, min(len(signals), CHECKED)).long()]
    top = sample.flatten(1).topk(2).values
    return bool((top[:, 0] > 1.001 * top[:, 1]).all() and (separate_peaks(sample, own=True).sum(dim=(1, 2)) == 1).all())
