"""Do held-out outputs superpose what was memorised, and with which kernel? (§3.3, Fig. 1 d–e, 8)

The bump- and rate-coded networks of the encodings study; fewer with other codes, other depths, dark bumps and an MLP.
Gram matrices are kept for every second grid value along each axis where the grid is larger than `MATRIX_SIDE`, kept
combinations first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import averaged_codes, gram_matrix, nonnegative_weights, theoretical_kernel
from recombine.papers.forced_rendering.labels import ALL_CODES, CODES
from recombine.papers.forced_rendering.mlp.study import Settings as MLPSettings
from recombine.papers.forced_rendering.superposition.labels import (
    CNN_ARM,
    DARK,
    KERNELS,
    MLP_ARM,
    PANELS,
    SHOWN_THRESHOLD,
    of_depth,
)
from recombine.papers.forced_rendering.superposition.measuring import (
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    SUPERPOSITION_METRICS,
    Signals,
    superposition_scores_of,
)
from recombine.reproduction.measuring import TRAINED, Batch, Measured, base_attributes, sample_points, tabulate
from recombine.reproduction.preset import AnyNumber
from recombine.reproduction.study import Arm, Study, Trials
from recombine.tasks import Task

if TYPE_CHECKING:
    import xarray

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
    rows = [drawn, _best_sum(drawn, found.truth[shares]), *parts, truth]
    return torch.cat(rows, dim=1).unflatten(2, task.image_shape)


def _best_sum(outputs: Tensor, memories: Tensor) -> Tensor:
    """The non-negative combination of memories, `[memory, pixel]`, nearest to outputs, `[member, row, pixel]`."""
    gram = memories @ memories.mT
    products = outputs @ memories.mT
    weights = nonnegative_weights(gram.expand(*products.shape, len(gram)), products)
    return (weights @ memories.double()).to(outputs.dtype)


def _matrix_order(task: Task) -> tuple[Tensor, int]:
    """Grid points of a kept matrix, kept combinations first, and how many of them are kept."""
    step = 2 if max(task.grid.shape) > MATRIX_SIDE else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)


STUDY = SuperpositionStudy()
