"""Do held-out outputs superpose what was memorised, and with which kernel? (§3.3, Fig. 1 d–e, 8)

The bump- and rate-coded networks of the encodings study. Gram matrices are kept for every second grid value along each
axis where the grid is larger than `MATRIX_SIDE`, kept combinations first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import (
    averaged_codes,
    averaged_prediction,
    block_contrast,
    gram_matrix,
    kernel_agreement,
    memorised_prediction,
    superposition_scores,
    theoretical_kernel,
)
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.papers.forced_rendering.superposition.labels import JUDGED_KERNELS, KERNELS, PANELS
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import base_attributes, sample_points, tabulate
from recombine.reproduction.study import Arm, Study, Trials
from recombine.tasks import Task

if TYPE_CHECKING:
    import xarray

MATRIX_SIDE = 16
"""Grids larger than this along an axis are thinned before a matrix is kept."""


class SuperpositionStudy(Study[BumpPreset]):
    """What the failing networks draw instead."""

    name: ClassVar[str] = "superposition"
    question: ClassVar[str] = "What does a network that fails to compose draw instead?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    metrics: ClassVar[tuple[str, ...]] = (
        "averaged_codes", "averaged_prediction", "block_contrast", "gram_matrix", "kernel_agreement",
        "memorised_prediction", "superposition_scores", "theoretical_kernel",
    )  # fmt: skip

    def arms(self, preset: BumpPreset) -> list[Arm]:
        return [Arm((encoding,), preset.spec(encoding=encoding)) for encoding in ("bump", "rate")]

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        inner = {"gram": ("kernel", "row", "column"), "panel_image": ("panel", "row_pixel", "column_pixel")}
        result = tabulate(trials, ("encoding",), _measured)
        pictures = tabulate(trials.pictured, ("encoding",), _pictured, inner).isel(seed=0, drop=True)
        spec = trials["bump"][0].spec
        order, kept = _matrix_order(spec.task)
        positions = spec.task.grid.points[order]
        binary = theoretical_kernel("binary", positions[kept:], positions[:kept])
        result = result.merge(pictures).assign(binary=(("held_row", "kept_column"), binary.numpy().astype(np.float32)))
        position = sample_points(spec)[0].tolist()
        attributes = base_attributes(trials, size=trials.preset.size, kept=kept, place=position)
        return result.assign_coords(kernel=list(KERNELS), panel=list(PANELS)).assign_attrs(attributes)


class _Signals:
    """What networks draw over the grid, over the background, and what they should."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.task = batch, batch.task
        self.points, self.held = self.task.grid.points.to(batch.device), self.task.held_out.to(batch.device)
        self.codes = self.task.codes(self.points)
        self.drawn = self.signal(self.codes)
        self.truth = self.task.render(self.points).float().flatten(1) - self.task.background

    def signal(self, codes: Tensor) -> Tensor:
        """What the networks draw for codes: `[member, row, pixel]`."""
        return self.batch.forward(codes.float()).flatten(2) - self.task.background

    def grams(self, order: Tensor | slice = slice(None)) -> dict[str, Tensor]:
        """Gram matrices of the outputs at some grid points, by kernel."""
        dark, images = self.task.background == 1, (self.drawn + self.task.background)[:, order]
        return {kernel: gram_matrix(images, kernel, dark=dark) for kernel in KERNELS}  # type: ignore[arg-type]


def _measured(batch: Batch) -> dict[str, Any]:
    found = _Signals(batch)
    codes, held = found.codes, found.held
    averaged = averaged_prediction(found.signal, codes[held], batch.task.code_sizes, codes[~held])
    scores: dict[str, Any] = dict(
        superposition_scores(found.drawn, found.points, held, truth=found.truth, averaged=averaged)
    )
    scores["id_over_blank"] = batch.scores["id_over_blank"]
    for kernel, gram in found.grams().items():
        scores |= _kernel_scores(kernel, gram, found.points, held)
    return scores


def _kernel_scores(kernel: str, gram: Tensor, points: Tensor, held: Tensor) -> dict[str, Tensor]:
    """Block contrast of a kernel and, where it is judged, its agreement with theory."""
    scores = {f"{kernel}_contrast": block_contrast(-gram if kernel == "l2" else gram, points)}
    if kernel in JUDGED_KERNELS:
        agreed = kernel_agreement(gram, points, held)
        rivals = [v for name, v in agreed.agreement.items() if name not in ("binary", "gaussian_sum")]
        scores[f"{kernel}_p"] = agreed.p_value
        scores[f"{kernel}_margin"] = agreed.agreement["binary"] - torch.stack(rivals).amax(dim=0)
        scores |= {f"{kernel}_{name}": value for name, value in agreed.agreement.items()}
    return scores


def _pictured(batch: Batch) -> dict[str, Any]:
    """Gram matrices and panels of the runs that pictures are of."""
    found = _Signals(batch)
    order, _ = _matrix_order(batch.task)
    grams = torch.stack(list(found.grams(order.to(batch.device)).values()), dim=1)
    return {"gram": grams, "panel_image": _panels(found)}


def _panels(found: _Signals) -> Tensor:
    """Fig. 1d at one held-out position: output, sum of memories, each factor with the other averaged, truth."""
    task, drawn, codes, held = found.task, found.drawn, found.codes, found.held
    at = task.grid.nearest(sample_points(found.batch.spec)[:1])
    parts = [found.signal(part[at]) for part in averaged_codes(codes, task.code_sizes, codes[~held])]
    among_held = (torch.nonzero(task.held_out).flatten() == at).nonzero().flatten()
    memories = memorised_prediction(drawn, found.points, held)[:, among_held]
    truth = found.truth[at].expand(len(found.batch), -1, -1)
    rows = [drawn[:, at], _at_best_scale(drawn[:, at], memories), *parts, truth]
    return torch.cat(rows, dim=1).unflatten(2, task.image_shape)


def _at_best_scale(output: Tensor, prediction: Tensor) -> Tensor:
    scale = (output * prediction).sum(dim=-1) / prediction.square().sum(dim=-1).clamp(min=1e-12)
    return prediction * scale[..., None]


def _matrix_order(task: Task) -> tuple[Tensor, int]:
    """Grid points of a kept matrix, kept combinations first, and how many of them are kept."""
    step = 2 if max(task.grid.shape) > MATRIX_SIDE else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)


STUDY = SuperpositionStudy()
