"""Do held-out outputs superpose what was memorised, and with which kernel? (§3.3, Fig. 1 d–e, 8)

The bump- and rate-coded networks of the encodings study; fewer with other codes, other depths, dark bumps and an MLP.
Gram matrices are kept for every second grid value along each axis where the grid is larger than `MATRIX_SIDE`, kept
combinations first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import (
    averaged_codes,
    averaged_prediction,
    block_contrast,
    gram_matrix,
    interior,
    kernel_families,
    nonnegative_superposition,
    nonnegative_weights,
    peak_scores,
    superposition_scores,
    theoretical_kernel,
)
from recombine.papers.forced_rendering.mlp import MLPSettings
from recombine.papers.forced_rendering.presets import ALL_CODES, CODES
from recombine.reproduction.measuring import TRAINED, Batch, Measured, base_attributes, sample_points, tabulate
from recombine.reproduction.preset import AnyNumber
from recombine.reproduction.study import Arm, Study, Trials
from recombine.tasks import Task

CNN_ARM, MLP_ARM, DARK = "CNN", "MLP", "CNN, dark bumps"


def of_depth(depth: int) -> str:
    """A CNN of another depth."""
    return f"CNN of depth {depth}"


THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Shares of a bump's height above which a pixel counts for an overlap; the published scripts have about the last."""
SHOWN_THRESHOLD = 0.1
"""Of the pictures. The scripts' one leaves a single pixel of a bump, and nothing of most held-out outputs."""


def overlap(threshold: float) -> str:
    """Pixel overlap at a threshold."""
    return f"overlap above {threshold:g}"


COSINE, DISTANCE, ALL_ROWS, STANDARDISED = "cosine", "L2 distance", "cosine, all rows", "cosine, rows standardised"
SIMILARITIES = (COSINE, DISTANCE, *map(overlap, THRESHOLDS), ALL_ROWS, STANDARDISED)
"""Ways to compare outputs with a kernel, and which rows of the matrix count: the interior where nothing is said."""
FAMILIES = ("or", "product", "radial", "sum")
"""Families of kernels; `or` is the smoothed binary factorized one."""
FULL_MATRIX = "cosine, full matrix"
CONTRASTS = (COSINE, DISTANCE, *map(overlap, THRESHOLDS), FULL_MATRIX)
"""Ways to measure blocks: held-out with kept outputs where nothing is said."""
KERNELS = {
    "cosine": "cosine similarity", "l2": "L2 distance", "overlap": f"pixel overlap above {SHOWN_THRESHOLD:g}"
}  # fmt: skip
"""Each kernel that is pictured, and what it is called in a figure."""
OUTPUT, SUM, X_ALONE, Y_ALONE, TRUTH = PANELS = ("answer", "superposition", "x alone", "y alone", "truth")
"""Images of Fig. 1d, as they are kept."""


# -- measuring -------------------------------------------------------------------------------------------------------
# How much of what networks draw in the hold-out superposes memories, with which kernel, and how many bumps it shows.
#
# All in the interior of the hold-out unless a name says otherwise. Names of the numbers:
#
# - `matched`, `mismatched`: variance explained by the best non-negative combination of training images that share x or
#   y, and of as many that share neither; `own_…` the same of the networks' own outputs in the place of training images;
#   `truth`, `beyond_truth`: by the true image, and by matching images beyond it;
# - `memorised`, `averaged`, with `…_null`: by the sum of all matching outputs with equal weights, and by D(x̄) + D(ȳ);
# - `kernel_or`, `kernel_product`, `kernel_radial`, `kernel_sum`: correlation of a family of kernels with the similarity
#   of held-out and kept outputs, by `SIMILARITIES`; `kernel_p`: of `or` against shifted ones, for cosine alone;
# - `block_contrast`: block contrast, by `CONTRASTS`;
# - `several_peaks`, `peak_count`, `centred_peaks`, `aligned`, `aligned_chance`, `away_aligned`, `away_chance`: see
#   `recombine.metrics.errors`.


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


def true_signals(task: Task) -> Tensor:
    """Right outputs over the background at every grid point: `[point, pixel]`."""
    return task.render(task.grid.points).float().flatten(1) - task.background


def superposition_scores_of(batch: Batch) -> dict[str, np.ndarray]:
    """The numbers above of finished runs: `[member]`, or with the dimensions of `SUPERPOSITION_DIMS` too."""
    signals = Signals(batch)
    # Σ over factors of the output for that factor with the others averaged, at every grid point
    averaged = averaged_prediction(signals.of, signals.codes, batch.task.code_sizes, signals.codes[~signals.held])
    scores = signal_scores(batch.task, signals.drawn, averaged)
    return {name: value.float().cpu().numpy() for name, value in scores.items()}


def signal_scores(task: Task, drawn: Tensor, averaged: Tensor | None = None) -> dict[str, Tensor]:
    """The numbers above of outputs over the background at every grid point, `[member, point, pixel]`.

    Without `averaged`, D(x̄) + D(ȳ) at every grid point, there are no numbers of that.
    """
    return {**_combinations(task, drawn, averaged), **_kernels(task, drawn), **_peaks(task, drawn)}


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
    return {**fits, "block_contrast": torch.stack([contrasts[name] for name in CONTRASTS], dim=1)}


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


MATRIX_SIDE = 16
"""Grids larger than this along an axis are thinned before a matrix is kept."""


class Settings(MLPSettings):
    """Depths."""

    superposition_depths: AnyNumber = (2, 6, 8)
    """Other depths of the bump-coded CNN whose outputs are looked at."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"superposition_depths": ()}}


class SuperpositionStudy(Study[Settings]):
    """What the failing networks draw instead."""

    name: ClassVar[str] = "superposition"
    question: ClassVar[str] = "What does a network that fails to compose draw instead?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "averaged_codes", "nonnegative_weights", "theoretical_kernel", *SUPERPOSITION_METRICS
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((code, CNN_ARM), preset.spec(encoding=code), extra=code not in CODES) for code in ALL_CODES]
        for depth in preset.superposition_depths:
            arms.append(Arm(("bump", of_depth(depth)), preset.spec(decoder=preset.cnn(depth)), extra=True))
        arms.append(Arm(("bump", MLP_ARM), preset.mlp_spec("bump", preset.mlp_depths[0]), extra=True))
        return arms + [Arm((code, DARK), preset.spec(encoding=code, polarity="dark"), extra=True) for code in CODES]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> Measured:
            return {**batch.scores, **superposition_scores_of(batch)}

        result = tabulate(trials, ("encoding", "decoder"), measured, SUPERPOSITION_DIMS)
        inner = {"gram": ("kernel", "row", "column"), "panel_image": ("panel", "row_pixel", "column_pixel")}
        shown = {(code,): trials.pictured[code, CNN_ARM] for code in CODES}
        pictures = tabulate(Trials(trials.preset, trials.device, shown), ("encoding",), _pictured, inner)
        spec = trials["bump", CNN_ARM][0].spec
        order, kept = _matrix_order(spec.task)
        positions = spec.task.grid.points[order]
        binary = theoretical_kernel("binary", positions[kept:], positions[:kept])
        result = result.merge(pictures.isel(seed=0, drop=True).drop_vars(TRAINED), join="left").assign(
            binary=(("held_row", "kept_column"), binary.numpy().astype(np.float32))
        )
        position = sample_points(spec)[0].tolist()
        attributes = base_attributes(trials, size=trials.preset.size, kept=kept, place=position)
        coordinates = {**SUPERPOSITION_COORDS, "kernel": list(KERNELS), "panel": list(PANELS)}
        return result.assign_coords(coordinates).assign_attrs(attributes)


def _pictured(batch: Batch) -> dict[str, Any]:
    """Gram matrices and panels of the runs that pictures are of."""
    found = Signals(batch)
    order, _ = _matrix_order(batch.task)
    images, dark = (found.drawn + batch.task.background)[:, order.to(batch.device)], batch.task.background == 1
    grams = [gram_matrix(images, kernel, dark=dark, threshold=SHOWN_THRESHOLD) for kernel in KERNELS]  # type: ignore[arg-type]
    return {"gram": torch.stack(grams, dim=1), "panel_image": _panels(found)}


def _panels(found: Signals) -> Tensor:
    """Fig. 1d at one held-out position: output, best sum of memories, each factor with the other averaged, truth."""
    task, codes, held = found.task, found.codes, found.held
    at = task.grid.nearest(sample_points(found.batch.spec)[:1])
    parts = [found.of(part[at]) for part in averaged_codes(codes, task.code_sizes, codes[~held])]
    shares = (found.points == found.points[at]).any(dim=1) & ~held
    drawn, truth = found.drawn[:, at], found.truth[at].expand(len(found.batch), -1, -1)
    memories = found.truth[shares]
    gram, products = memories @ memories.mT, drawn @ memories.mT
    weights = nonnegative_weights(gram.expand(*products.shape, len(gram)), products)
    rows = [drawn, (weights @ memories.double()).to(drawn.dtype), *parts, truth]
    return torch.cat(rows, dim=1).unflatten(2, task.image_shape)


def _matrix_order(task: Task) -> tuple[Tensor, int]:
    """Grid points of a kept matrix, kept combinations first, and how many of them are kept."""
    step = 2 if max(task.grid.shape) > MATRIX_SIDE else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)


STUDY = SuperpositionStudy()
