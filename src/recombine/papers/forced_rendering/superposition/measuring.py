"""How much of what networks draw in the hold-out superposes memories, with which kernel, and how many bumps it shows.

All in the interior of the hold-out unless a name says otherwise. Names of the numbers:

- `matched`, `mismatched`: variance explained by the best non-negative combination of training images that share x or y,
  and of as many that share neither; `own_…` the same of the networks' own outputs in the place of training images;
  `truth`, `beyond_truth`: by the true image, and by matching images beyond it;
- `memorised`, `averaged`, with `…_null`: by the sum of all matching outputs with equal weights, and by D(x̄) + D(ȳ);
- `kernel_or`, `kernel_product`, `kernel_radial`, `kernel_sum`: correlation of a family of kernels with the similarity
  of held-out and kept outputs, by `SIMILARITIES`; `kernel_p`: of `or` against shifted ones, for cosine alone;
- `block_contrast`: block contrast, by `CONTRASTS`;
- `several_peaks`, `peak_count`, `centred_peaks`, `aligned`, `aligned_chance`, `away_aligned`, `away_chance`: see
  `recombine.metrics.peaks`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import (
    averaged_prediction,
    block_contrast,
    gram_matrix,
    interior,
    kernel_families,
    nonnegative_superposition,
    peak_scores,
    superposition_scores,
)
from recombine.papers.forced_rendering.superposition.labels import (
    CONTRASTS,
    COSINE,
    DISTANCE,
    FAMILIES,
    FULL_MATRIX,
    SIMILARITIES,
    THRESHOLDS,
    overlap,
)
from recombine.reproduction.measuring import Batch
from recombine.tasks import Task

SUPERPOSITION_METRICS = (
    "averaged_prediction", "block_contrast", "gram_matrix", "interior", "kernel_families", "nonnegative_superposition",
    "peak_scores", "superposition_scores",
)  # fmt: skip
"""What `superposition_scores_of` measures with."""
SUPERPOSITION_DIMS = {**{f"kernel_{family}": ("similarity",) for family in FAMILIES}, "block_contrast": ("blocks",)}
"""Dimensions of what it gives that has some beside the networks'."""
SUPERPOSITION_COORDS = {"similarity": list(SIMILARITIES), "blocks": list(CONTRASTS)}
PEAK_NAMES = {"several": "several_peaks", "count": "peak_count", "centred": "centred_peaks"}


class Signals:
    """What networks draw over the grid, over the background, and what they should."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.task = batch, batch.task
        self.points, self.held = self.task.grid.points.to(batch.device), self.task.held_out.to(batch.device)
        self.codes = self.task.codes(self.points)
        self.truth = true_signals(self.task).to(batch.device)

    def of(self, codes: Tensor) -> Tensor:
        """What the networks draw for codes: `[member, row, pixel]`."""
        return self.batch.forward(codes.float()).flatten(2) - self.task.background

    @cached_property
    def drawn(self) -> Tensor:
        """At every grid point."""
        return self.of(self.codes)

    @cached_property
    def averaged(self) -> Tensor:
        """Σ over factors of the output for that factor with the others averaged, at every grid point."""
        return averaged_prediction(self.of, self.codes, self.task.code_sizes, self.codes[~self.held])


def true_signals(task: Task) -> Tensor:
    """Right outputs over the background at every grid point: `[point, pixel]`."""
    return task.render(task.grid.points).float().flatten(1) - task.background


def superposition_scores_of(batch: Batch) -> dict[str, np.ndarray]:
    """The numbers above of finished runs of one arm.

    Parameters
    ----------
    batch
        Networks that draw images; only their task and outputs are read.

    Returns
    -------
    dict of ndarray
        `[member]`, or `[member, …]` with the dimensions of `SUPERPOSITION_DIMS`.
    """
    signals = Signals(batch)
    scores = signal_scores(batch.task, signals.drawn, signals.averaged)
    return {name: value.float().cpu().numpy() for name, value in scores.items()}


def signal_scores(task: Task, drawn: Tensor, averaged: Tensor | None = None) -> dict[str, Tensor]:
    """The numbers above of outputs over the background.

    Parameters
    ----------
    task
        Whose grid and hold-out they are of.
    drawn
        Outputs over the background at every grid point: `[member, point, pixel]`.
    averaged
        D(x̄) + D(ȳ) at every grid point; without it, there are no numbers of that.

    Returns
    -------
    dict of Tensor
        As `superposition_scores_of`.
    """
    return {
        **_combinations(task, drawn, averaged),
        **_kernels(task, drawn),
        **_peaks(task, drawn),
    }


def _combinations(task: Task, drawn: Tensor, averaged: Tensor | None) -> dict[str, Tensor]:
    """What superpositions explain."""
    points, held, truth = task.grid.points.to(drawn.device), task.held_out.to(drawn.device), true_signals(task)
    truth, inner = truth.to(drawn.device), interior(held, task.grid.shape)
    scores = nonnegative_superposition(drawn, truth, points, held, chosen=inner, truth=truth)
    own = nonnegative_superposition(drawn, drawn, points, held, chosen=inner)
    scores |= {f"own_{name}": value for name, value in own.items()}
    some = ~held | inner
    parts = None if averaged is None else averaged[:, inner]
    summed = superposition_scores(drawn[:, some], points[some], held[some], averaged=parts)
    return {**scores, **summed}


def _kernels(task: Task, drawn: Tensor) -> dict[str, Tensor]:
    """Agreement of similarities with families of kernels, and their blocks."""
    points, held = task.grid.points.to(drawn.device), task.held_out.to(drawn.device)
    shape, inner = task.grid.shape, interior(held, task.grid.shape)
    dark, images = task.background == 1, drawn + task.background
    grams = {COSINE: gram_matrix(images, "cosine"), DISTANCE: -gram_matrix(images, "l2")}
    grams |= {overlap(t): gram_matrix(images, "overlap", dark=dark, threshold=t) for t in THRESHOLDS}
    fits = _fits(torch.stack(list(grams.values())), shape, held, inner)
    contrasts = {name: block_contrast(gram, points, held) for name, gram in grams.items()}
    contrasts[FULL_MATRIX] = block_contrast(grams[COSINE], points)
    return {
        **fits,
        "block_contrast": torch.stack([contrasts[name] for name in CONTRASTS], dim=1),
    }


def _fits(grams: Tensor, shape: tuple[int, ...], held: Tensor, inner: Tensor) -> dict[str, Tensor]:
    """Agreement with each family by `SIMILARITIES`; `grams` are of all of them but the last two, cosine first."""
    inside = kernel_families(grams, shape, held, rows=inner)
    every = kernel_families(grams[0], shape, held).agreement
    standardised = kernel_families(grams[0], shape, held, rows=inner, standardised=True).agreement
    scores = {
        f"kernel_{family}": torch.cat([inside.agreement[family], every[family][None], standardised[family][None]]).mT
        for family in FAMILIES
    }
    return {**scores, "kernel_p": inside.p_value[0]}


def _peaks(task: Task, drawn: Tensor) -> dict[str, Tensor]:
    """How many bumps outputs show, and where."""
    inner = interior(task.held_out, task.grid.shape).to(drawn.device)
    images, points = drawn.unflatten(2, task.image_shape), task.grid.points[:, :2].to(drawn.device)
    scores = peak_scores(images, points, chosen=inner, dark=task.background == 1)
    return {PEAK_NAMES.get(name, name): value for name, value in scores.items()}
