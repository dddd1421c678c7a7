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
from recombine.reproduction.measuring import base_attributes, sample_points, tabulate
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_seed
from recombine.store import Run

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
        pictured = trials.pictured
        result = tabulate(trials, ("encoding",), lambda run: _measured(run, trials.device, run.key in pictured), inner)
        first = trials["bump"][0]
        order, kept = _matrix_order(first)
        positions = first.spec.task.grid.points[order]
        binary = theoretical_kernel("binary", positions[kept:], positions[:kept])
        result = result.assign(
            gram=first_seed(result["gram"]),
            panel_image=first_seed(result["panel_image"]),
            binary=(("held_row", "kept_column"), binary.numpy().astype(np.float32)),
        )
        position = sample_points(first.spec)[0].tolist()
        attributes = base_attributes(trials, size=trials.preset.size, kept=kept, place=position)
        return result.assign_coords(kernel=list(KERNELS), panel=list(PANELS)).assign_attrs(attributes)


def _measured(run: Run, device: torch.device, pictured: bool) -> dict[str, Any]:
    task = run.spec.task
    points, held = task.grid.points.to(device), task.held_out.to(device)
    module = run.module().to(device)

    @torch.no_grad()
    def signal(codes: Tensor) -> Tensor:
        return module(codes.float()).flatten(1) - task.background

    codes = task.codes(points)
    drawn, truth = signal(codes), task.render(points).float().flatten(1) - task.background
    averaged = averaged_prediction(signal, codes[held], task.code_sizes, codes[~held])
    explained = superposition_scores(drawn, points, held, truth=truth, averaged=averaged)
    scores: dict[str, Any] = {name: value.item() for name, value in explained.items()}
    scores["id_over_blank"] = run.scores["id_over_blank"]
    dark, images = task.background == 1, drawn + task.background
    for kernel in KERNELS:
        scores |= _kernel_scores(kernel, gram_matrix(images, kernel, dark=dark), points, held)  # type: ignore[arg-type]
    if pictured:
        order, _ = _matrix_order(run)
        grams = [gram_matrix(images[order], kernel, dark=dark).cpu().numpy() for kernel in KERNELS]  # type: ignore[arg-type]
        scores["gram"] = np.stack(grams).astype(np.float32)
        scores["panel_image"] = _panels(run, signal, codes, drawn, truth, held)
    return scores


def _kernel_scores(kernel: str, gram: Tensor, points: Tensor, held: Tensor) -> dict[str, float]:
    """Block contrast of a kernel and, where it is judged, its agreement with theory."""
    scores = {f"{kernel}_contrast": block_contrast(-gram if kernel == "l2" else gram, points).item()}
    if kernel in JUDGED_KERNELS:
        agreed = kernel_agreement(gram, points, held)
        rivals = [v for name, v in agreed.agreement.items() if name not in ("binary", "gaussian_sum")]
        scores[f"{kernel}_p"] = agreed.p_value.item()
        scores[f"{kernel}_margin"] = (agreed.agreement["binary"] - torch.stack(rivals).amax()).item()
        scores |= {f"{kernel}_{name}": value.item() for name, value in agreed.agreement.items()}
    return scores


def _panels(run: Run, signal: Any, codes: Tensor, drawn: Tensor, truth: Tensor, held: Tensor) -> np.ndarray:
    """Fig. 1d at one held-out position: output, sum of memories, each factor with the other averaged, truth."""
    task = run.spec.task
    at = task.grid.nearest(sample_points(run.spec)[:1])
    parts = [signal(part[at]) for part in averaged_codes(codes, task.code_sizes, codes[~held])]
    among_held = (torch.nonzero(held.cpu()).flatten() == at).nonzero().flatten()
    memories = memorised_prediction(drawn, task.grid.points.to(drawn.device), held)[among_held]
    rows = [drawn[at], _at_best_scale(drawn[at], memories), *parts, truth[at]]
    return torch.cat([row.cpu() for row in rows]).unflatten(1, task.image_shape).numpy()


def _at_best_scale(output: Tensor, prediction: Tensor) -> Tensor:
    return prediction * ((output * prediction).sum() / prediction.square().sum().clamp(min=1e-12))


def _matrix_order(run: Run) -> tuple[Tensor, int]:
    """Grid points of a kept matrix, kept combinations first, and how many of them are kept."""
    task = run.spec.task
    step = 2 if max(task.grid.shape) > MATRIX_SIDE else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)


STUDY = SuperpositionStudy()
